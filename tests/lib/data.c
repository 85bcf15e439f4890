#include "lib/data.h"

#include <glib.h>
#include <glib/gstdio.h>

const char ms_test_tiny[] =
    "{\n  \"schema\": 1, \"name\": \"tiny\",\n  \"num_layers\": 12, \"hidden_size\": 512, "
    "\"ffn_hidden_size\": 2048,\n"
    "  \"num_attention_heads\": 8, \"vocab_size\": 50257, \"gated\": false, \"activation\": \"gelu\",\n"
    "  \"normalization\": \"LayerNorm\", \"position_embedding\": \"learned_absolute\", \"tie_embeddings\": "
    "true\n}\n";

const char ms_test_moe[] =
    "{\n  \"schema\": 1, \"name\": \"moe\", \"doc\": \"a small mixture\", \"source\": \"none\",\n"
    "  \"num_layers\": 8, \"hidden_size\": 1024, \"ffn_hidden_size\": 4096, \"num_attention_heads\": 16,\n"
    "  \"num_query_groups\": 16, \"kv_channels\": 64, \"qk_layernorm\": true,\n"
    "  \"multi_latent_attention\": {\"q_lora_rank\": 256, \"kv_lora_rank\": 128, \"qk_head_dim\": 64,\n"
    "    \"qk_pos_emb_head_dim\": 32, \"v_head_dim\": 64},\n"
    "  \"sliding_window\": {\"window\": 128, \"period\": 2},\n  \"vocab_size\": 32000, \"num_experts\": 16,\n"
    "  \"moe_router_topk\": 2, \"moe_ffn_hidden_size\": 512, \"moe_shared_expert_intermediate_size\": 512,\n"
    "  \"moe_router_num_groups\": 4, \"moe_router_group_topk\": 2, \"moe_layer_freq\": \"[0]*1+[1]*7\",\n"
    "  \"mtp_num_layers\": 1\n}\n";

const char ms_test_box[] =
    "{\n  \"schema\": 1, \"name\": \"box\", \"vendor\": \"none\", \"peak_bf16_flops\": 989.5e12, "
    "\"peak_fp8_flops\": 1979e12,\n"
    "  \"unsupported_precisions\": [\"nvfp4\"], \"hbm_B\": 8e10, \"hbm_Bps\": 3.35e12, \"sm_count\": 132, "
    "\"nic_Bps\": null,\n"
    "  \"gpus_per_node\": 8, \"scaleup_Bps\": 450e9, \"sources\": {\"hbm_B\": \"invented\"},\n  \"curves\": "
    "[\n"
    "    {\"op\": \"gemm\", \"dtype\": \"bf16\", \"form\": \"gemm-saturating\",\n"
    "     \"params\": {\"efficiency\": 0.8, \"bw_efficiency\": 0.9, \"launch_s\": 3e-6, \"m_half\": 50, "
    "\"n_half\": 60, \"k_half\": 70},\n"
    "     \"grid\": {\"axes\": {\"m\": [256, 1024], \"n\": [128, 512, 2048]}, \"log_ratio\": [0.1, 0, -0.1, "
    "0, 0.05, 0]},\n"
    "     \"provenance\": {\"data\": \"none\", \"note\": \"by hand\", \"n_fitted\": 6, \"residual_median\": "
    "0.02}},\n"
    "    {\"op\": \"all_reduce\", \"level\": \"nvlink\", \"ranks\": 8, \"form\": \"segments\",\n"
    "     \"segments\": [[5e-6, 1e10], [2e-5, 3e11]]}\n  ]\n}\n";

static const char other[] =
    "{\n  \"name\": \"other\", \"peak_bf16_flops\": 312e12, \"hbm_B\": 4e10, \"curves_from\": \"box\",\n  "
    "\"curves\": [\n"
    "    {\"op\": \"all_reduce\", \"form\": \"segments\", \"segments\": [[1e-5, 2e11]]}\n  ]\n}\n";

const char ms_test_scenario[] =
    "{\n  \"schema\": 1,\n  \"name\": \"moe-box-8\",\n  \"model\": {\"base\": \"moe\", \"num_layers\": 6},\n "
    " \"hardware\": \"box\",\n"
    "  \"gpus\": 8,\n  \"training\": {\n    \"seq_length\": 4096, \"micro_batch_size\": 1, "
    "\"global_batch_size\": 64,\n"
    "    \"precision\": \"bf16\", \"routing\": {\"capacity_factor\": 1.25, \"pad_to_capacity\": true}\n  },\n"
    "  \"layout\": {\"tp\": 2, \"pp\": 2, \"ep\": 4, \"vpp\": 1, \"pipeline_layout\": \"Ettt|tttL\"},\n"
    "  \"options\": {\n    \"dispatcher\": \"alltoall\",\n"
    "    \"recompute\": {\"granularity\": \"selective\", \"modules\": [\"core_attn\", \"moe_act\"]},\n"
    "    \"cuda_graph_scope\": [\"attn\"]\n  },\n"
    "  \"measured\": {\"step_time_s\": 1.5, \"tflops_per_gpu\": null, \"source\": \"none\", \"unknown\": "
    "[\"a\", \"b\"]}\n}\n";

const char ms_test_request[] =
    "{\n  \"schema\": 1,\n  \"name\": \"search\",\n  \"model\": \"moe\",\n  \"hardware\": \"box\",\n  "
    "\"gpus\": 64,\n"
    "  \"training\": {\"seq_length\": 4096, \"global_batch_size\": 256, \"micro_batch_size\": [1, 2], "
    "\"precision\": \"auto\"},\n"
    "  \"layout\": {\"tp\": [1, 2, 4], \"pp\": {\"from\": 1, \"to\": 8}, \"ep\": \"auto\", \"cp\": 1},\n"
    "  \"options\": {\"dispatcher\": [\"deepep\", \"alltoall\"],\n"
    "    \"recompute\": [{\"granularity\": \"none\"}, {\"granularity\": \"selective\", \"modules\": "
    "[\"core_attn\"]}],\n"
    "    \"cuda_graph_scope\": [[], [\"attn\"]], \"offload_modules\": [\"core_attn\"]},\n"
    "  \"plan\": {\"top\": 5}\n}\n";

static char *folder;

char *ms_test_data_path(const char *name) { return g_build_filename(folder, name, NULL); }

void ms_test_data_write(const char *name, const char *text) {
  char *path = ms_test_data_path(name);
  if (!g_file_set_contents(path, text, -1, NULL)) g_error("cannot write %s", path);
  g_free(path);
}

/* What is shipped and no test has reason to change as a whole: laws, names of kernels. */
static void copy_software(const char *name) {
  g_autofree char *text = NULL, *from = g_build_filename(MS_SOURCE_DIR, name, NULL);
  if (!g_file_get_contents(from, &text, NULL, NULL)) g_error("cannot read %s", from);
  ms_test_data_write(name, text);
}

int ms_test_data_setup(void **state) {
  (void)state;
  folder = g_dir_make_tmp("moesim-test-XXXXXX", NULL);
  if (!folder) return 1;
  static const char *const inner[] = {"models", "hardware", "software"};
  for (gsize i = 0; i < G_N_ELEMENTS(inner); i++) {
    g_autofree char *path = ms_test_data_path(inner[i]);
    g_mkdir(path, 0700);
  }
  ms_test_data_write("models/tiny.json", ms_test_tiny);
  ms_test_data_write("models/moe.json", ms_test_moe);
  ms_test_data_write("hardware/box.json", ms_test_box);
  ms_test_data_write("hardware/other.json", other);
  copy_software("software/laws.json");
  copy_software("software/kernels.json");
  g_setenv("MOESIM_DATA", folder, TRUE);
  return 0;
}

static void remove_tree(const char *path) {
  GDir *dir = g_dir_open(path, 0, NULL);
  const char *name;
  while (dir && (name = g_dir_read_name(dir))) {
    char *inner = g_build_filename(path, name, NULL);
    remove_tree(inner);
    g_free(inner);
  }
  if (dir) g_dir_close(dir);
  g_remove(path);
}

int ms_test_data_teardown(void **state) {
  (void)state;
  remove_tree(folder);
  g_clear_pointer(&folder, g_free);
  return 0;
}
