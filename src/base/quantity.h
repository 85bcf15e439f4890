/* src/base/quantity.h - numbers with a unit, as people write them: "200Gb/s", "141 GB", "8k", "1.98GHz".
 *
 * The units are those of base/units.h as field tables spell them. k, M, G, T, P, E are powers of 1000, Ki ... Ei of
 * 1024; bits per second become bytes per second. Tokens of a sequence go by 1024 ("8k" = 8192), as everybody counts
 * them. */
#ifndef MS_BASE_QUANTITY_H
#define MS_BASE_QUANTITY_H

#include <glib.h>

/* Whether `text` ends in anything but a number: a unit, a prefix, a word. */
gboolean ms_quantity_has_suffix(const char *text);
/* `text` in `unit` ("" or NULL: a count) into *value; `whole`: a count of things, in which "8k" might be 8000 or 8192
 * and is refused. A bare number is taken as it is. Else FALSE and in *why what is wrong and what would be right, to
 * follow the name of the key. (transfer full) */
gboolean ms_quantity_parse(const char *text, const char *unit, gboolean whole, double *value, char **why);
/* What a number outside of [lo, hi] was probably meant to be: "\"200GB/s\"", or NULL. (transfer full) */
char *ms_quantity_meant(double value, const char *unit, double lo, double hi);
/* `value` to 3, 4 or else 5 significant digits. */
double ms_round_digits(double value, int digits);

#endif
