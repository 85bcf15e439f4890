/* src/base/json_scan.c - the strict reader: RFC 8259 and the limits of json.h, straight into json-glib nodes.
 *
 * json-glib 1.6 has no strict mode: it takes 010, 1e400, duplicate keys and trailing text, and dies of deep
 * nesting. So its parser is not used at all; its tree is. Recursion is bounded by MS_JSON_MAX_DEPTH. */
#include "base/err.h"
#include "base/json_priv.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#define INT_LIMIT 9007199254740992 /* 2^53 */

typedef struct {
  const char *key; /* the text below, or "" between two members; NULL in an array */
  int index;
  GString *text; /* of the keys at this depth, one after the other */
} Frame;

typedef struct MsJsonCursor {
  const char *p, *end;
  const char *filename;
  int line, depth, values;
  Frame *frame;    /* [MS_JSON_MAX_DEPTH] where we are, for the path in messages */
  GString *string; /* the last string that was read */
  GArray *numbers; /* double: the last list of numbers that ms_json_take_numbers read */
  GError **error;
} Scan;

static JsonNode *scan_value(Scan *s);

static char *scan_path(const Scan *s) {
  GString *path = g_string_new(NULL);
  for (int i = 0; i < s->depth; i++)
    if (!s->frame[i].key) g_string_append_printf(path, "[%d]", s->frame[i].index);
    else if (*s->frame[i].key) /* "" between two members */
      g_string_append_printf(path, "%s%s", path->len ? "." : "", s->frame[i].key);
  return g_string_free(path, FALSE);
}

G_GNUC_PRINTF(2, 3) static gboolean fail(Scan *s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *message = g_strdup_vprintf(format, args);
  va_end(args);
  char *path = scan_path(s);
  ms_input_error(s->error, s->filename, s->line, path, "%s", message);
  g_free(path);
  g_free(message);
  return FALSE;
}

static void skip_space(Scan *s) {
  for (; s->p < s->end; s->p++) {
    if (*s->p == '\n') s->line++;
    else if (*s->p != ' ' && *s->p != '\t' && *s->p != '\r') return;
  }
}

/* The next character as it should appear in a message. */
static const char *shown(const Scan *s, char buf[16]) {
  if (s->p >= s->end) return "the end of the file";
  gunichar c = g_utf8_get_char(s->p);
  int n = 1;
  buf[0] = '\'';
  if (c < 0x20 || c == 0x7f) n += g_snprintf(buf + n, 8, "\\x%02x", c);
  else n += g_unichar_to_utf8(c, buf + n);
  buf[n] = '\'';
  buf[n + 1] = '\0';
  return buf;
}

static gboolean expected(Scan *s, const char *what) {
  char buf[16];
  const char *got = shown(s, buf);
  return fail(s, "%s where %s is expected", got, what);
}

/* --- strings ------------------------------------------------------------------------------------------------------ */
static gboolean scan_hex4(Scan *s, guint *code) {
  *code = 0;
  for (int i = 0; i < 4; i++, s->p++) {
    if (s->p >= s->end || !g_ascii_isxdigit(*s->p)) return expected(s, "a hexadecimal digit of \\uXXXX");
    *code = *code * 16 + (guint)g_ascii_xdigit_value(*s->p);
  }
  return TRUE;
}

static gboolean scan_unicode(Scan *s, GString *out) {
  guint code, low;
  if (!scan_hex4(s, &code)) return FALSE;
  if (code == 0) return fail(s, "\\u0000 in a string, which no key or word may contain");
  if (code >= 0xdc00 && code <= 0xdfff) return fail(s, "\\u%04x is the second half of a pair without a first", code);
  if (code >= 0xd800 && code <= 0xdbff) {
    if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u') return expected(s, "the second \\uXXXX of a pair");
    s->p += 2;
    if (!scan_hex4(s, &low)) return FALSE;
    if (low < 0xdc00 || low > 0xdfff) return fail(s, "\\u%04x is not the second half of a pair", low);
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  g_string_append_unichar(out, code);
  return TRUE;
}

static gboolean scan_escape(Scan *s, GString *out) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (s->p >= s->end) return expected(s, "the end of an escape");
  if (*s->p == 'u') {
    s->p++;
    return scan_unicode(s, out);
  }
  const char *found = *s->p ? strchr(from, *s->p) : NULL;
  if (!found) return expected(s, "one of \" \\ / b f n r t u after a backslash");
  g_string_append_c(out, to[found - from]);
  s->p++;
  return TRUE;
}

static gboolean scan_string(Scan *s, GString *out) { /* at the opening quote */
  g_string_truncate(out, 0);
  for (s->p++; s->p < s->end && *s->p != '"';) {
    const char *run = s->p;
    while (s->p < s->end && *s->p != '"' && *s->p != '\\' && (guchar)*s->p >= 0x20) s->p++;
    g_string_append_len(out, run, s->p - run);
    if (s->p >= s->end || *s->p == '"') break;
    if (*s->p != '\\') return expected(s, "the rest of a string (control characters are written \\n, \\t, \\u00XX)");
    s->p++;
    if (!scan_escape(s, out)) return FALSE;
  }
  if (s->p >= s->end) return fail(s, "string without a closing quote");
  s->p++;
  return TRUE;
}

/* --- numbers and words -------------------------------------------------------------------------------------------- */
static gboolean scan_digits(Scan *s) {
  if (s->p >= s->end || !g_ascii_isdigit(*s->p)) return expected(s, "a digit");
  while (s->p < s->end && g_ascii_isdigit(*s->p)) s->p++;
  return TRUE;
}

/* Moves over one number; *integral says whether it had neither fraction nor exponent. */
static gboolean scan_number_text(Scan *s, gboolean *integral) {
  *integral = TRUE;
  if (*s->p == '-') s->p++;
  if (s->end - s->p >= 2 && s->p[0] == '0' && g_ascii_isalnum(s->p[1]) && s->p[1] != 'e' && s->p[1] != 'E')
    return fail(s, "number with a leading zero, write it in plain decimal");
  if (!scan_digits(s)) return FALSE;
  if (s->p < s->end && *s->p == '.') {
    *integral = FALSE;
    s->p++;
    if (!scan_digits(s)) return FALSE;
  }
  if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
    *integral = FALSE;
    s->p++;
    if (s->p < s->end && (*s->p == '+' || *s->p == '-')) s->p++;
    if (!scan_digits(s)) return FALSE;
  }
  return TRUE;
}

typedef struct {
  gboolean integral;
  gint64 integer; /* where it is */
  double value;
} Number;

/* The digits as an integer, *scale of them behind the point; FALSE when it or its sign would not be exact. */
static gboolean small_digits(const char *p, const char *end, gint64 *digits, int *scale) {
  gboolean negative = *p == '-', point = FALSE;
  gint64 value = 0;
  int n = 0;
  for (p += negative, *scale = 0; p < end; p++) {
    if (*p == '.') {
      point = TRUE;
      continue;
    }
    if (!g_ascii_isdigit(*p) || ++n > DBL_DIG) return FALSE; /* an exponent */
    value = value * 10 + (*p - '0');
    *scale += point;
  }
  *digits = negative ? -value : value;
  return TRUE;
}

/* Up to 15 digits without an exponent, as most numbers are: an integer below 2^53 over a power of ten up to 10^15 are
 * two exact doubles, and their quotient is rounded once, as strtod rounds. */
static const double ten[DBL_DIG + 1] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                        1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

static gboolean small_number(const char *start, const char *end, Number *x) {
  int scale;
  if (FLT_EVAL_METHOD != 0 || !small_digits(start, end, &x->integer, &scale)) return FALSE;
  x->value = (double)x->integer / ten[scale];
  return TRUE;
}

static gboolean is_digit(char c) { return c >= '0' && c <= '9'; }

/* The same in one go, of [-]digits.digits at `start` and nothing behind it that could belong to it: what stands there.
 * NULL: it is something else. */
static const char *read_plain(const char *start, double *value) {
  const char *first = start + (*start == '-'), *p = first;
  guint64 digits = 0; /* more than 64 bits hold are not plain */
  while (is_digit(*p)) digits = digits * 10 + (guint64)(*p++ - '0');
  const char *point = p;
  if (p == first || *p++ != '.' || (*first == '0' && point > first + 1)) return NULL;
  while (is_digit(*p)) digits = digits * 10 + (guint64)(*p++ - '0');
  gint64 scale = p - point - 1;
  if (FLT_EVAL_METHOD != 0 || scale == 0 || p - first - 1 > DBL_DIG || (*p != ',' && *p != ']')) return NULL;
  *value = (double)(first > start ? -(gint64)digits : (gint64)digits) / ten[scale];
  return p;
}

static gboolean read_number(Scan *s, Number *x) {
  const char *start = s->p;
  if (!scan_number_text(s, &x->integral)) return FALSE;
  if (small_number(start, s->p, x)) return TRUE;
  int width = (int)MIN(s->p - start, 40);
  if (x->integral) {
    errno = 0;
    x->integer = g_ascii_strtoll(start, NULL, 10);
    if (errno || x->integer > INT_LIMIT || x->integer < -INT_LIMIT)
      return fail(s, "integer %.*s is outside +-9007199254740992 (2^53)", width, start);
    x->value = (double)x->integer;
    return TRUE;
  }
  x->value = g_ascii_strtod(start, NULL);
  if (x->value == 0) x->value = 0.0; /* not below it */
  return isfinite(x->value) || fail(s, "number %.*s is too large for a double", width, start);
}

static JsonNode *scan_number(Scan *s) {
  Number x;
  if (!read_number(s, &x)) return NULL;
  JsonNode *node = json_node_alloc();
  return x.integral ? json_node_init_int(node, x.integer) : json_node_init_double(node, x.value);
}

static gboolean take_word(Scan *s, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(s->end - s->p) < n || strncmp(s->p, word, n) != 0) return FALSE;
  if (s->p + n < s->end && (g_ascii_isalnum(s->p[n]) || s->p[n] == '_')) return FALSE;
  s->p += n;
  return TRUE;
}

static JsonNode *scan_word(Scan *s) {
  JsonNode *node;
  if (take_word(s, "true") || take_word(s, "false")) {
    node = json_node_new(JSON_NODE_VALUE);
    json_node_set_boolean(node, s->p[-2] == 'u');
    return node;
  }
  if (take_word(s, "null")) return json_node_new(JSON_NODE_NULL);
  if (take_word(s, "NaN") || take_word(s, "Infinity") || take_word(s, "nan") || take_word(s, "inf"))
    fail(s, "NaN and Infinity are not JSON, write null for an unknown number");
  else expected(s, "a value");
  return NULL;
}

/* --- containers --------------------------------------------------------------------------------------------------- */
static gboolean enter(Scan *s) { /* at the opening bracket */
  if (s->depth >= MS_JSON_MAX_DEPTH) return fail(s, "nested deeper than %d levels", MS_JSON_MAX_DEPTH);
  s->p++;
  Frame *frame = &s->frame[s->depth++];
  frame->key = NULL, frame->index = 0;
  skip_space(s);
  return TRUE;
}

/* After a value: TRUE and *more when a comma follows, TRUE and !*more when `close` does. */
static gboolean next_item(Scan *s, char close, gboolean *more) {
  skip_space(s);
  *more = s->p < s->end && *s->p == ',';
  if (!*more && (s->p >= s->end || *s->p != close)) return expected(s, close == '}' ? "',' or '}'" : "',' or ']'");
  s->p++;
  skip_space(s);
  return TRUE;
}

static gboolean is_number(char c) { return c == '-' || is_digit(c); }

/* Those of [-]digits.digits with a comma and a space between them, as most lists are written. */
static guint plain_numbers(Scan *s, double *values, guint most) {
  const char *p = s->p;
  guint n = 0;
  for (const char *end; n < most && (end = read_plain(p, &values[n])); n++) {
    p = end;
    if (end[0] == ',' && end[1] == ' ' && is_number(end[2])) p += 2;
  }
  s->p = p;
  return n;
}

enum { BATCH = 64 };

/* At the opening bracket of a list of nothing but numbers, one at least. */
static gboolean scan_numbers(Scan *s, GArray *numbers) {
  gboolean more = TRUE;
  if (!enter(s)) return FALSE;
  while (more) {
    double batch[BATCH + 1];
    guint n = plain_numbers(s, batch, BATCH);
    Number x;
    if (is_number(*s->p) && read_number(s, &x)) batch[n++] = x.value;
    s->values += (int)n;
    if (n == 0 || s->values > MS_JSON_MAX_VALUES || !next_item(s, ']', &more)) return FALSE;
    g_array_append_vals(numbers, batch, n);
  }
  s->depth--;
  return TRUE;
}

static JsonNode *scan_array(Scan *s) {
  JsonNode *node = json_node_new(JSON_NODE_ARRAY);
  JsonArray *array = json_array_new();
  json_node_take_array(node, array);
  if (!enter(s)) {
    json_node_unref(node);
    return NULL;
  }
  gboolean more = s->p >= s->end || *s->p != ']';
  if (!more) s->p++;
  while (more) {
    JsonNode *item = scan_value(s);
    if (item) json_array_add_element(array, item);
    if (!item || !next_item(s, ']', &more)) {
      json_node_unref(node);
      return NULL;
    }
    s->frame[s->depth - 1].index++;
  }
  s->depth--;
  return node;
}

/* Reads `"key":` and leaves the key in the frame. */
static gboolean scan_key(Scan *s, JsonObject *object) {
  Frame *frame = &s->frame[s->depth - 1];
  if (!frame->text) frame->text = g_string_new(NULL);
  frame->key = "";
  s->depth--; /* messages about the key itself name the object */
  gboolean read = s->p < s->end && *s->p == '"' ? scan_string(s, frame->text) : expected(s, "a key in quotes");
  s->depth++;
  if (!read) return FALSE;
  frame->key = frame->text->str;
  if (json_object_get_size(object) >= MS_JSON_MAX_MEMBERS && !json_object_has_member(object, frame->key))
    return fail(s, "object with more than %d keys", MS_JSON_MAX_MEMBERS);
  skip_space(s);
  if (s->p >= s->end || *s->p != ':') return expected(s, "':' after a key");
  s->p++;
  return TRUE;
}

static gboolean scan_member(Scan *s, JsonObject *object) {
  int line = s->line;
  if (!scan_key(s, object)) return FALSE;
  guint before = json_object_get_size(object);
  JsonNode *value = scan_value(s);
  if (!value) return FALSE;
  json_object_set_member(object, s->frame[s->depth - 1].key, value);
  if (json_object_get_size(object) == before) {
    s->line = line;
    return fail(s, "key is given twice, remove one");
  }
  s->frame[s->depth - 1].key = "";
  return TRUE;
}

static JsonNode *scan_object(Scan *s) {
  if (!enter(s)) return NULL;
  JsonNode *node = json_node_new(JSON_NODE_OBJECT);
  JsonObject *object = json_object_new();
  json_node_take_object(node, object);
  gboolean more = s->p >= s->end || *s->p != '}';
  if (!more) s->p++;
  while (more)
    if (!scan_member(s, object) || !next_item(s, '}', &more)) {
      json_node_unref(node);
      return NULL;
    }
  s->depth--;
  return node;
}

static JsonNode *scan_value(Scan *s) {
  skip_space(s);
  if (++s->values > MS_JSON_MAX_VALUES) {
    fail(s, "more than %d values in one file", MS_JSON_MAX_VALUES);
    return NULL;
  }
  char c = s->p < s->end ? *s->p : '\0';
  if (c == '{') return scan_object(s);
  if (c == '[') return scan_array(s);
  if (is_number(c)) return scan_number(s);
  if (c != '"') return scan_word(s);
  return scan_string(s, s->string) ? json_node_init_string(json_node_alloc(), s->string->str) : NULL;
}

/* Of bytes from the start that are ASCII and not 0, most of them. */
static size_t plain_length(const char *text, size_t length) {
  const guint64 high = 0x8080808080808080u, ones = 0x0101010101010101u;
  size_t n = 0;
  for (guint64 word; n + sizeof word <= length; n += sizeof word) {
    memcpy(&word, text + n, sizeof word);
    if ((word | (word - ones)) & high) break; /* a byte above 127, or a borrow of a 0 */
  }
  return n;
}

static gboolean check_text(Scan *s, size_t length) {
  const char *bad;
  if (length > MS_JSON_MAX_BYTES) return fail(s, "longer than 64 MiB");
  if (g_str_has_prefix(s->p, "\xef\xbb\xbf")) return fail(s, "begins with a byte order mark, remove it");
  size_t plain = plain_length(s->p, length);
  if (g_utf8_validate(s->p + plain, (gssize)(length - plain), &bad)) return TRUE;
  for (const char *p = s->p; p < bad; p++) s->line += *p == '\n';
  return fail(s, "byte 0x%02x does not belong in UTF-8 text", (guchar)*bad);
}

static JsonNode *scan_document(Scan *s, size_t length) {
  if (!check_text(s, length)) return NULL;
  skip_space(s);
  if (s->p >= s->end) {
    fail(s, "the file is empty, must hold one JSON value");
    return NULL;
  }
  JsonNode *root = scan_value(s);
  if (!root) return NULL;
  skip_space(s);
  if (s->p >= s->end) return root;
  expected(s, "the end of the file");
  json_node_unref(root);
  return NULL;
}

static Scan begin(const char *text, size_t length, Frame frame[MS_JSON_MAX_DEPTH]) {
  memset(frame, 0, MS_JSON_MAX_DEPTH * sizeof *frame);
  return (Scan){.p = text,
                .end = text + length,
                .line = length <= MS_JSON_MAX_BYTES,
                .frame = frame,
                .string = g_string_new(NULL)};
}

static void end(Scan *s) {
  g_string_free(s->string, TRUE);
  if (s->numbers) g_array_unref(s->numbers);
  for (int i = 0; i < MS_JSON_MAX_DEPTH; i++)
    if (s->frame[i].text) g_string_free(s->frame[i].text, TRUE);
}

JsonNode *ms_json_scan(const char *text, size_t length, const char *filename, GError **error) {
  Frame frame[MS_JSON_MAX_DEPTH];
  Scan s = begin(text, length, frame);
  s.filename = filename, s.error = error;
  JsonNode *root = scan_document(&s, length);
  end(&s);
  return root;
}

/* --- without a tree --- */

gboolean ms_json_walk(const char *text, size_t length, MsJsonTake take, gpointer user) {
  Frame frame[MS_JSON_MAX_DEPTH];
  Scan s = begin(text, length, frame);
  gboolean taken = check_text(&s, length);
  skip_space(&s);
  taken = taken && take(&s, user);
  skip_space(&s);
  taken = taken && s.p == s.end;
  end(&s);
  return taken;
}

static gboolean one_more(Scan *s) { return s->p < s->end && ++s->values <= MS_JSON_MAX_VALUES; }

gboolean ms_json_take_open(Scan *s, char bracket, gboolean *more) {
  if (!one_more(s) || *s->p != bracket || !enter(s)) return FALSE;
  *more = s->p >= s->end || *s->p != (bracket == '{' ? '}' : ']');
  if (!*more) s->p++, s->depth--;
  return TRUE;
}

gboolean ms_json_take_next(Scan *s, char bracket, gboolean *more) {
  if (!next_item(s, bracket == '{' ? '}' : ']', more)) return FALSE;
  s->depth -= !*more;
  return TRUE;
}

/* The eight bytes at `p`: one of them ends the plain part of a string, a quote, a backslash or a control character. */
static gboolean ends_in(const char *p) {
  const guint64 ones = 0x0101010101010101u, high = ones << 7;
  guint64 word, quote, slash;
  memcpy(&word, p, sizeof word);
  quote = word ^ ones * '"', slash = word ^ ones * '\\';
  return (((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & high ? TRUE : FALSE;
}

/* Without escapes. */
static gboolean plain_string(Scan *s, MsJsonWord *word) {
  if (s->p >= s->end || *s->p != '"') return FALSE;
  const char *first = s->p + 1, *p = first;
  while (s->end - p >= 8 && !ends_in(p)) p += 8;
  while (p < s->end && *p != '"' && *p != '\\' && (guchar)*p >= 0x20) p++;
  if (p >= s->end || *p != '"') return FALSE;
  *word = (MsJsonWord){first, (gsize)(p - first)};
  s->p = p + 1;
  return TRUE;
}

gboolean ms_json_take_key(Scan *s, MsJsonWord *key) {
  if (!plain_string(s, key)) return FALSE;
  skip_space(s);
  if (s->p >= s->end || *s->p != ':') return FALSE;
  s->p++;
  skip_space(s);
  return TRUE;
}

gboolean ms_json_take_string(Scan *s, MsJsonWord *text) { return one_more(s) && plain_string(s, text); }

char *ms_json_word_text(const MsJsonWord *word) {
  char *text = g_malloc(word->length + 1);
  memcpy(text, word->text, word->length);
  text[word->length] = '\0';
  return text;
}

gboolean ms_json_word_is(const MsJsonWord *word, const char *text) {
  return strncmp(text, word->text, word->length) == 0 && text[word->length] == '\0';
}

gboolean ms_json_take_number(Scan *s, double *value, gboolean *integral) {
  Number x;
  if (!one_more(s) || !is_number(*s->p) || !read_number(s, &x)) return FALSE;
  *value = x.value, *integral = x.integral;
  return TRUE;
}

gboolean ms_json_take_null(Scan *s) { return one_more(s) && take_word(s, "null"); }

const double *ms_json_take_numbers(Scan *s, guint *n) {
  if (!s->numbers) s->numbers = g_array_new(FALSE, FALSE, sizeof(double));
  g_array_set_size(s->numbers, 0);
  if (!one_more(s) || *s->p != '[' || !scan_numbers(s, s->numbers)) return NULL;
  *n = s->numbers->len;
  return (const double *)(gconstpointer)s->numbers->data;
}

JsonNode *ms_json_take_node(Scan *s) { return scan_value(s); }

/* --- lines: found again only when a message needs one ------------------------------------------------------------- */
typedef struct {
  const char *p;
  int line;
} Walk;

static void walk_space(Walk *w) {
  for (; *w->p && strchr(" \t\r\n", *w->p); w->p++) w->line += *w->p == '\n';
}

static void walk_string(Walk *w) {
  for (w->p++; *w->p && *w->p != '"'; w->p++)
    if (*w->p == '\\' && w->p[1]) w->p++;
  if (*w->p) w->p++;
}

static void walk_value(Walk *w) {
  int depth = 0;
  do {
    walk_space(w);
    if (*w->p == '"') {
      walk_string(w);
    } else if (strchr("[{", *w->p)) {
      depth += *w->p != '\0';
      w->p += *w->p != '\0';
    } else if (strchr("]}", *w->p)) {
      depth--;
      w->p++;
    } else if (strchr(",:", *w->p)) {
      w->p++;
    } else {
      while (*w->p && !strchr(" \t\r\n,:]}", *w->p)) w->p++;
    }
    walk_space(w);
  } while (depth > 0 && *w->p);
}

/* Whether the key at the walk (decoded) is the first step of `path`; *rest is what follows. Moves over the
 * key. */
static gboolean walk_key_matches(Walk *w, const char *path, const char **rest) {
  const char *start = w->p;
  walk_string(w);
  Scan s = {.p = start, .end = w->p};
  GString *key = g_string_new(NULL);
  size_t n = scan_string(&s, key) ? key->len : 0;
  gboolean match = strncmp(path, key->str, n) == 0 && (path[n] == '\0' || path[n] == '.' || path[n] == '[');
  if (match) *rest = path + n + (path[n] == '.');
  g_string_free(key, TRUE);
  return match;
}

/* Both move to the value that the first step of *path names; FALSE when there is none. */
static gboolean walk_into_object(Walk *w, const char **path, int *line) {
  for (w->p++, walk_space(w); *w->p == '"'; walk_space(w)) {
    int key_line = w->line;
    gboolean match = walk_key_matches(w, *path, path);
    walk_space(w);
    if (*w->p == ':') w->p++;
    walk_space(w);
    if (match) {
      *line = key_line;
      return TRUE;
    }
    walk_value(w);
    if (*w->p == ',') w->p++;
  }
  return FALSE;
}

static gboolean walk_into_array(Walk *w, const char **path, int *line) {
  char *end;
  if (**path != '[') return FALSE;
  guint64 index = g_ascii_strtoull(*path + 1, &end, 10);
  if (*end != ']') return FALSE;
  for (w->p++, walk_space(w); *w->p && *w->p != ']'; index--) {
    if (index == 0) {
      *path = end + 1 + (end[1] == '.');
      *line = w->line;
      return TRUE;
    }
    walk_value(w);
    if (*w->p == ',') w->p++;
    walk_space(w);
  }
  return FALSE;
}

int ms_json_locate(const char *text, const char *path) {
  Walk w = {text, 1};
  walk_space(&w);
  int line = w.line;
  gboolean found = TRUE;
  while (*path && found) {
    if (*w.p == '{') found = walk_into_object(&w, &path, &line);
    else if (*w.p == '[') found = walk_into_array(&w, &path, &line);
    else found = FALSE;
  }
  return line;
}
