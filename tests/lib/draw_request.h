/* tests/lib/draw_request.h - random plan requests as JSON: a model cut to a few layers on a few GPUs, options of every
 * kind, and keys that a request may leave open, with values for them. Seeded, so that a failure comes again. */
#ifndef MS_TESTS_DRAW_REQUEST_H
#define MS_TESTS_DRAW_REQUEST_H

#include "base/json.h"

/* One layout with all keys settled; not every one can run. (transfer full) */
JsonNode *ms_draw_request(GRand *rand);

typedef struct {
  const char *section, *key; /* "options", "dispatcher"; static text */
  JsonArray *values;         /* two or three, different, in random order; owned */
} MsDrawnKey;
MsDrawnKey ms_draw_key(GRand *rand);
void ms_drawn_key_clear(MsDrawnKey *key);

/* Writes a value (copied) into a section of the request, which must be there. */
void ms_request_put(JsonNode *request, const char *section, const char *key, JsonNode *value);
void ms_request_put_text(JsonNode *request, const char *section, const char *key, const char *json);

#endif
