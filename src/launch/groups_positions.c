/* src/launch/groups_positions.c - learned and rotary positions, and rotary frequencies stretched for long sequences. */
#include "base/err.h"
#include "launch/launch.h"
#include "launch/table.h"

#include <math.h>
#include <string.h>

#define MODEL MS_SECTION_MODEL
enum { ROTARY_BASE = 10000 }; /* what the release takes without an argument */

static gboolean read_number(MsArgs *args, const char *flag, double absent, double lo, double hi, double *value,
                            GError **error) {
  const MsArg *arg = ms_args_take(args, flag);
  *value = absent;
  return !arg || ms_arg_number(args, arg, lo, hi, value, error);
}

/* --- positions: the table of learned ones has --max-position-embeddings rows, which every launch must give --- */
static gboolean write_rotary(const MsScenario *s, MsArgs *args, GError **error) {
  const MsModel *m = s->model;
  char buf[32];
  if (m->rotary_base != floor(m->rotary_base))
    return ms_refuse_key(s, error, "model.rotary_base", "is %s, but --rotary-base takes whole numbers",
                         ms_double_text(m->rotary_base, buf));
  if (m->rotary_base != ROTARY_BASE) ms_args_addf(args, MODEL, "--rotary-base", "%.0f", m->rotary_base);
  if (m->rotary_percent != 1)
    ms_args_add(args, MODEL, "--rotary-percent", ms_double_text(m->rotary_percent, buf), NULL);
  return TRUE;
}

gboolean ms_write_positions(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  MsPosition position = s->model->position_embedding;
  gboolean learned = ms_model_learns_positions(s->model);
  if (release != MS_RELEASE_MCORE && position != MS_POS_ROPE && !learned)
    return ms_refuse_key(s, error, "model.position_embedding", "%s has rope and learned_absolute, not %s",
                         ms_release_words[release], ms_position_words[position]);
  ms_args_add(args, MODEL, "--position-embedding-type", ms_position_words[position], NULL);
  ms_args_addf(args, MODEL, "--max-position-embeddings", "%d",
               learned ? MAX(s->model->seq_length_max, s->training.seq_length) : s->training.seq_length);
  return !ms_model_rotates(s->model) || write_rotary(s, args, error);
}

gboolean ms_read_positions(MsArgs *args, MsScenario *s, GError **error) {
  MsModel *m = s->model;
  const MsArg *type = ms_args_take(args, "--position-embedding-type");
  MsArg *most = ms_args_take(args, "--max-position-embeddings");
  gboolean rotary = ms_args_take(args, "--use-rotary-position-embeddings") != NULL;
  const char *text = type ? ms_arg_value(args, type, error) : rotary ? "rope" : "learned_absolute";
  int word = text ? ms_arg_word(args, type, text, ms_position_words, error) : -1;
  gint64 rows = s->training.seq_length;
  if (word < 0 || (most && !ms_arg_int(args, most, 1, 1 << 30, &rows, error))) return FALSE;
  m->position_embedding = (MsPosition)word;
  m->seq_length_max = ms_model_learns_positions(m) ? (int)rows : 0;
  if (most && !ms_model_learns_positions(m)) most->used = rows == s->training.seq_length; /* else listed as ignored */
  return read_number(args, "--rotary-base", ROTARY_BASE, 1, 1e15, &m->rotary_base, error) &&
         read_number(args, "--rotary-percent", 1, 0, 1, &m->rotary_percent, error);
}

/* --- stretched frequencies ---
 * Latent attention has YaRN with 4096 positions and turns 32 and 1, which only a configuration file changes; Llama's
 * stretching has 8192 positions and factors 1 and 4. What differs from these travels as a note. */
const MsRopeScaling ms_rope_scaling_usual = {.type = MS_ROPE_PLAIN,
                                             .factor = 1,
                                             .original_max_position_embeddings = 4096,
                                             .low_freq_factor = 1,
                                             .high_freq_factor = 4,
                                             .beta_fast = 32,
                                             .beta_slow = 1,
                                             .mscale = 1,
                                             .mscale_all_dim = 0,
                                             .truncate = TRUE};
enum { LLAMA_POSITIONS = 8192 };

void ms_rope_scaling_canonical(MsModel *m) {
  MsRopeScaling *r = &m->rope_scaling, given = *r;
  gboolean latent = ms_model_has_mla(m) || ms_model_has_compressed_attention(m);
  if (!ms_model_rotates(m)) given.type = MS_ROPE_PLAIN, m->rotary_base = ROTARY_BASE, m->rotary_percent = 1;
  if (!latent && m->position_embedding == MS_POS_YARN) given.type = MS_ROPE_YARN;
  if (!latent && given.type == MS_ROPE_YARN) m->position_embedding = MS_POS_YARN;
  *r = ms_rope_scaling_usual;
  r->type = given.type;
  if (r->type == MS_ROPE_PLAIN) return;
  r->factor = given.factor;
  if (r->type == MS_ROPE_LINEAR) return;
  r->original_max_position_embeddings = given.original_max_position_embeddings;
  if (r->type == MS_ROPE_LLAMA3) {
    r->low_freq_factor = given.low_freq_factor, r->high_freq_factor = given.high_freq_factor;
    return;
  }
  r->beta_fast = given.beta_fast, r->beta_slow = given.beta_slow;
  r->mscale = given.mscale, r->mscale_all_dim = given.mscale_all_dim;
  r->truncate = given.truncate;
}

MsRopeScaling ms_rope_scaling_said(const MsModel *m, MsRelease release) {
  MsRopeScaling said = ms_rope_scaling_usual;
  const MsRopeScaling *r = &m->rope_scaling;
  gboolean whole = r->factor == floor(r->factor), mcore = release == MS_RELEASE_MCORE;
  if (r->type == MS_ROPE_PLAIN || (r->type == MS_ROPE_LINEAR ? !whole || ms_model_has_mla(m) : !mcore)) return said;
  if (r->type == MS_ROPE_YARN && !ms_model_has_mla(m)) return *r;
  if (r->type == MS_ROPE_LLAMA3 && ms_model_has_mla(m)) return said;
  said.type = r->type;
  said.factor = r->factor;
  if (r->type == MS_ROPE_YARN) said.mscale = r->mscale, said.mscale_all_dim = r->mscale_all_dim;
  if (r->type == MS_ROPE_LLAMA3) said.original_max_position_embeddings = LLAMA_POSITIONS;
  return said;
}

gboolean ms_rope_scaling_is(const MsRopeScaling *a, const MsRopeScaling *b) {
  return a->type == b->type && a->factor == b->factor &&
         a->original_max_position_embeddings == b->original_max_position_embeddings &&
         a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
         a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow && a->mscale == b->mscale &&
         a->mscale_all_dim == b->mscale_all_dim && !a->truncate == !b->truncate;
}

static void add_number(MsArgs *args, const char *flag, double value) {
  char buf[32];
  ms_args_add(args, MODEL, flag, ms_double_text(value, buf), NULL);
}

static void write_yarn(const MsModel *m, const MsRopeScaling *r, MsArgs *args) {
  add_number(args, "--rotary-scaling-factor", r->factor);
  add_number(args, "--mscale", r->mscale);
  add_number(args, "--mscale-all-dim", r->mscale_all_dim);
  if (ms_model_has_mla(m)) return;
  ms_args_addf(args, MODEL, "--yarn-original-max-position-embeddings", "%d", r->original_max_position_embeddings);
  add_number(args, "--yarn-beta-fast", r->beta_fast);
  add_number(args, "--yarn-beta-slow", r->beta_slow);
  if (!r->truncate) ms_args_add(args, MODEL, "--no-yarn-correction-range-round-to-int", NULL);
}

gboolean ms_write_rope_scaling(const MsScenario *s, MsRelease release, MsArgs *args, GError **error) {
  const MsRopeScaling r = ms_rope_scaling_said(s->model, release);
  (void)error;
  if (r.type == MS_ROPE_YARN) write_yarn(s->model, &r, args);
  if (r.type == MS_ROPE_LLAMA3) {
    ms_args_add(args, MODEL, "--use-rope-scaling", NULL);
    add_number(args, "--rope-scaling-factor", r.factor);
  }
  if (r.type == MS_ROPE_LINEAR) add_number(args, "--rotary-seq-len-interpolation-factor", r.factor);
  return TRUE;
}

static gboolean read_yarn(MsArgs *args, MsModel *m, GError **error) {
  MsRopeScaling *r = &m->rope_scaling;
  const MsArg *positions = ms_args_take(args, "--yarn-original-max-position-embeddings");
  gint64 original = ms_rope_scaling_usual.original_max_position_embeddings;
  if (!read_number(args, "--rotary-scaling-factor", 1, 0, 1e6, &r->factor, error) ||
      !read_number(args, "--mscale", 1, 0, 1e6, &r->mscale, error) ||
      !read_number(args, "--mscale-all-dim", 0, 0, 1e6, &r->mscale_all_dim, error))
    return FALSE;
  r->type = !ms_model_has_mla(m) || r->factor != 1 ? MS_ROPE_YARN : MS_ROPE_PLAIN;
  if (ms_model_has_mla(m)) return TRUE;
  if ((positions && !ms_arg_int(args, positions, 1, 1 << 30, &original, error)) ||
      !read_number(args, "--yarn-beta-fast", ms_rope_scaling_usual.beta_fast, 0, 1e6, &r->beta_fast, error) ||
      !read_number(args, "--yarn-beta-slow", ms_rope_scaling_usual.beta_slow, 0, 1e6, &r->beta_slow, error))
    return FALSE;
  r->original_max_position_embeddings = (int)original;
  r->truncate = ms_args_take(args, "--no-yarn-correction-range-round-to-int") == NULL;
  return TRUE;
}

gboolean ms_read_rope_scaling(MsArgs *args, MsScenario *s, GError **error) {
  MsModel *m = s->model;
  MsRopeScaling *r = &m->rope_scaling;
  const MsArg *type = ms_args_take(args, "--rope-type");
  gboolean plain = type && g_strcmp0(type->values[0], "rope") == 0;
  *r = ms_rope_scaling_usual;
  if (m->position_embedding == MS_POS_YARN || (ms_model_has_mla(m) && !plain)) return read_yarn(args, m, error);
  if (ms_args_take(args, "--use-rope-scaling")) {
    r->type = MS_ROPE_LLAMA3;
    r->original_max_position_embeddings = LLAMA_POSITIONS;
    return read_number(args, "--rope-scaling-factor", 8, 0, 1e6, &r->factor, error);
  }
  if (!read_number(args, "--rotary-seq-len-interpolation-factor", 1, 0, 1e6, &r->factor, error)) return FALSE;
  r->type = r->factor != 1 ? MS_ROPE_LINEAR : MS_ROPE_PLAIN;
  return TRUE;
}
