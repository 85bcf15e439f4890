/* src/layout/pipeline_layout.c - the string that says which layers stand on which virtual stage (docs/theory/layouts.md
 * 5).
 *
 *   E embedding   t decoder layer   m MTP block   L head and loss   | next virtual stage   , ignored
 *   (body)*k  the body k times, no nesting         x*k  one letter or bar k times
 *
 * The string is walked, never expanded: `(` remembers where the body starts and `)*k` multiplies what it added, or goes
 * back there to write the stages. Sums are capped and so is the number of characters walked: a hostile string costs
 * little. */
#include "layout/internal.h"

#include <string.h>

enum { MAX_CHARS_WALKED = 1000000 };

typedef struct {
  const char *text;
  size_t at;                        /* next character */
  int walked;                       /* characters looked at, repeats included */
  size_t group;                     /* start of the body of the open group, 0 = none open */
  int rounds;                       /* that the body has been walked, this one included */
  gboolean plain;                   /* E stands before the group: its rounds are alike unless it has MTP blocks or L */
  int stages_before, layers_before; /* the group */
  gboolean begun, ended;            /* E seen, L seen */
  MsPipelineScan *scan;
  MsChunk *chunk; /* current, NULL when only counting */
  char *why;
  size_t size;
} Walk;

static char peek(Walk *walk) {
  while (walk->text[walk->at] == ',') {
    walk->at++;
    walk->walked++;
  }
  return walk->text[walk->at];
}

/* Names the last character that was read, counted from 1. */
static gboolean refuse_here(const Walk *walk, const char *what) {
  return ms_refuse(walk->why, walk->size, "pipeline layout: %s at character %zu", what, walk->at);
}

/* The k of `*k` at the cursor; 1 when there is no `*` and none is required. FALSE: refused. */
static gboolean read_repeat(Walk *walk, int *repeat) {
  *repeat = 1;
  if (peek(walk) != '*') return TRUE;
  walk->at++;
  if (!g_ascii_isdigit(peek(walk))) return refuse_here(walk, "'*' without a number");
  int k = 0;
  while (g_ascii_isdigit(peek(walk))) {
    k = 10 * k + (walk->text[walk->at++] - '0');
    walk->walked++;
    if (k > MS_MAX_STRING_LAYERS) return refuse_here(walk, "a repeat above 100000");
  }
  if (k == 0) return refuse_here(walk, "a repeat of 0");
  if (peek(walk) == '*') return refuse_here(walk, "a repeat of a repeat");
  *repeat = k;
  return TRUE;
}

static gboolean next_stages(Walk *walk, int count) {
  MsPipelineScan *scan = walk->scan;
  if (count > MS_MAX_VIRTUAL_STAGES - scan->virtual_stages) return refuse_here(walk, "more than 100000 virtual stages");
  scan->virtual_stages += count;
  if (walk->chunk)
    for (int i = 0; i < count; i++) (++walk->chunk)->first_layer = scan->layers;
  return TRUE;
}

static gboolean add_layers(Walk *walk, int count) {
  MsPipelineScan *scan = walk->scan;
  if (scan->mtp > 0) return refuse_here(walk, "a decoder layer after an MTP block");
  if (count > MS_MAX_STRING_LAYERS - scan->layers) return refuse_here(walk, "more than 100000 layers");
  scan->layers += count;
  if (walk->chunk) walk->chunk->num_layers += count;
  return TRUE;
}

static gboolean add_mtp(Walk *walk, int count) {
  MsPipelineScan *scan = walk->scan;
  int here = scan->virtual_stages - 1;
  if (scan->mtp_stage >= 0 && scan->mtp_stage != here) return refuse_here(walk, "MTP blocks in two virtual stages");
  if (count > MS_MAX_STRING_LAYERS - scan->mtp) return refuse_here(walk, "more than 100000 MTP blocks");
  scan->mtp_stage = here;
  scan->mtp += count;
  if (walk->chunk) walk->chunk->num_mtp += count;
  return TRUE;
}

static gboolean add(Walk *walk, char letter, int count) {
  if (walk->ended) return refuse_here(walk, "something after L");
  if (!walk->begun && letter != 'E') return refuse_here(walk, "E does not come first");
  if (letter == '|') return next_stages(walk, count);
  if (letter == 't') return add_layers(walk, count);
  if (letter == 'm') return add_mtp(walk, count);
  if (count > 1 || (letter == 'E' && walk->begun)) return refuse_here(walk, "more than one E or L");
  if (letter == 'E') walk->begun = TRUE;
  if (letter == 'L') walk->ended = TRUE;
  if (walk->chunk && letter == 'E') walk->chunk->has_embedding = TRUE;
  if (walk->chunk && letter == 'L') walk->chunk->has_loss = TRUE;
  return TRUE;
}

/* The remaining rounds of a group of decoders and bars at once, when only sums are wanted. */
static gboolean add_rounds(Walk *walk, int rounds) {
  MsPipelineScan *scan = walk->scan;
  gint64 stages = scan->virtual_stages + (gint64)rounds * (scan->virtual_stages - walk->stages_before);
  gint64 layers = scan->layers + (gint64)rounds * (scan->layers - walk->layers_before);
  gint64 walked =
      walk->walked + rounds * (gint64)(walk->at - walk->group); /* as if, so that writing stays in bounds too */
  if (layers > MS_MAX_STRING_LAYERS) return refuse_here(walk, "more than 100000 layers");
  if (stages > MS_MAX_VIRTUAL_STAGES) return refuse_here(walk, "more than 100000 virtual stages");
  if (walked > MAX_CHARS_WALKED) return refuse_here(walk, "too many repeats");
  scan->virtual_stages = (int)stages;
  scan->layers = (int)layers;
  walk->walked = (int)walked;
  walk->group = 0;
  return TRUE;
}

static gboolean close_group(Walk *walk) { /* the cursor is behind ')' */
  int repeat;
  if (!walk->group) return refuse_here(walk, "')' without '('");
  if (walk->group + 1 == walk->at) return refuse_here(walk, "an empty group");
  if (peek(walk) != '*') return refuse_here(walk, "a group without *k");
  if (!read_repeat(walk, &repeat)) return FALSE;
  if (!walk->chunk && walk->plain && walk->scan->mtp == 0 && !walk->ended) return add_rounds(walk, repeat - 1);
  if (walk->rounds++ < repeat) walk->at = walk->group;
  else walk->group = 0;
  return TRUE;
}

static gboolean step(Walk *walk) {
  char letter = walk->text[walk->at++];
  int repeat;
  if (letter == '(') {
    if (walk->group) return refuse_here(walk, "a group inside a group");
    walk->group = walk->at;
    walk->rounds = 1;
    walk->plain = walk->begun;
    walk->stages_before = walk->scan->virtual_stages;
    walk->layers_before = walk->scan->layers;
    return TRUE;
  }
  if (letter == ')') return close_group(walk);
  if (!strchr("EtmL|", letter)) return refuse_here(walk, "not one of E t m L | , ( ) *");
  return read_repeat(walk, &repeat) && add(walk, letter, repeat);
}

gboolean ms_pipeline_layout_scan(const char *text, MsPipelineScan *scan, MsChunk *chunks, char *why, size_t size) {
  *scan = (MsPipelineScan){.virtual_stages = 1, .mtp_stage = -1};
  Walk walk = {.text = text, .scan = scan, .chunk = chunks, .why = why, .size = size};
  while (peek(&walk)) {
    if (++walk.walked > MAX_CHARS_WALKED) return refuse_here(&walk, "too many repeats");
    if (!step(&walk)) return FALSE;
  }
  if (walk.group) return refuse_here(&walk, "'(' is not closed");
  if (!walk.begun) return ms_refuse(why, size, "pipeline layout: empty; it begins with E and ends with L");
  return walk.ended || refuse_here(&walk, "L is missing");
}

MsChunk *ms_pipeline_layout_parse(const char *text, int *num_chunks, char *why, size_t size) {
  MsPipelineScan scan;
  if (!ms_pipeline_layout_scan(text, &scan, NULL, why, size)) return NULL;
  MsChunk *chunks = g_new0(MsChunk, scan.virtual_stages);
  *num_chunks = scan.virtual_stages;
  ms_pipeline_layout_scan(text, &scan, chunks, why, size);
  return chunks;
}

/* --- and back -------------------------------------------------------------------------------------------------- */

static void append_run(GString *out, char letter, int count) {
  if (count > 3) g_string_append_printf(out, "%c*%d", letter, count);
  else
    for (int i = 0; i < count; i++) g_string_append_c(out, letter);
}

static void append_stage(GString *out, const MsChunk *chunk) {
  if (chunk->has_embedding) g_string_append_c(out, 'E');
  append_run(out, 't', chunk->num_layers);
  append_run(out, 'm', chunk->num_mtp);
  if (chunk->has_loss) g_string_append_c(out, 'L');
}

static gboolean same_stage(const MsChunk *a, const MsChunk *b) {
  return a->has_embedding == b->has_embedding && a->num_layers == b->num_layers && a->num_mtp == b->num_mtp &&
         a->has_loss == b->has_loss;
}

/* `count` equal stages with the bar behind each. */
static void append_stages(GString *out, const MsChunk *chunk, int count) {
  g_autoptr(GString) once = g_string_new(NULL), grouped = g_string_new(NULL);
  append_stage(once, chunk);
  g_string_append_c(once, '|');
  g_string_printf(grouped, once->len > 1 ? "(%s)*%d" : "%s*%d", once->str, count);
  if (grouped->len < once->len * (gsize)count) g_string_append(out, grouped->str);
  else
    for (int i = 0; i < count; i++) g_string_append(out, once->str);
}

char *ms_pipeline_layout_text(const MsChunk *chunks, int num_chunks) {
  GString *out = g_string_new(NULL);
  for (int i = 0, end; i + 1 < num_chunks; i = end) {
    for (end = i + 1; end + 1 < num_chunks && same_stage(&chunks[i], &chunks[end]);) end++;
    append_stages(out, &chunks[i], end - i);
  }
  if (num_chunks > 0) append_stage(out, &chunks[num_chunks - 1]);
  return g_string_free(out, FALSE);
}
