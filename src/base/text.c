/* src/base/text.c - numbers and tables for people. */
#include "base/text.h"

#include <math.h>
#include <string.h>

/* "12.34 GiB": the largest unit in which the printed number is at least 1. */
static const char *scaled(double value, double step, const char *const *units, char *buf) {
  int i = 0;
  while (units[i + 1] && fabs(value) >= step * (1 - 1e-5)) {
    value /= step;
    i++;
  }
  const char *format = i == 0 && value == floor(value) ? "%.0f" : "%.2f";
  char number[32];
  if (fabs(value) >= 1e15) format = "%.3e";
  g_ascii_formatd(number, sizeof number, format, value);
  g_snprintf(buf, MS_TEXT, "%s%s%s", number, *units[i] ? " " : "", units[i]);
  return buf;
}

/* TRUE when `value` has no ordinary text; then it is in buf. */
static gboolean special(double value, char *buf) {
  if (isfinite(value)) return FALSE;
  g_strlcpy(buf, isnan(value) ? "unknown" : value > 0 ? "infinite" : "-infinite", MS_TEXT);
  return TRUE;
}

const char *ms_text_bytes(double bytes_B, char *buf) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", NULL};
  return special(bytes_B, buf) ? buf : scaled(bytes_B, 1024, units, buf);
}

const char *ms_text_count(double count, char *buf) {
  static const char *const units[] = {"", "k", "M", "G", "T", "P", "E", NULL};
  return special(count, buf) ? buf : scaled(count, 1000, units, buf);
}

const char *ms_text_tokens(double tokens, char *buf) {
  static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
  if (special(tokens, buf)) return buf;
  int i = 0;
  for (; i < 6 && fabs(tokens) >= 1000 * (1 - 1e-5); i++) tokens /= 1000;
  char number[32];
  g_ascii_formatd(number, sizeof number, "%.4g", tokens);
  g_snprintf(buf, MS_TEXT, "%s%s", number, units[i]);
  return buf;
}

/* "-0.0" is what rounding left of nothing. */
static const char *unsigned_zero(const char *number) {
  return *number == '-' && !number[1 + strspn(number + 1, "0.")] ? number + 1 : number;
}

const char *ms_text_seconds(double time_s, char *buf) {
  static const char *const units[] = {"s", "ms", "us", "ns"};
  if (special(time_s, buf)) return buf;
  if (fabs(time_s) < 5e-12) time_s = 0; /* 0.00 ns */
  int i = 0;
  while (i < 3 && time_s != 0 && fabs(time_s) < 1 - 1e-5) {
    time_s *= 1000;
    i++;
  }
  char number[32];
  g_ascii_formatd(number, sizeof number, time_s == 0 ? "%.0f" : fabs(time_s) >= 1e15 ? "%.3e" : "%.2f", time_s);
  g_snprintf(buf, MS_TEXT, "%s %s", number, units[i]);
  return buf;
}

const char *ms_text_percent(double fraction, char *buf) {
  if (special(fraction, buf)) return buf;
  char number[32];
  g_ascii_formatd(number, sizeof number, fabs(fraction) >= 1e12 ? "%.3e" : "%.1f", 100 * fraction);
  g_snprintf(buf, MS_TEXT, "%s %%", unsigned_zero(number));
  return buf;
}

const char *ms_text_format(char *buf, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_vsnprintf(buf, MS_TEXT, format, args);
  va_end(args);
  return buf;
}

void ms_text_append(GString *out, char *text) {
  g_string_append(out, text);
  g_free(text);
}

/* --- tables ---------------------------------------------------------------------------------------------------- */
struct MsTable {
  GPtrArray *cells; /* the titles are the first row */
  GArray *right;    /* gboolean per column */
};

MsTable *ms_table_new(void) {
  MsTable *table = g_new0(MsTable, 1);
  *table = (MsTable){g_ptr_array_new_with_free_func(g_free), g_array_new(FALSE, FALSE, sizeof(gboolean))};
  return table;
}

void ms_table_column(MsTable *table, const char *title, gboolean right) {
  g_ptr_array_add(table->cells, g_strdup(title));
  g_array_append_val(table->right, right);
}

void ms_table_columns(MsTable *table, const char *titles) {
  g_auto(GStrv) title = g_strsplit(titles, "|", -1);
  for (int i = 0; title[i]; i++) ms_table_column(table, title[i] + (*title[i] == '>'), *title[i] == '>');
}

MsTable *ms_table_of(const char *titles) {
  MsTable *table = ms_table_new();
  ms_table_columns(table, titles);
  return table;
}

void ms_table_cell(MsTable *table, const char *text) { g_ptr_array_add(table->cells, g_strdup(text ? text : "")); }

void ms_table_cellf(MsTable *table, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_ptr_array_add(table->cells, g_strdup_vprintf(format, args));
  va_end(args);
}

void ms_table_cells(MsTable *table, gsize n, const char *const *text) {
  for (gsize i = 0; i < n; i++) ms_table_cell(table, text[i]);
}

static int width(const char *text) {
  return g_utf8_validate(text, -1, NULL) ? (int)g_utf8_strlen(text, -1) : (int)strlen(text);
}

/* Words of `text`, of which the first begins in that column; lines after the first begin in column `indent`. */
static void append_wrapped(GString *out, const char *text, int column, int indent) {
  g_auto(GStrv) words = g_strsplit(text, " ", -1);
  for (int i = 0; words[i]; i++) {
    if (i > 0 && column + 1 + width(words[i]) > MS_TEXT_COLUMNS) {
      g_string_append_printf(out, "\n%*s", indent, "");
      column = indent;
    } else if (i > 0) {
      g_string_append_c(out, ' ');
      column++;
    }
    g_string_append(out, words[i]);
    column += width(words[i]);
  }
}

static int column_width(const MsTable *table, guint column) {
  int widest = 0;
  for (guint i = column; i < table->cells->len; i += table->right->len)
    widest = MAX(widest, width(g_ptr_array_index(table->cells, i)));
  return widest;
}

static void append_padded(GString *out, const char *text, int columns, gboolean right) {
  int pad = MAX(0, columns - width(text));
  if (right) g_string_append_printf(out, "%*s", pad, "");
  g_string_append(out, text);
  if (!right) g_string_append_printf(out, "%*s", pad, "");
}

void ms_note(GPtrArray *notes, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_ptr_array_add(notes, g_strdup_vprintf(format, args));
  va_end(args);
}

void ms_text_end_line(GString *out) {
  while (out->len && out->str[out->len - 1] == ' ') g_string_truncate(out, out->len - 1);
  g_string_append_c(out, '\n');
}

static int longest_word(const char *text) {
  g_auto(GStrv) words = g_strsplit(text, " ", -1);
  int longest = 0;
  for (int i = 0; words[i]; i++) longest = MAX(longest, width(words[i]));
  return longest;
}

/* What the last column needs at least, if it is text: its sentences are broken. */
static int least_width(const MsTable *table, guint column) {
  enum { READABLE = 30 };
  int most = 0;
  if (g_array_index(table->right, gboolean, column)) return column_width(table, column);
  for (guint i = column; i < table->cells->len; i += table->right->len) {
    const char *text = g_ptr_array_index(table->cells, i);
    most = MAX(most, MIN(width(text), MAX(longest_word(text), READABLE)));
  }
  return most;
}

/* How a table is set: what each column takes, what it needs at least (sentences are broken), and blanks between. */
typedef struct {
  int *widths, *least, gap;
} Setting;

/* Columns of all in one line. */
static int measure(const MsTable *table, Setting *s) {
  guint n = table->right->len;
  int sum = -s->gap;
  for (guint c = 0; c < n; c++) {
    s->widths[c] = column_width(table, c);
    s->least[c] = c + 1 < n ? s->widths[c] : least_width(table, c);
    sum += s->gap + s->least[c];
  }
  return sum;
}

/* What stands above a title that is wider than the cells below it: the part before the blank, '/' or '_' at which it is
 * broken, else "". (transfer full) */
static char *break_title(MsTable *table, guint column) {
  char *title = g_ptr_array_index(table->cells, column);
  int body = 0, best = width(title), lead = (int)strspn(title, " ");
  size_t at = 0;
  for (guint i = column + table->right->len; i < table->cells->len; i += table->right->len)
    body = MAX(body, width(g_ptr_array_index(table->cells, i)));
  for (size_t i = (size_t)lead + 1; best > body && title[i]; i++) {
    int wide = MAX((int)i, lead + width(title + i + (title[i] == ' ')));
    if (strchr(" /_", title[i]) && wide < best) best = wide, at = i;
  }
  if (!at) return g_strdup("");
  table->cells->pdata[column] = g_strdup_printf("%*s%s", lead, "", title + at + (title[at] == ' '));
  title[at] = '\0';
  return title;
}

/* What is wider than a line gets titles of two lines, and single blanks between columns where that is not enough; it
 * stays as it is where that does not do either. */
static void squeeze(MsTable *table, Setting *s) {
  guint n = table->right->len;
  MsTable tried = {g_ptr_array_new_with_free_func(g_free), table->right};
  for (guint i = 0; i < table->cells->len; i++) ms_table_cell(&tried, table->cells->pdata[i]);
  g_auto(GStrv) upper = g_new0(char *, n + 1);
  for (guint c = 0; c < n; c++) upper[c] = break_title(&tried, c);
  g_autofree char *all = g_strjoinv("", upper);
  for (guint c = 0; c < n && *all; c++) g_ptr_array_insert(tried.cells, (int)c, g_strdup(upper[c]));
  if (measure(&tried, s) > MS_TEXT_COLUMNS) s->gap = 1;
  if (measure(&tried, s) <= MS_TEXT_COLUMNS) {
    GPtrArray *was = table->cells;
    table->cells = tried.cells, tried.cells = was;
  } else {
    s->gap = 2;
    measure(table, s);
  }
  g_ptr_array_unref(tried.cells);
}

/* The first column of the next line of each row; `left`: what stands left of its columns. */
static guint line_end(const Setting *s, guint n, guint from, int left) {
  guint end = from;
  for (int sum = left - s->gap; end < n && (end == from || sum + s->gap + s->least[end] <= MS_TEXT_COLUMNS); end++)
    sum += s->gap + s->least[end];
  return end;
}

/* The cells of one row from column `from` to before `to`, behind `left` columns; nothing where a further line of a row
 * would be empty. */
static void append_cells(GString *out, const MsTable *table, const Setting *s, guint row, guint from, guint to,
                         int left) {
  guint n = table->right->len;
  gsize before = out->len;
  g_string_append_printf(out, "%*s", left, "");
  for (guint c = from; c < to && row * n + c < table->cells->len; c++) {
    const char *text = g_ptr_array_index(table->cells, row * n + c);
    gboolean right = g_array_index(table->right, gboolean, c);
    if (c > from) g_string_append_printf(out, "%*s", s->gap, ""), left += s->gap;
    if (c == n - 1 && !right) append_wrapped(out, text, left, left);
    else append_padded(out, text, s->widths[c], right);
    left += s->widths[c];
  }
  ms_text_end_line(out);
  if (from > 0 && out->len == before + 1) g_string_truncate(out, before);
}

char *ms_table_take(MsTable *table) {
  enum { INDENT = 6 };
  guint n = table->right->len;
  GString *out = g_string_new(NULL);
  g_autofree int *widths = g_new0(int, n + 1), *least = g_new0(int, n + 1);
  Setting s = {widths, least, 2};
  if (measure(table, &s) > MS_TEXT_COLUMNS) squeeze(table, &s);
  for (guint row = 0; row * n < table->cells->len; row++)
    for (guint from = 0, to; from < n; from = to) {
      to = line_end(&s, n, from, from ? INDENT : 0);
      append_cells(out, table, &s, row, from, to, from ? INDENT : 0);
    }
  g_ptr_array_free(table->cells, TRUE);
  g_array_free(table->right, TRUE);
  g_free(table);
  return g_string_free(out, FALSE);
}

void ms_table_append(MsTable *table, GString *out) { ms_text_append(out, ms_table_take(table)); }

void ms_table_append_below(MsTable *table, GString *out) {
  g_string_append_c(out, '\n');
  ms_table_append(table, out);
}

void ms_text_paragraph(GString *out, int indent, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  append_wrapped(out, text, 0, indent);
  g_string_append_c(out, '\n');
}

/* --- folded lines ---------------------------------------------------------------------------------------------- */
/* Columns on a terminal: characters, but for what sets colours. */
static int visible(const char *text, size_t length) {
  int columns = 0;
  gboolean escape = FALSE;
  for (size_t i = 0; i < length; i++) {
    if (text[i] == '\033') escape = TRUE;
    else if (escape) escape = text[i] != 'm';
    else columns += ((unsigned char)text[i] & 0xC0) != 0x80;
  }
  return columns;
}

/* Where what is broken off begins: under the text behind the first label. */
static int hanging(const char *line, size_t length) {
  enum { DEEPEST = 60 };
  size_t lead = strspn(line, " ");
  for (size_t i = lead; i + 2 < length; i++)
    if (line[i] == ' ' && line[i + 1] == ' ') {
      while (i < length && line[i] == ' ') i++;
      int column = visible(line, i);
      return column <= DEEPEST ? column : (int)lead + 2;
    }
  return (int)lead + 2;
}

/* Bytes of `line` that a line of so many columns takes: up to its last space behind `least` bytes, else up to the last
 * ',' or '|', else up to the next of the three. */
static size_t fitting(const char *line, size_t length, size_t least, int columns) {
  size_t space = 0, mark = 0;
  for (size_t i = least; i < length; i++) {
    gboolean fits = visible(line, i + 1) <= columns;
    if (!fits && (space || mark)) break;
    if (line[i] == ' ') {
      if (visible(line, i) <= columns || !space) space = i;
      if (!fits) break;
    }
    if (line[i] == ',' || line[i] == '|') mark = i + 1;
  }
  return space ? space : mark ? mark : length;
}

static void append_folded(GString *out, const char *line, size_t length) {
  int indent = hanging(line, length), columns = MS_TEXT_COLUMNS;
  size_t least = strspn(line, " ");
  while (visible(line, length) > columns) {
    size_t taken = fitting(line, length, least, columns);
    if (taken == length) break;
    g_string_append_len(out, line, (gssize)taken);
    ms_text_end_line(out);
    g_string_append_printf(out, "%*s", indent, "");
    while (taken < length && line[taken] == ' ') taken++;
    line += taken, length -= taken, least = 0, columns = MS_TEXT_COLUMNS - indent;
  }
  g_string_append_len(out, line, (gssize)length);
}

char *ms_text_folded(const char *text) {
  GString *out = g_string_new(NULL);
  for (const char *line = text; *line;) {
    size_t length = strcspn(line, "\n");
    append_folded(out, line, length);
    line += length;
    if (*line) g_string_append_c(out, *line++);
  }
  return g_string_free(out, FALSE);
}

gboolean ms_text_has_word(const char *words, const char *word) {
  size_t n = strlen(word);
  for (const char *at = words; n > 0 && (at = strstr(at, word)); at += n)
    if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return TRUE;
  return FALSE;
}
