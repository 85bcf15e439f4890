/* src/base/quantity.c - numbers with a unit. */
#include "base/quantity.h"

#include "base/json.h"
#include "base/units.h"

#include <math.h>
#include <string.h>

typedef struct {
  const char *text;
  double factor;  /* to the unit of the dimension, without a prefix */
  gboolean plain; /* takes no prefix */
} Word;

typedef struct {
  const char *unit, *is, *example;
  const char *const *meant; /* suffixes that people leave out */
  Word words[9];            /* a NULL behind the last */
} Dimension;

#define MEANT(...) \
  (const char *const[]) { __VA_ARGS__, NULL }
static const Dimension dimensions[] = {
    {"Bps",
     "a rate",
     "200GB/s\" or \"200Gb/s",
     MEANT("GB/s", "Gb/s"),
     {{"B/s", 1}, {"Bps", 1}, {"b/s", 0.125}, {"bps", 0.125}, {"bit/s", 0.125}}},
    {"B", "a size in bytes", "80GB\" or \"80GiB", MEANT("GB"), {{"B", 1}}},
    {"flops",
     "a rate of floating-point operations",
     "989TFLOPS",
     MEANT("TFLOPS"),
     {{"FLOPS", 1}, {"FLOP/s", 1}, {"flops", 1}, {"flop/s", 1}}},
    {"s",
     "a time",
     "5us\", \"2h\" or \"30d",
     MEANT("us", "ms"),
     {{"s", 1},
      {"ms", 1e-3, TRUE},
      {"us", 1e-6, TRUE},
      {"ns", 1e-9, TRUE},
      {"m", 60, TRUE},
      {"min", 60, TRUE},
      {"h", 3600, TRUE},
      {"d", MS_DAY_S, TRUE}}},
    {"Hz", "a frequency", "1.98GHz", MEANT("GHz", "MHz"), {{"Hz", 1}}},
    {"W", "a power", "700W", MEANT("W"), {{"W", 1}}},
    {"bit", "a size in bits", "8Gb", MEANT("Gb"), {{"b", 1}, {"bit", 1}}},
};
/* Units that are others by a factor. */
static const struct {
  const char *unit, *of;
  double factor;
} scaled[] = {{"d", "s", MS_DAY_S}, {"GiB", "B", 1024.0 * 1024 * 1024}, {"TFLOP/s", "flops", 1e12}};

static const struct {
  const char *text;
  double factor;
} prefixes[] = {{"k", 1e3},     {"K", 1e3},     {"M", 1e6},    {"G", 1e9},      {"T", 1e12},
                {"P", 1e15},    {"E", 1e18},    {"Ki", 1024},  {"Mi", 1048576}, {"Gi", 1073741824},
                {"Ti", 0x1p40}, {"Pi", 0x1p50}, {"Ei", 0x1p60}};

/* Characters of the number at the start: 12, 1.5, 2e9; "8E" is eight and a prefix. */
static size_t number_length(const char *text) {
  size_t n = strspn(text, "0123456789");
  if (text[n] == '.' && (n > 0 || g_ascii_isdigit(text[1]))) n += 1 + strspn(text + n + 1, "0123456789");
  size_t sign = n > 0 && (text[n] == 'e' || text[n] == 'E') ? n + 1 + (text[n + 1] == '+' || text[n + 1] == '-') : 0;
  if (sign && g_ascii_isdigit(text[sign])) n = sign + strspn(text + sign, "0123456789");
  return n;
}

gboolean ms_quantity_has_suffix(const char *text) {
  size_t n = number_length(text);
  return n > 0 && text[n] != '\0';
}

/* The factor of the first `length` characters as a prefix, 1 for none of them, 0 for an unknown one. */
static double prefix_factor(const char *text, size_t length) {
  if (length == 0) return 1;
  for (guint i = 0; i < G_N_ELEMENTS(prefixes); i++)
    if (strlen(prefixes[i].text) == length && strncmp(text, prefixes[i].text, length) == 0) return prefixes[i].factor;
  return 0;
}

/* What one `suffix` is in the unit of that dimension; 0 when it is none. */
static double suffix_factor(const Dimension *d, const char *suffix) {
  size_t n = strlen(suffix);
  for (const Word *w = d->words; w->text; w++) {
    size_t length = strlen(w->text);
    if (n < length || strcmp(suffix + n - length, w->text) != 0 || (w->plain && n > length)) continue;
    double factor = prefix_factor(suffix, n - length);
    if (factor > 0) return factor * w->factor;
  }
  return 0;
}

static const Dimension *dimension_of(const char *unit, double *factor) {
  *factor = 1;
  for (guint i = 0; i < G_N_ELEMENTS(scaled); i++)
    if (strcmp(scaled[i].unit, unit) == 0) unit = scaled[i].of, *factor = scaled[i].factor;
  for (guint i = 0; i < G_N_ELEMENTS(dimensions); i++)
    if (strcmp(dimensions[i].unit, unit) == 0) return &dimensions[i];
  return NULL;
}

static const Dimension *dimension_with(const char *suffix) {
  for (guint i = 0; i < G_N_ELEMENTS(dimensions); i++)
    if (suffix_factor(&dimensions[i], suffix) > 0) return &dimensions[i];
  return NULL;
}

static gboolean refused(char **why, char *text) {
  *why = text;
  return FALSE;
}

static gboolean wrong_suffix(const char *text, const char *suffix, const Dimension *wanted, char **why) {
  const Dimension *other = dimension_with(suffix);
  const char *is = other                                                 ? other->is
                   : wanted && prefix_factor(suffix, strlen(suffix)) > 0 ? "a number without a unit"
                                                                         : "in an unknown unit";
  if (!wanted)
    return refused(
        why,
        g_strdup_printf("\"%.40s\" is %s, must be a number, alone or with k, M, G, T (1000s) or Ki, Mi, Gi, Ti (1024s)",
                        text, is));
  return refused(why,
                 g_strdup_printf("\"%.40s\" is %s, must be %s such as \"%s\"", text, is, wanted->is, wanted->example));
}

/* A count: "4Mi", "15T"; of whole things only where one reading is right. */
static gboolean parse_count(const char *text, double number, const char *suffix, const char *unit, gboolean whole,
                            double *value, char **why) {
  double factor = prefix_factor(suffix, strlen(suffix));
  gboolean tokens = strcmp(unit, "tokens") == 0, decimal = strlen(suffix) == 1;
  if (factor == 0) return wrong_suffix(text, suffix, NULL, why);
  double binary = decimal ? prefix_factor((char[]){suffix[0] == 'k' ? 'K' : suffix[0], 'i', '\0'}, 2) : factor;
  if (tokens) factor = binary;
  else if (whole && decimal)
    return refused(
        why, g_strdup_printf("\"%.40s\" may be %.0f or %.0f: write out which", text, number * factor, number * binary));
  *value = number * factor;
  return TRUE;
}

gboolean ms_quantity_parse(const char *text, const char *unit, gboolean whole, double *value, char **why) {
  size_t n = number_length(text);
  g_autofree char *digits = g_strndup(text, n);
  double number = g_ascii_strtod(digits, NULL), factor;
  const char *suffix = text + n + (text[n] == ' ' && text[n + 1]);
  const Dimension *d = dimension_of(unit ? unit : "", &factor);
  if (n == 0 || !isfinite(number)) return refused(why, g_strdup_printf("\"%.40s\" is not a number", text));
  *value = number;
  if (*suffix && !d && !parse_count(text, number, suffix, unit ? unit : "", whole, value, why)) return FALSE;
  if (*suffix && d) {
    double per = suffix_factor(d, suffix);
    if (per == 0) return wrong_suffix(text, suffix, d, why);
    *value = number * per / factor;
  }
  if (whole && *value != floor(*value)) return refused(why, g_strdup_printf("\"%.40s\" is not a whole number", text));
  return isfinite(*value) || refused(why, g_strdup_printf("\"%.40s\" is too large", text));
}

char *ms_quantity_meant(double value, const char *unit, double lo, double hi) {
  double factor;
  const Dimension *d = dimension_of(unit ? unit : "", &factor);
  GString *out = g_string_new(NULL);
  char number[32];
  for (guint i = 0; d && value > 0 && d->meant[i]; i++) {
    double meant = value * suffix_factor(d, d->meant[i]) / factor;
    if (meant >= lo && meant <= hi && meant != value)
      g_string_append_printf(out, "%s\"%s%s\"", out->len ? " or " : "", ms_double_text(value, number), d->meant[i]);
  }
  return g_string_free(out, out->len == 0);
}

double ms_round_digits(double value, int digits) {
  if (value == 0 || !isfinite(value)) return value;
  char text[40];
  g_ascii_formatd(text, sizeof text, digits == 3 ? "%.3g" : digits == 4 ? "%.4g" : "%.5g", value);
  return g_ascii_strtod(text, NULL);
}
