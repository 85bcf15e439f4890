/* The strict reader, the writer, lines, nearest words, text and statistics. */
#include "lib/close.h"

#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/stats.h"
#include "base/text.h"
#include "lib/data.h"

#include <glib/gstdio.h>
#include <string.h>

static char *message_of(const char *text) {
  GError *error = NULL;
  MsJson *doc = ms_json_parse(text, -1, "f", &error);
  assert_null(doc);
  assert_true(error->domain == MS_ERROR);
  assert_int_equal(error->code, MS_ERROR_INPUT);
  char *message = g_strdup(error->message);
  assert_null(strchr(message, '\n'));
  g_error_free(error);
  return message;
}

static char *rewritten(const char *text, int indent) {
  GError *error = NULL;
  MsJson *doc = ms_json_parse(text, -1, "f", &error);
  if (!doc) fail_msg("%s", error->message);
  MsJsonOut *out = ms_json_out_new(indent);
  ms_json_out_node(out, NULL, ms_json_root(doc));
  ms_json_free(doc);
  return ms_json_out_take(out);
}

static void refuses(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"", "f:1: the file is empty, must hold one JSON value"},
      {" \n ", "f:2: the file is empty, must hold one JSON value"},
      {"{", "f:1: the end of the file where a key in quotes is expected"},
      {"{\"a\"}", "f:1: a: '}' where ':' after a key is expected"},
      {"{\"a\":1,}", "f:1: '}' where a key in quotes is expected"},
      {"{\"a\":1 \"b\":2}", "f:1: '\"' where ',' or '}' is expected"},
      {"[1,]", "f:1: [1]: ']' where a value is expected"},
      {"[1 2]", "f:1: [0]: '2' where ',' or ']' is expected"},
      {"[010]", "f:1: [0]: number with a leading zero, write it in plain decimal"},
      {"[0x10]", "f:1: [0]: number with a leading zero, write it in plain decimal"},
      {"[1.]", "f:1: [0]: ']' where a digit is expected"},
      {"[-]", "f:1: [0]: ']' where a digit is expected"},
      {"[+1]", "f:1: [0]: '+' where a value is expected"},
      {"[1e]", "f:1: [0]: ']' where a digit is expected"},
      {"[1e400]", "f:1: [0]: number 1e400 is too large for a double"},
      {"[9007199254740993]", "f:1: [0]: integer 9007199254740993 is outside +-9007199254740992 (2^53)"},
      {"[99999999999999999999]", "f:1: [0]: integer 99999999999999999999 is outside +-9007199254740992 (2^53)"},
      {"[NaN]", "f:1: [0]: NaN and Infinity are not JSON, write null for an unknown number"},
      {"[tru]", "f:1: [0]: 't' where a value is expected"},
      {"[truex]", "f:1: [0]: 't' where a value is expected"},
      {"{\"a\":1,\n\"a\":2}", "f:2: a: key is given twice, remove one"},
      {"{\"a\":1,\"\\u0061\":2}", "f:1: a: key is given twice, remove one"},
      {"{} {}", "f:1: '{' where the end of the file is expected"},
      {"{'a':1}", "f:1: ''' where a key in quotes is expected"},
      {"/* c */ 1", "f:1: '/' where a value is expected"},
      {"\"a\\u0000b\"", "f:1: \\u0000 in a string, which no key or word may contain"},
      {"\"\\ud800x\"", "f:1: 'x' where the second \\uXXXX of a pair is expected"},
      {"\"\\udc00\"", "f:1: \\udc00 is the second half of a pair without a first"},
      {"\"\\ud800\\u0041\"", "f:1: \\u0041 is not the second half of a pair"},
      {"\"\\q\"", "f:1: 'q' where one of \" \\ / b f n r t u after a backslash is expected"},
      {"\"ab", "f:1: string without a closing quote"},
      {"\"a\nb\"", "f:1: '\\x0a' where the rest of a string (control characters are written \\n, \\t, "
                   "\\u00XX) is expected"},
      {"\xef\xbb\xbf{}", "f:1: begins with a byte order mark, remove it"},
      {"\n\"\xff\"", "f:2: byte 0xff does not belong in UTF-8 text"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    char *message = message_of(cases[i][0]);
    assert_string_equal(message, cases[i][1]);
    g_free(message);
  }
}

static void refuses_depth_and_bytes(void **state) {
  (void)state;
  GError *error = NULL;
  GString *deep = g_string_new(NULL);
  for (int i = 0; i < 100000; i++) g_string_append_c(deep, '[');
  char *message = message_of(deep->str);
  assert_true(g_str_has_suffix(message, ": nested deeper than 64 levels"));
  g_free(message);
  g_string_truncate(deep, 64);
  for (int i = 0; i < 64; i++) g_string_append_c(deep, ']');
  MsJson *doc = ms_json_parse(deep->str, -1, "f", &error);
  assert_non_null(doc);
  ms_json_free(doc);
  g_string_free(deep, TRUE);
  assert_null(ms_json_parse("1\0002", 3, "f", &error));
  assert_string_equal(error->message, "f:1: byte 0x00 does not belong in UTF-8 text");
  g_clear_error(&error);
}

static void refuses_many_keys(void **state) {
  (void)state;
  GString *text = g_string_new("{");
  for (int i = 0; i <= 32768; i++) g_string_append_printf(text, "%s\"%d\":0", i ? "," : "", i);
  g_string_append_c(text, '}');
  char *message = message_of(text->str);
  assert_string_equal(message, "f:1: 32768: object with more than 32768 keys");
  g_free(message);
  g_string_free(text, TRUE);
}

static void environment_errors(void **state) {
  (void)state;
  GError *error = NULL;
  assert_null(ms_json_load("/nonexistent/x.json", &error));
  assert_int_equal(error->code, MS_ERROR_ENV);
  g_clear_error(&error);
  assert_null(ms_json_load("/", &error));
  assert_int_equal(error->code, MS_ERROR_ENV);
  g_clear_error(&error);
  assert_false(ms_write_file("/nonexistent/x", "a", -1, &error));
  assert_int_equal(error->code, MS_ERROR_ENV);
  g_clear_error(&error);
}

static void round_trips(void **state) {
  (void)state;
  static const char *const same[] = {"null",
                                     "true",
                                     "[]",
                                     "{}",
                                     "[[],{}]",
                                     "{\"a\":{\"b\":[1,-2,0.5,\"x\"]}}",
                                     "1e+17",
                                     "0.1",
                                     "-9007199254740992",
                                     "\"\\\"\\\\\\n\\t\\u0001/\"",
                                     "1e-310",
                                     "9007199254740994.0",
                                     "1.7976931348623157e+308"};
  for (guint i = 0; i < G_N_ELEMENTS(same); i++) {
    char *text = rewritten(same[i], 0);
    assert_string_equal(text, same[i]);
    g_free(text);
  }
  char *text = rewritten("[ 1.50 , -0.0, 3.0, \"\\ud83d\\ude00\\/\\u00e9\" ]", 0);
  assert_string_equal(text, "[1.5,0,3,\"\xf0\x9f\x98\x80/\xc3\xa9\"]");
  g_free(text);
}

static void pretty(void **state) {
  (void)state;
  char *text = rewritten("{\"a\":[1,2],\"b\":[[1,2],[3]],\"c\":{},\"d\":[{\"e\":null}]}", 2);
  assert_string_equal(text,
                      "{\n  \"a\": [1, 2],\n  \"b\": [\n    [1, 2],\n    [3]\n  ],\n  \"c\": {},\n  \"d\": [\n    {\n"
                      "      \"e\": null\n    }\n  ]\n}");
  g_free(text);
}

static void long_lists_are_filled(void **state) {
  (void)state;
  MsJsonOut *out = ms_json_out_new(2);
  ms_json_out_array(out, NULL);
  for (int i = 0; i < 1000; i++) ms_json_out_int(out, NULL, i);
  ms_json_out_end(out);
  char *text = ms_json_out_take(out);
  char **lines = g_strsplit(text, "\n", -1);
  for (int i = 0; lines[i]; i++) assert_true(strlen(lines[i]) < 125);
  assert_true(g_strv_length(lines) < 50);
  g_strfreev(lines);
  g_free(text);
}

static void shortest_doubles(void **state) {
  (void)state;
  char buf[32];
  assert_string_equal(ms_double_text(NAN, buf), "null");
  assert_string_equal(ms_double_text(-INFINITY, buf), "null");
  assert_string_equal(ms_double_text(989.5e12, buf), "989500000000000");
  assert_string_equal(ms_double_text(1.0 / 3, buf), "0.3333333333333333");
  GRand *rand = g_rand_new_with_seed(7);
  for (int i = 0; i < 20000; i++) {
    union {
      guint64 bits;
      double value;
    } any = {.bits = (guint64)g_rand_int(rand) << 32 | g_rand_int(rand)};
    if (!isfinite(any.value)) continue;
    char *text = g_strdup_printf("[%s]", ms_double_text(any.value, buf)), *again = rewritten(text, 0);
    assert_string_equal(text, again);
    assert_true(g_ascii_strtod(buf, NULL) == any.value);
    g_free(text);
    g_free(again);
  }
  g_rand_free(rand);
}

static void lines(void **state) {
  (void)state;
  MsJson *doc = ms_json_parse(
      "{\n \"a\": {\n  \"b.c\": [1,\n   {\"d\": \"]}\\\"\"},\n [],\n 5]},\n\n \"\\u0065\": -1e3 }", -1, "f", NULL);
  static const struct {
    const char *path;
    int line;
  } cases[] = {
      {"", 1},           {"a", 2},        {"a.b.c", 3},    {"a.b.c[0]", 3}, {"a.b.c[1]", 4},
      {"a.b.c[1].d", 4}, {"a.b.c[2]", 5}, {"a.b.c[3]", 6}, {"a.b.c[4]", 3}, {"a.x", 2},
      {"x", 1},          {"e", 8},        {"e.f", 8},      {"a.b.c[", 3},   {"a.b.c[99999999999999999999999]", 3}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) assert_int_equal(ms_json_line(doc, cases[i].path), cases[i].line);
  assert_int_equal(ms_json_line(doc, NULL), 1);
  ms_json_free(doc);
}

static void messages_are_one_line(void **state) {
  (void)state;
  GError *error = NULL;
  ms_input_error(&error, "a\nb", 3, "p", "two\nlines\x1b and %s", "\xff");
  assert_string_equal(error->message, "a b:3: p: two lines  and \xef\xbf\xbd");
  g_clear_error(&error);
  char *huge = g_strnfill(100000, 'x');
  ms_input_error(&error, NULL, 0, "", "%s", huge);
  assert_true(strlen(error->message) <= 1000);
  g_clear_error(&error);
  g_free(huge);
  ms_input_error(NULL, NULL, 0, NULL, "nobody listens");
}

static void nearest(void **state) {
  (void)state;
  static const char *const known[] = {"tp", "cp", "pp", "global_batch_size", "fp8_param_gather", "micro_batch_size",
                                      NULL};
  assert_string_equal(ms_nearest("tpp", known), "tp");
  assert_string_equal(ms_nearest("TP", known), "tp");
  assert_string_equal(ms_nearest("ppp", known), "pp");
  assert_string_equal(ms_nearest("cpp", known), "cp");
  assert_string_equal(ms_nearest("global-batch-size", known), "global_batch_size");
  assert_string_equal(ms_nearest("golbal_batch_size", known), "global_batch_size");
  assert_string_equal(ms_nearest("micro_batch", known), "micro_batch_size");
  assert_null(ms_nearest("something else", known));
  assert_null(ms_nearest("", known));
  char *huge = g_strnfill(100000, 'x');
  assert_null(ms_nearest(huge, known));
  g_free(huge);
}

static void assert_suggests(const char *word, const char *const *known, const char *want) {
  g_autofree char *text = ms_suggest(word, known, NULL);
  if (g_strcmp0(text, want) != 0) fail_msg("%s: %s, not %s", word, text ? text : "nothing", want ? want : "nothing");
}

static void suggestions(void **state) {
  (void)state;
  static const char *const models[] = {"deepseek-v2",   "deepseek-v3", "llama3-8b",       "llama3-70b",
                                       "qwen3-30b-a3b", "qwen3-32b",   "qwen3-235b-a22b", NULL};
  static const char *const words[] = {"bf16", "fp8-delayed", "mxfp8", NULL}, *const meanings[] = {"wide", "old", "new",
                                                                                                  NULL};
  assert_suggests("qwen3-30b", models, "did you mean \"qwen3-30b-a3b\"?");
  assert_suggests("Qwen3_30B", models, "did you mean \"qwen3-30b-a3b\"?");
  assert_suggests("deepseek", models, "did you mean \"deepseek-v2\" or \"deepseek-v3\"?");
  assert_suggests("235b", models, "did you mean \"qwen3-235b-a22b\"?");
  assert_suggests("lama3-8b", models, "did you mean \"llama3-8b\"?");
  assert_suggests("llama4-maverick", models, "did you mean \"llama3-8b\" or \"llama3-70b\"?");
  assert_suggests("mixtral", models, NULL);
  assert_suggests("llama-8b", models, "did you mean \"llama3-8b\"?");
  assert_suggests("llamax-0b", models, "did you mean \"llama3-8b\" or \"llama3-70b\"?");
  static const char *const machines[] = {"h200-nvl", "h200-sxm", "h100-sxm", "mi300x", NULL};
  assert_suggests("2 nodes of 8 H200", machines, "did you mean \"h200-nvl\" or \"h200-sxm\"?");
  assert_suggests("H100-80GB", machines, "did you mean \"h100-sxm\"?");
  assert_suggests("8 of them", machines, NULL);
  assert_suggests("", models, NULL);
  g_autofree char *explained = ms_suggest("fp8", words, meanings);
  assert_string_equal(explained, "did you mean \"fp8-delayed\" (old) or \"mxfp8\" (new)?");
  g_autofree char *huge = g_strnfill(100000, 'x');
  assert_suggests(huge, models, NULL);
}

static void quantities(void **state) {
  (void)state;
  static const struct {
    const char *text, *unit;
    gboolean whole;
    double want; /* NAN: refused */
  } cases[] = {
      {"200Gb/s", "Bps", FALSE, 25e9},
      {"200 GB/s", "Bps", FALSE, 200e9},
      {"3.35TB/s", "Bps", FALSE, 3.35e12},
      {"1GiB/s", "Bps", FALSE, 1073741824},
      {"400Gbps", "Bps", FALSE, 50e9},
      {"200", "Bps", FALSE, 200},
      {"200G", "Bps", FALSE, NAN},
      {"25GB", "Bps", FALSE, NAN},
      {"200gb/s", "Bps", FALSE, NAN},
      {"141GB", "B", FALSE, 141e9},
      {"80GiB", "B", FALSE, 80 * 0x1p30},
      {"80Gb", "B", FALSE, NAN},
      {"141GB", "GiB", FALSE, 141e9 / 0x1p30},
      {"989.5TFLOPS", "flops", FALSE, 989.5e12},
      {"2.25 PFLOP/s", "flops", FALSE, 2.25e15},
      {"450TFLOP/s", "TFLOP/s", FALSE, 450},
      {"5us", "s", FALSE, 5e-6},
      {"2h", "s", FALSE, 7200},
      {"10m", "s", FALSE, 600},
      {"10min", "s", FALSE, 600},
      {"30d", "s", FALSE, 2592000},
      {"36h", "d", FALSE, 1.5},
      {"1ks", "s", FALSE, 1000},
      {"1kmin", "s", FALSE, NAN},
      {"1.98GHz", "Hz", FALSE, 1.98e9},
      {"0.7kW", "W", FALSE, 700},
      {"8k", "tokens", TRUE, 8192},
      {"1M", "tokens", TRUE, 1048576},
      {"4Ki", "tokens", TRUE, 4096},
      {"1.5k", "tokens", TRUE, 1536},
      {"1.3k", "tokens", TRUE, NAN},
      {"4Mi", "", TRUE, 4194304},
      {"8k", "", TRUE, NAN},
      {"15T", "", FALSE, 15e12},
      {"8E", "", FALSE, 8e18},
      {"8e2", "", TRUE, 800},
      {"8e2k", "tokens", TRUE, 819200},
      {"0x10", "", TRUE, NAN},
      {"-5", "", TRUE, NAN},
      {"", "", TRUE, NAN},
      {"k", "tokens", TRUE, NAN},
      {"inf", "", FALSE, NAN},
      {"1e400", "", FALSE, NAN},
      {"1e300EB", "B", FALSE, NAN},
      {"5  us", "s", FALSE, NAN},
      {"5 ", "s", FALSE, NAN},
      {"5us ", "s", FALSE, NAN},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *why = NULL;
    double value = 0;
    gboolean ok = ms_quantity_parse(cases[i].text, cases[i].unit, cases[i].whole, &value, &why);
    if (ok != !why || ok != isfinite(cases[i].want) || (ok && fabs(value - cases[i].want) > 1e-15 * cases[i].want))
      fail_msg("\"%s\" in %s: %g, %s", cases[i].text, cases[i].unit, value, why ? why : "taken");
  }
  g_autofree char *rate = ms_quantity_meant(200, "Bps", 1e6, 1e15), *count = ms_quantity_meant(200, "", 1, 10);
  assert_string_equal(rate, "\"200GB/s\" or \"200Gb/s\"");
  assert_null(count);
}

static void human_text(void **state) {
  (void)state;
  char buf[MS_TEXT];
  assert_string_equal(ms_text_bytes(0, buf), "0 B");
  assert_string_equal(ms_text_bytes(1536, buf), "1.50 KiB");
  assert_string_equal(ms_text_bytes(1024.0 * 1024 * 1024 - 1, buf), "1.00 GiB");
  assert_string_equal(ms_text_bytes(NAN, buf), "unknown");
  assert_string_equal(ms_text_seconds(12.345678, buf), "12.35 s");
  assert_string_equal(ms_text_seconds(4.56e-6, buf), "4.56 us");
  assert_string_equal(ms_text_seconds(0, buf), "0 s");
  assert_string_equal(ms_text_seconds(-0.0032, buf), "-3.20 ms");
  assert_string_equal(ms_text_count(671.026e9, buf), "671.03 G");
  assert_string_equal(ms_text_count(12, buf), "12");
  assert_string_equal(ms_text_seconds(-1e-15, buf), "0 s"); /* what rounding left */
  assert_string_equal(ms_text_percent(-1e-9, buf), "0.0 %");
  assert_string_equal(ms_text_percent(0.4187, buf), "41.9 %");
  static const double odd[] = {1e308, -1e308, 5e-324, INFINITY};
  for (guint i = 0; i < G_N_ELEMENTS(odd); i++) {
    assert_true(strlen(ms_text_bytes(odd[i], buf)) < MS_TEXT && strlen(ms_text_seconds(odd[i], buf)) < MS_TEXT);
    assert_true(strlen(ms_text_count(odd[i], buf)) < MS_TEXT && strlen(ms_text_percent(odd[i], buf)) < MS_TEXT);
  }
}

static void tables(void **state) {
  (void)state;
  MsTable *table = ms_table_new();
  ms_table_column(table, "name", FALSE);
  ms_table_column(table, "time", TRUE);
  ms_table_cell(table, "gr\xc3\xb6\xc3\x9f"
                       "er");
  ms_table_cellf(table, "%d", 7);
  ms_table_cell(table, "b");
  ms_table_cell(table, "");
  ms_table_cell(table, "last");
  char *text = ms_table_take(table);
  assert_string_equal(text, "name    time\ngr\xc3\xb6\xc3\x9f"
                            "er     7\nb\nlast\n");
  g_free(text);
}

/* A table that is too wide has titles of two lines, then single blanks; else rows of several lines, none of them empty.
 */
static void wide_tables(void **state) {
  (void)state;
  static const struct {
    int columns;
    const char *head, *holds; /* how it begins; what is in it */
  } cases[] = {{6, "row  tokens/s/GPU", "\na            1234"},
               {9, "     tokens  tokens", "\nrow  /s/GPU  /s/GPU"},
               {14, "    tokens tokens", "\nrow /s/GPU /s/GPU"},
               {20, "row  tokens/s/GPU", "\na            1234"}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    MsTable *table = ms_table_of("row");
    for (int c = 1; c < cases[i].columns; c++) ms_table_column(table, "tokens/s/GPU", TRUE);
    ms_table_cell(table, "a");
    for (int c = 1; c < cases[i].columns; c++) ms_table_cell(table, "1234");
    ms_table_cell(table, "b");
    for (int c = 1; c < cases[i].columns; c++) ms_table_cell(table, "");
    g_autofree char *text = ms_table_take(table);
    g_auto(GStrv) line = g_strsplit(text, "\n", -1);
    if (!g_str_has_prefix(line[0], cases[i].head)) fail_msg("%d columns:\n%s", cases[i].columns, text);
    if (!strstr(text, cases[i].holds)) fail_msg("%d columns, no %s:\n%s", cases[i].columns, cases[i].holds, text);
    for (int l = 0; line[l]; l++)
      if (strlen(line[l]) > MS_TEXT_COLUMNS || (!*line[l] && line[l + 1])) fail_msg("line %d of\n%s", l, text);
  }
}

/* Nothing is lost and nothing is wider than it may be; what fits stays as it is. */
static void folded_lines(void **state) {
  (void)state;
  static const char text[] =
      "short  and  spaced\n"
      "  label      words words words words words words words words words words words words words words words words\n"
      "plain words words words words words words words words words words words words words words words words words\n"
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa|bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb,cccccccc\n"
      "ddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd end";
  g_autofree char *got = ms_text_folded(text);
  assert_string_equal(
      got, "short  and  spaced\n"
           "  label      words words words words words words words words words words words words words words\n"
           "             words words\n"
           "plain words words words words words words words words words words words words words words words\n"
           "  words words\n"
           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa|bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb,\n"
           "  cccccccc\n"
           "ddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd\n"
           "  end");
  g_autofree char *coloured = ms_text_folded("\033[1mbold\033[0m");
  assert_string_equal(coloured, "\033[1mbold\033[0m");
  char buf[MS_TEXT];
  assert_string_equal(ms_text_tokens(15e12, buf), "15T");
  assert_string_equal(ms_text_tokens(1.28e9, buf), "1.28G");
  assert_string_equal(ms_text_tokens(999, buf), "999");
}

static void statistics(void **state) {
  (void)state;
  double values[] = {3, 1, 2, 4};
  assert_close(ms_quantile(values, 4, 0.5), 2.5, 1e-15);
  assert_close(ms_quantile(values, 4, 1), 4, 0);
  assert_close(ms_quantile(values, 4, 0), 1, 0);
  assert_close(ms_quantile(values, 1, 0.9), 1, 0);
  assert_true(isnan(ms_quantile(values, 0, 0.5)));
  assert_close(ms_expected_blocks(256, 8, 8), 8 * (1 - 0.3364), 2e-2);
  assert_close(ms_expected_blocks(4, 2, 2), 2 * (1 - 1.0 / 6), 1e-15); /* C(2,2)/C(4,2) = 1/6 */
  assert_close(ms_expected_blocks(16, 16, 4), 4, 0);
  assert_close(ms_expected_blocks(16, 1, 4), 1, 1e-15);
  assert_close(ms_expected_fullest(8, 2, 4), 8.0 / 7, 1e-14); /* 4 of 28 pairs share a block */
  assert_close(ms_expected_fullest(12, 3, 4), 84.0 / 55, 1e-14);
  assert_close(ms_expected_fullest(16, 4, 4), 1.9692307692307693, 1e-14); /* all 1820 choices counted one by one */
  assert_close(ms_expected_fullest(16, 4, 16), 1, 1e-14);
  assert_close(ms_expected_fullest(256, 256, 8), 32, 1e-12);
  assert_close(ms_expected_blocks(1e6, 5000, 10), ms_expected_blocks(1e6, 5000.0000001, 10), 1e-9);
}

static void files(void **state) {
  (void)state;
  GError *error = NULL;
  char *path = ms_test_data_path("out.json"), *text = NULL;
  assert_true(ms_write_file(path, "one\n", -1, &error));
  assert_true(ms_write_file(path, "two\nrest", 4, &error));
  assert_true(g_file_get_contents(path, &text, NULL, NULL));
  assert_string_equal(text, "two\n");
  assert_true(ms_write_file("/dev/null", "x", -1, &error));
  g_free(text);
  g_free(path);
  ms_progress_end(NULL);
  ms_progress_update(NULL, 1, NULL);
}

/* Short numbers do not go through strtod, and must not differ from it in a bit. */
static void numbers_as_strtod_reads_them(void **state) {
  (void)state;
  GRand *rand = g_rand_new_with_seed(11);
  for (int i = 0; i < 40000; i++) {
    char text[64];
    int digits = g_rand_int_range(rand, 1, 19), n = 0, point = g_rand_int_range(rand, 0, digits + 1);
    if (g_rand_boolean(rand)) text[n++] = '-';
    if (point == 0) text[n++] = '0', text[n++] = '.';
    for (int d = 0; d < digits; d++) {
      if (d == point && d > 0) text[n++] = '.';
      gboolean first = d == 0 && point > 1;
      text[n++] = (char)('0' + g_rand_int_range(rand, first, 10));
    }
    text[n] = '\0';
    if (i % 5 == 0) g_snprintf(text + n, sizeof text - (gsize)n, "e%d", g_rand_int_range(rand, -30, 30));
    if (!strpbrk(text, ".e")) continue; /* an integer */
    GError *error = NULL;
    MsJson *doc = ms_json_parse(text, -1, "f", &error);
    if (!doc) fail_msg("%s", error->message);
    double is = json_node_get_double(ms_json_root(doc)), must_be = g_ascii_strtod(text, NULL);
    if (must_be == 0) must_be = 0.0; /* no -0 */
    if (memcmp(&is, &must_be, sizeof is) != 0) fail_msg("%s is read as %.17g", text, is);
    ms_json_free(doc);
  }
  g_rand_free(rand);
}

typedef struct {
  double value[8];
  guint n;
} Taken;

static gboolean take_list(MsJsonCursor *cursor, gpointer user) {
  Taken *taken = user;
  const double *value = ms_json_take_numbers(cursor, &taken->n);
  if (value) memcpy(taken->value, value, MIN(taken->n, G_N_ELEMENTS(taken->value)) * sizeof *value);
  return value != NULL;
}

/* Whether the text is taken by `take`; *doc is left without a tree. */
static gboolean taken(const char *text, MsJsonTake take, gpointer user, MsJson **doc) {
  g_autofree char *file = ms_test_data_path("taken.json");
  assert_true(g_file_set_contents(file, text, -1, NULL));
  *doc = ms_json_open(file, NULL);
  assert_non_null(*doc);
  assert_null(ms_json_root(*doc));
  return ms_json_take(*doc, take, user);
}

static void takes_numbers_as_the_tree_does(void **state) {
  (void)state;
  static const char *const texts[] = {" [0.25, -0.5,\n -0.0, 7, 1e-3, 0.1234567890123456789 ,-12.75]\n",
                                      "[1]",
                                      "[1.5, 2.5]",
                                      "[]",
                                      "[1.5,]",
                                      "[,1.5]",
                                      "[1.5, \"x\"]",
                                      "[1.5 2]",
                                      "[01.5]",
                                      "[1.]",
                                      "[.5]",
                                      "[-]",
                                      "[1.5.2]",
                                      "[1e400]",
                                      "[1.5, nan]",
                                      "[1.5}",
                                      "[1.5, +1]",
                                      "[1.5",
                                      "[1.5, 00.5]",
                                      "3",
                                      "[1.5] [1.5]",
                                      "[1.5] x",
                                      "[[1.5]]",
                                      "",
                                      "{}",
                                      "[1.5, ]",
                                      "[9007199254740993]"};
  for (guint i = 0; i < G_N_ELEMENTS(texts); i++) {
    Taken list = {.n = 0};
    g_autoptr(MsJson) doc = NULL;
    gboolean is = taken(texts[i], take_list, &list, &doc);
    assert_int_equal(is, i < 3);
    if (!is) continue;
    assert_true(ms_json_build(doc, NULL));
    JsonArray *array = json_node_get_array(ms_json_root(doc));
    assert_int_equal(list.n, json_array_get_length(array));
    for (guint k = 0; k < list.n; k++) {
      double must_be = json_array_get_double_element(array, k);
      assert_memory_equal(&list.value[k], &must_be, sizeof must_be);
    }
  }
}

static gboolean take_pair(MsJsonCursor *cursor, gpointer user) {
  MsJsonWord key, text;
  gboolean more;
  if (!ms_json_take_open(cursor, '{', &more) || !more || !ms_json_take_key(cursor, &key) ||
      !ms_json_word_is(&key, "key") || !ms_json_take_string(cursor, &text) || !ms_json_take_next(cursor, '{', &more) ||
      more)
    return FALSE;
  *(char **)user = ms_json_word_text(&text);
  return TRUE;
}

/* Of a string without escapes every byte, wherever it ends. */
static void takes_strings(void **state) {
  (void)state;
  for (int n = 0; n < 40; n++)
    for (int bad = 0; bad < 4; bad++) {
      static const char *const ends[] = {"", "\\n", "\t", "\x1f"};
      g_autofree char *body = g_strnfill((gsize)n, 'a'), *text = NULL;
      g_autofree char *json = g_strdup_printf("{\"key\" : \"%s%s\xc3\xa4\x7f\"}", body, ends[bad]);
      g_autoptr(MsJson) doc = NULL;
      assert_int_equal(taken(json, take_pair, &text, &doc), bad == 0);
      if (bad == 0) assert_true(g_str_has_prefix(text, body) && strlen(text) == (gsize)n + 3);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(takes_numbers_as_the_tree_does),
      cmocka_unit_test(takes_strings),
      cmocka_unit_test(numbers_as_strtod_reads_them),
      cmocka_unit_test(refuses),
      cmocka_unit_test(refuses_depth_and_bytes),
      cmocka_unit_test(refuses_many_keys),
      cmocka_unit_test(environment_errors),
      cmocka_unit_test(round_trips),
      cmocka_unit_test(pretty),
      cmocka_unit_test(long_lists_are_filled),
      cmocka_unit_test(shortest_doubles),
      cmocka_unit_test(lines),
      cmocka_unit_test(messages_are_one_line),
      cmocka_unit_test(nearest),
      cmocka_unit_test(suggestions),
      cmocka_unit_test(quantities),
      cmocka_unit_test(human_text),
      cmocka_unit_test(tables),
      cmocka_unit_test(wide_tables),
      cmocka_unit_test(folded_lines),
      cmocka_unit_test(statistics),
      cmocka_unit_test(files),
  };
  return cmocka_run_group_tests(tests, ms_test_data_setup, ms_test_data_teardown);
}
