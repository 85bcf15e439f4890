/* src/launch/python_text.h - where strings, arguments and statements of Python end, for files that are read and never
 * run. */
#ifndef MS_LAUNCH_PYTHON_TEXT_H
#define MS_LAUNCH_PYTHON_TEXT_H

/* The end of the string of one line that begins at p, with its quote; NULL: there is none. */
const char *ms_python_string_end(const char *p);
/* Where a statement, an argument or an expression ends: at one of `stops` outside of strings and brackets, or with the
 * text. NULL: nowhere. */
const char *ms_python_span(const char *p, const char *stops);
/* Without comments and strings of several lines. (transfer full), NULL: a string has no end */
char *ms_python_without_comments(const char *text);

#endif
