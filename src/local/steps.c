#include "local/steps.h"

#include <math.h>
#include <string.h>

/* --- calibration: a sequence that fills the space evenly ------------------------------------------------------- */
/* The i-th number of the sequence of multiples of an irrational number: even from the first few on, and independent of
 * those of other primes. */
static double even(int i, int prime) { return fmod(i * sqrt(prime), 1); }

static int between(int lo, int hi, int unit, double share) {
  return unit * (int)round(lo * pow((double)hi / lo, share) / unit);
}

static double flop_of(const MsLocalStep *s) {
  double tokens = (double)s->seq * s->micro_batch * s->microbatches, h = s->hidden;
  double attention = 2 * h * (s->heads + s->kv_heads) * s->head_dim + (double)s->seq * s->heads * s->head_dim;
  double per_token = s->layers * attention + s->dense_layers * 3 * h * s->ffn +
                     (double)(s->layers - s->dense_layers) * s->topk * 3 * h * s->moe_ffn + h * s->vocab;
  return 6 * tokens * per_token;
}

static MsLocalStep draw(int i) {
  static const int topks[] = {1, 2, 4};
  MsLocalStep s = {.layers = 2 + (int)(3 * even(i, 37)),
                   .dense_layers = 1,
                   .head_dim = even(i, 13) < 0.7 ? 64 : 32,
                   .tp = 1,
                   .cp = 1,
                   .pp = 1,
                   .vpp = 1,
                   .ep = 1,
                   .dp = 1,
                   .schedule = "1f1b"};
  if (i % 4 == 2) s.dense_layers = s.layers; /* no experts at all */
  s.hidden = between(256, 1024, 64, even(i, 2));
  s.heads = s.hidden / 64;
  s.kv_heads = s.heads % 4 == 0 && even(i, 7) < 0.5 ? s.heads / 4 : s.heads;
  s.ffn = between(2 * s.hidden, 4 * s.hidden, 64, even(i, 3));
  s.mla = i % 3 == 0;
  s.experts = 4 << (int)(4 * even(i, 5));
  s.topk = topks[(int)(3 * even(i, 11))];
  s.moe_ffn = between(64, 768, 32, even(i, 29));
  s.shared_ffn = i % 4 == 1 ? s.moe_ffn : 0;
  s.vocab = between(512, 8192, 128, even(i, 17));
  s.seq = between(64, 1024, 32, even(i, 19));
  s.micro_batch = even(i, 23) < 0.7 ? 1 : 2;
  s.microbatches = even(i, 31) < 0.6 ? 1 : 2;
  return s;
}

MsLocalStep *ms_local_calibration_steps(int n) {
  MsLocalStep *steps = g_new(MsLocalStep, MAX(n, 1));
  for (int i = 1, made = 0; made < n; i++) {
    MsLocalStep s = draw(i);
    if (flop_of(&s) > 25e9) continue;
    g_snprintf(s.name, sizeof s.name, "calibration-%d", made + 1);
    steps[made++] = s;
  }
  return steps;
}

/* --- check ----------------------------------------------------------------------------------------------------- */
/* Sizes between those of the sequence above, none of them equal to one of it. */
#define ONE .tp = 1, .cp = 1, .pp = 1, .vpp = 1, .ep = 1, .dp = 1, .schedule = "1f1b"
static const MsLocalStep check_steps[] = {
    {"dense-gqa-384", 3, 3, 384, 6, 2, 64, 1152, FALSE, 0, 0, 0, 0, 2048, 512, 1, 2, ONE},
    {"dense-mha-512", 2, 2, 512, 8, 8, 64, 1536, FALSE, 0, 0, 0, 0, 4096, 384, 2, 2, ONE},
    {"dense-mla-640", 2, 2, 640, 10, 10, 64, 1600, TRUE, 0, 0, 0, 0, 1024, 512, 1, 2, ONE},
    {"dense-gqa-896", 2, 2, 896, 14, 7, 64, 2304, FALSE, 0, 0, 0, 0, 3072, 704, 1, 1, ONE},
    {"moe-gqa-320", 3, 1, 320, 5, 5, 64, 960, FALSE, 8, 2, 192, 0, 1536, 448, 2, 2, ONE},
    {"moe-gqa-512", 3, 0, 512, 8, 4, 64, 1024, FALSE, 16, 2, 320, 320, 2048, 576, 1, 2, ONE},
    {"moe-mla-448", 2, 1, 448, 7, 7, 64, 1280, TRUE, 8, 4, 256, 0, 1024, 640, 1, 2, ONE},
    {"moe-mla-768", 2, 0, 768, 12, 12, 64, 2048, TRUE, 16, 1, 448, 0, 2560, 512, 1, 1, ONE},
    {"moe-gqa-704", 2, 1, 704, 11, 11, 64, 1792, FALSE, 32, 2, 160, 160, 1024, 768, 1, 1, ONE},
    {"moe-fine-384", 4, 0, 384, 6, 3, 64, 1024, FALSE, 32, 4, 96, 96, 1024, 512, 1, 2, ONE},
    {"moe-small-256", 2, 1, 256, 4, 4, 64, 768, FALSE, 4, 1, 384, 0, 768, 192, 2, 4, ONE},
    {"moe-long-320", 2, 0, 320, 5, 5, 64, 896, FALSE, 8, 2, 256, 0, 512, 1024, 1, 1, ONE},
    {"tp2-dense-512", 2, 2, 512, 8, 4, 64, 1536, FALSE, 0, 0, 0, 0, 2048, 512, 1, 2, 2, 1, 1, 1, 1, 1, "1f1b"},
    {"tp2-moe-512", 2, 1, 512, 8, 4, 64, 1536, FALSE, 8, 2, 256, 0, 2048, 512, 1, 2, 2, 1, 1, 1, 1, 1, "1f1b"},
    {"pp2-1f1b-dense-384", 4, 4, 384, 6, 3, 64, 1152, FALSE, 0, 0, 0, 0, 512, 384, 1, 6, 1, 1, 2, 1, 1, 1, "1f1b"},
    {"pp2-interleaved-384", 4, 4, 384, 6, 3, 64, 1152, FALSE, 0, 0, 0, 0, 512, 384, 1, 6, 1, 1, 2, 2, 1, 1, "1f1b"},
    {"pp2-moe-mla-384", 4, 0, 384, 6, 6, 64, 1024, TRUE, 8, 2, 192, 0, 512, 512, 1, 4, 1, 1, 2, 1, 1, 1, "1f1b"},
    {"ep2-moe-448", 3, 1, 448, 7, 7, 64, 1280, FALSE, 16, 2, 224, 0, 1024, 512, 1, 2, 1, 1, 1, 1, 2, 2, "1f1b"},
    {"ep2-moe-mla-576", 2, 0, 576, 9, 9, 64, 1536, TRUE, 8, 2, 320, 0, 1024, 448, 1, 2, 1, 1, 1, 1, 2, 2, "1f1b"},
    {"dp2-dense-448", 3, 3, 448, 7, 7, 64, 1344, FALSE, 0, 0, 0, 0, 1024, 512, 1, 2, 1, 1, 1, 1, 1, 2, "1f1b"},
    {"dp2-moe-320", 3, 1, 320, 5, 5, 64, 960, FALSE, 8, 2, 192, 0, 1024, 512, 2, 2, 1, 1, 1, 1, 1, 2, "1f1b"},
    {"cp2-dense-384", 2, 2, 384, 6, 3, 64, 1152, FALSE, 0, 0, 0, 0, 1024, 1024, 1, 2, 1, 2, 1, 1, 1, 1, "1f1b"},
};
#undef ONE

const MsLocalStep *ms_local_check_steps(int *n) {
  *n = G_N_ELEMENTS(check_steps);
  return check_steps;
}

/* --- as a scenario --------------------------------------------------------------------------------------------- */
int ms_local_ranks(const MsLocalStep *s) { return s->tp * s->cp * s->pp * s->dp; }

static void put_model(GString *out, const MsLocalStep *s) {
  g_string_append_printf(out,
                         "  \"model\": {\"name\": \"%s\", \"num_layers\": %d, \"hidden_size\": %d, "
                         "\"ffn_hidden_size\": %d, \"num_attention_heads\": %d, ",
                         s->name, s->layers, s->hidden, s->ffn, s->heads);
  if (s->mla)
    g_string_append_printf(out,
                           "\"multi_latent_attention\": {\"q_lora_rank\": %d, \"kv_lora_rank\": %d, \"qk_head_dim\": "
                           "%d, \"qk_pos_emb_head_dim\": %d, \"v_head_dim\": %d}, ",
                           3 * s->hidden / 8, s->hidden / 4, s->head_dim, s->head_dim / 2, s->head_dim);
  else g_string_append_printf(out, "\"num_query_groups\": %d, \"kv_channels\": %d, ", s->kv_heads, s->head_dim);
  if (s->experts > 0 && s->layers > s->dense_layers)
    g_string_append_printf(out,
                           "\"num_experts\": %d, \"moe_router_topk\": %d, \"moe_ffn_hidden_size\": %d, "
                           "\"moe_shared_expert_intermediate_size\": %d, \"moe_layer_freq\": \"[0]*%d+[1]*%d\", ",
                           s->experts, s->topk, s->moe_ffn, s->shared_ffn, s->dense_layers,
                           s->layers - s->dense_layers);
  g_string_append_printf(out, "\"vocab_size\": %d}", s->vocab);
}

char *ms_local_scenario_text(const MsLocalStep *s, const char *hardware, const char *measured) {
  GString *out = g_string_new("{\n");
  g_string_append_printf(out, "  \"schema\": 1,\n  \"name\": \"%s\",\n", s->name);
  put_model(out, s);
  g_string_append_printf(out, ",\n  \"hardware\": %s,\n  \"gpus\": %d,\n", hardware, ms_local_ranks(s));
  g_string_append_printf(out,
                         "  \"training\": {\"seq_length\": %d, \"micro_batch_size\": %d, \"global_batch_size\": %d, "
                         "\"precision\": \"bf16\"},\n",
                         s->seq, s->micro_batch, s->micro_batch * s->microbatches * s->dp);
  g_string_append_printf(
      out, "  \"layout\": {\"tp\": %d, \"cp\": %d, \"pp\": %d, \"vpp\": %d, \"ep\": %d, \"schedule\": \"%s\"},\n",
      s->tp, s->cp, s->pp, s->vpp, s->ep, s->schedule);
  g_string_append(out, "  \"options\": {\"overlap_grad_reduce\": false, \"overlap_param_gather\": false}");
  if (ms_local_ranks(s) > 1) g_string_append(out, ",\n  \"cluster\": {\"expected\": true}");
  if (measured) g_string_append_printf(out, ",\n  \"measured\": %s", measured);
  g_string_append(out, "\n}\n");
  return g_string_free(out, FALSE);
}

MsScenario *ms_local_scenario(const MsLocalStep *step, const char *hardware, GError **error) {
  g_autofree char *text = ms_local_scenario_text(step, hardware, NULL);
  g_autoptr(MsJson) doc = ms_json_parse(text, -1, step->name, error);
  return doc ? ms_scenario_from_doc(doc, error) : NULL;
}
