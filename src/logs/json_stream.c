#include "logs/json_stream.h"

#include "base/err.h"

#include <string.h>

enum { DEEPEST = 64, LONGEST = 1 << 16 };

/* What may come next. */
typedef enum { WANT_VALUE, WANT_FIRST, WANT_KEY, WANT_COLON, WANT_COMMA } Want;

struct MsJsonStream {
  MsReader *reader;
  const char *file;
  const char *bytes;
  gsize at, end;
  int line, depth;
  gboolean over, failed; /* no byte is left; the reader failed */
  char open[DEEPEST];    /* '{' or '[' of each level */
  Want want;
  GString *text;
  GError *cause; /* of the reader */
};

MsJsonStream *ms_json_stream_new(MsReader *reader, const char *file) {
  MsJsonStream *s = g_new0(MsJsonStream, 1);
  *s = (MsJsonStream){.reader = reader, .file = file, .line = 1, .text = g_string_new(NULL)};
  return s;
}

void ms_json_stream_free(MsJsonStream *s) {
  g_string_free(s->text, TRUE);
  g_clear_error(&s->cause);
  g_free(s);
}

const char *ms_json_stream_text(const MsJsonStream *s) { return s->text->str; }
int ms_json_stream_depth(const MsJsonStream *s) { return s->depth; }
int ms_json_stream_line(const MsJsonStream *s) { return s->line; }

/* --- bytes ----------------------------------------------------------------------------------------------------- */
/* The byte that comes next, -1 at the end. */
static int peek(MsJsonStream *s) {
  if (s->at < s->end) return (guchar)s->bytes[s->at];
  if (s->over) return -1;
  gssize n = ms_reader_chunk(s->reader, &s->bytes, &s->cause);
  s->at = 0;
  s->end = n > 0 ? (gsize)n : 0;
  s->over = n <= 0;
  s->failed = n < 0;
  return n > 0 ? (guchar)s->bytes[0] : -1;
}

static int take(MsJsonStream *s) {
  int c = peek(s);
  if (c < 0) return c;
  s->at++;
  s->line += c == '\n';
  return c;
}

static int after_space(MsJsonStream *s) {
  int c;
  while ((c = peek(s)) == ' ' || c == '\n' || c == '\t' || c == '\r') take(s);
  return c;
}

static MsToken wrong(MsJsonStream *s, GError **error, const char *what) {
  if (s->cause) g_propagate_error(error, g_steal_pointer(&s->cause));
  else ms_input_error(error, s->file, s->line, NULL, "%s", what);
  s->failed = TRUE;
  return MS_TOKEN_WRONG;
}

/* At the end of the bytes. */
static MsToken ended(MsJsonStream *s, GError **error) { return s->failed ? wrong(s, error, "") : MS_TOKEN_CUT; }

/* --- texts, numbers -------------------------------------------------------------------------------------------- */
static int hex4(MsJsonStream *s) {
  int value = 0;
  for (int i = 0; i < 4; i++) {
    int digit = peek(s) < 0 ? -1 : g_ascii_xdigit_value((char)peek(s));
    if (digit < 0) return -1;
    value = 16 * value + digit;
    take(s);
  }
  return value;
}

static void escape(MsJsonStream *s) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  int c = take(s);
  const char *known = c > 0 ? strchr(from, c) : NULL;
  if (known) g_string_append_c(s->text, to[known - from]);
  else if (c == 'u') {
    int code = hex4(s);
    if (code > 0 && g_unichar_validate((gunichar)code)) g_string_append_unichar(s->text, (gunichar)code);
    else g_string_append_unichar(s->text, 0xfffd); /* half of a pair; nothing that is looked for holds one */
  } else if (c > 0) g_string_append_printf(s->text, "\\%c", c);
}

/* Behind the opening quote. FALSE: it does not end. */
static gboolean read_text(MsJsonStream *s) {
  g_string_truncate(s->text, 0);
  for (int c; (c = take(s)) != '"';) {
    if (c < 0) return FALSE;
    if (s->text->len >= LONGEST) { /* goes by, but for its end */
      if (c == '\\') take(s);
    } else if (c == '\\') escape(s);
    else if (c != 0) g_string_append_c(s->text, (char)c);
  }
  if (g_utf8_validate(s->text->str, (gssize)s->text->len, NULL)) return TRUE;
  g_autofree char *valid = g_utf8_make_valid(s->text->str, (gssize)s->text->len);
  g_string_assign(s->text, valid);
  return TRUE;
}

static gboolean is_word(int c) { return c > 0 && (g_ascii_isalnum((char)c) || strchr("+-.", c) != NULL); }

static MsToken bare(MsJsonStream *s, GError **error) {
  static const char *const words[] = {"true", "false", "null", NULL};
  static const char *const odd[] = {"nan", "inf", "infinity", NULL};
  g_string_truncate(s->text, 0);
  while (is_word(peek(s)) && s->text->len < LONGEST) g_string_append_c(s->text, (char)take(s));
  if (peek(s) < 0) return ended(s, error);
  const char *text = s->text->str, *digits = text + (*text == '-' || *text == '+');
  char *end;
  if (g_strv_contains(words, text)) return MS_TOKEN_WORD;
  for (int i = 0; odd[i]; i++)
    if (g_ascii_strcasecmp(digits, odd[i]) == 0) return MS_TOKEN_NUMBER;
  if (g_ascii_isdigit(*digits) || *digits == '.') {
    g_ascii_strtod(text, &end);
    if (*end == 0 && !strchr(text, 'x') && !strchr(text, 'X')) return MS_TOKEN_NUMBER;
  }
  return wrong(s, error,
               s->text->len > 0 ? "is no JSON: neither a number nor true, false, null"
                                : "is no JSON: a value is missing");
}

/* --- structure ------------------------------------------------------------------------------------------------- */
static MsToken begin(MsJsonStream *s, char kind, GError **error) {
  if (s->depth == DEEPEST) return wrong(s, error, "is nested deeper than 64 levels");
  s->open[s->depth++] = kind;
  s->want = WANT_FIRST;
  return kind == '{' ? MS_TOKEN_OBJECT : MS_TOKEN_LIST;
}

static MsToken end(MsJsonStream *s, int c, GError **error) {
  if (s->depth == 0 || (c == '}') != (s->open[s->depth - 1] == '{')) return wrong(s, error, "is no JSON: a stray end");
  s->depth--;
  s->want = WANT_COMMA;
  return MS_TOKEN_END;
}

static MsToken value(MsJsonStream *s, int c, GError **error) {
  s->want = WANT_COMMA;
  if (c == '{' || c == '[') {
    take(s);
    return begin(s, (char)c, error);
  }
  if (c != '"') return bare(s, error);
  take(s);
  return read_text(s) ? MS_TOKEN_TEXT : ended(s, error);
}

static MsToken key(MsJsonStream *s, int c, GError **error) {
  if (c != '"')
    return wrong(s, error,
                 g_ascii_isdigit((char)c) ? "is no JSON: a number where a key should stand: a decimal comma?"
                                          : "is no JSON: a key in quotes should stand here");
  take(s);
  s->want = WANT_COLON;
  return read_text(s) ? MS_TOKEN_KEY : ended(s, error);
}

MsToken ms_json_stream_next(MsJsonStream *s, GError **error) {
  if (s->failed) return wrong(s, error, "is no JSON");
  int c = after_space(s);
  if (s->want == WANT_COMMA && s->depth == 0) {
    if (s->failed) return wrong(s, error, "");
    return c < 0 ? MS_TOKEN_DONE : wrong(s, error, "is no JSON: something follows the document");
  }
  if (c < 0) return ended(s, error);
  if (s->want == WANT_COLON) {
    if (c != ':') return wrong(s, error, "is no JSON: \":\" should follow a key");
    take(s);
    s->want = WANT_VALUE;
    c = after_space(s);
    return c < 0 ? ended(s, error) : value(s, c, error);
  }
  if (s->want == WANT_COMMA && c == ',') {
    take(s);
    s->want = WANT_FIRST;
    if ((c = after_space(s)) < 0) return ended(s, error);
  } else if (s->want == WANT_COMMA && c != '}' && c != ']')
    return wrong(s, error, "is no JSON: a comma or an end should stand here");
  if (c == '}' || c == ']') {
    if (s->depth == 0) return wrong(s, error, "is no JSON: a stray end");
    take(s);
    return end(s, c, error);
  }
  gboolean keyed = s->depth > 0 && s->open[s->depth - 1] == '{';
  return keyed ? key(s, c, error) : value(s, c, error);
}

MsToken ms_json_stream_skip(MsJsonStream *s, MsToken token, GError **error) {
  int depth = s->depth;
  if (token != MS_TOKEN_OBJECT && token != MS_TOKEN_LIST) return token;
  do token = ms_json_stream_next(s, error);
  while (token < MS_TOKEN_DONE && s->depth >= depth);
  return token;
}
