/* src/report/page_text.h - the files of src/report/page/ as strings. The definitions are written by mk/embed.awk when
 * moesim is built. */
#ifndef MS_REPORT_PAGE_TEXT_H
#define MS_REPORT_PAGE_TEXT_H

extern const char ms_page_markup[], ms_page_style[], ms_page_script[];

#endif
