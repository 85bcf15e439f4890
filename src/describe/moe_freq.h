/* src/describe/moe_freq.h - which layers are MoE, as Megatron's --moe-layer-freq writes
 * it. */
#ifndef MS_DESCRIBE_MOE_FREQ_H
#define MS_DESCRIBE_MOE_FREQ_H

#include <glib.h>

/* Reads "[0]*3+[1]*58", "([0]+[1]*3)*4", "[0,1,1]" or "2" (every second layer, the first included) into
 * `layer`, at most `max` entries; a lone integer fills `max`. The number of layers, or -1 with the reason in
 * `why`. */
int ms_moe_freq_parse(const char *text, guint8 *layer, int max, char *why, size_t size);

/* The same for values from 0 to `most` (at most 255), "[0]*2+[4]+[128,4]*20": no lone integer. */
int ms_layer_list_parse(const char *text, guint8 *layer, int max, int most, char *why, size_t size);

#endif
