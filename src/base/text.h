/* src/base/text.h - numbers and tables for people.
 *
 * All functions return a pointer to `buf`, which has at least MS_TEXT bytes. NaN prints as "unknown". */
#ifndef MS_BASE_TEXT_H
#define MS_BASE_TEXT_H

#include <glib.h>

#define MS_TEXT 48
const char *ms_text_bytes(double bytes_B, char *buf);    /* "12.34 GiB" */
const char *ms_text_seconds(double time_s, char *buf);   /* "12.34 s", "3.21 ms", "4.56 us" */
const char *ms_text_count(double count, char *buf);      /* "671.03 G" (decimal prefixes) */
const char *ms_text_tokens(double tokens, char *buf);    /* "15T", "1.28T", "250G": as --tokens takes them */
const char *ms_text_percent(double fraction, char *buf); /* "41.9 %" */
const char *ms_text_format(char *buf, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* The same in a room of their own, which lasts as long as the block that they stand in. */
#define MS_ROOM        ((char[MS_TEXT]){0})
#define MS_BYTES(x)    ms_text_bytes(x, MS_ROOM)
#define MS_SECONDS(x)  ms_text_seconds(x, MS_ROOM)
#define MS_COUNT(x)    ms_text_count(x, MS_ROOM)
#define MS_PERCENT(x)  ms_text_percent(x, MS_ROOM)
#define MS_FORMAT(...) ms_text_format(MS_ROOM, __VA_ARGS__)

/* text: (transfer full) */
void ms_text_append(GString *out, char *text);

#define MS_TEXT_COLUMNS 100
/* A text with spaces turned into line breaks where a line would pass MS_TEXT_COLUMNS; lines after the first begin with
 * `indent` spaces. */
void ms_text_paragraph(GString *out, int indent, const char *format, ...) G_GNUC_PRINTF(3, 4);
/* All lines of `text`, those beyond MS_TEXT_COLUMNS broken at spaces, and a word that is longer than a line behind its
 * last ',' or '|'. What is broken off stands below the text behind a label ("  label   text"), else two columns further
 * in than its line. (transfer full) */
char *ms_text_folded(const char *text);

/* Whether `word`, which is not empty, is one of `words`, separated by one space each. */
gboolean ms_text_has_word(const char *words, const char *word);

/* A plain-text table: columns aligned (left for text, right when `right`), two spaces between, no trailing blanks.
 * A table beyond MS_TEXT_COLUMNS gets titles of two lines and single blanks; where that is not enough, columns beyond
 * it stand on a line of their own under each row. */
typedef struct MsTable MsTable;
MsTable *ms_table_new(void);
MsTable *ms_table_of(const char *titles); /* with columns "left|>right" */
void ms_table_columns(MsTable *table, const char *titles);
void ms_table_column(MsTable *table, const char *title, gboolean right);
void ms_table_cell(MsTable *table, const char *text); /* row-major; copies */
void ms_table_cellf(MsTable *table, const char *format, ...) G_GNUC_PRINTF(2, 3);
void ms_table_cells(MsTable *table, gsize n, const char *const *text);
#define MS_TABLE_ROW(table, ...) \
  ms_table_cells(table, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *const[]){__VA_ARGS__})
char *ms_table_take(MsTable *table);                      /* (transfer full) text; frees the table */
void ms_table_append(MsTable *table, GString *out);       /* the same */
void ms_table_append_below(MsTable *table, GString *out); /* behind an empty line */

/* Appends a text to a list that owns its texts. */
void ms_note(GPtrArray *notes, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* A line's end, without blanks before it. */
void ms_text_end_line(GString *out);

#endif
