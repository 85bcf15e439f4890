/* Profiles of GPUs: what is read, what a kernel is, where the time went, what is refused. */
#include "lib/close.h"

#include "base/err.h"
#include "lib/data.h"
#include "lib/profiles.h"
#include "lib/mutate.h"
#include "lib/refusals.h"
#include "lib/tier.h"
#include "report/report.h"
#include "study/diff.h"
#include "work/op.h"

#include <math.h>
#include <string.h>

static char *sample(void) {
  char *text = NULL;
  assert_true(g_file_get_contents(MS_SOURCE_DIR "/tests/data/logs/kineto.json", &text, NULL, NULL));
  return text;
}

static MsTrace *read_text(const char *text, gsize length, GPtrArray *notes, GError **error) {
  g_autoptr(MsReader) reader = ms_reader_of(text, length, "trace");
  return ms_trace_read(reader, "trace", -1, ms_test_kernels, notes, error);
}

/* A whole text: nothing to say about it. */
static MsTrace *whole(const char *text) {
  GError *error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  MsTrace *trace = read_text(text, strlen(text), notes, &error);
  assert_null(error);
  assert_int_equal(notes->len, 0);
  return trace;
}

static double class_s(const MsTraceTimes *t, const char *word) {
  for (int i = 0; i < t->n_classes; i++)
    if (strcmp(t->classes[i].word, word) == 0) return t->classes[i].time_s;
  return NAN;
}

/* Two steps of 1 ms whose every kernel was written down by hand. */
static void times(void **state) {
  (void)state;
  static const struct {
    const char *word;
    double time_s;
  } expect[] = {{"gemm", 100.5e-6},   {"elementwise", 20e-6}, {"attention", 200e-6},
                {"optimizer", 50e-6}, {"all_gather", 245e-6}, {"unrecognised", 9e-6}};
  g_autofree char *text = sample();
  g_autoptr(MsTrace) trace = whole(text);
  g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, ms_test_kernels);
  assert_string_equal(t->device, "NVIDIA H100 80GB HBM3");
  assert_int_equal(t->rank, 3);
  assert_int_equal(t->ranks, 16);
  assert_int_equal(t->steps, 2);
  assert_close(t->step_s, 1e-3, 1e-12);
  assert_int_equal(t->n_classes, (int)G_N_ELEMENTS(expect));
  for (gsize i = 0; i < G_N_ELEMENTS(expect); i++) assert_close(class_s(t, expect[i].word), expect[i].time_s, 1e-12);
  assert_close(t->time_s, 624.5e-6, 1e-12);
  assert_close(t->known, 1 - 9 / 624.5, 1e-12);
  assert_close(t->busy_s, 394e-6, 1e-12);
  assert_close(t->span_s, 959e-6, 1e-12);
  assert_int_equal(t->n_streams, 2);
  assert_string_equal(t->streams[0].name, "7");
  assert_close(t->streams[0].busy_s, 379.5e-6, 1e-12);
  assert_close(t->streams[0].alone_s, 149e-6, 1e-12);
  assert_close(t->streams[0].gaps, 3 + 0.5, 1e-12); /* 2, 7.5 and 10 us in both steps, 41 us between them */
  assert_close(t->streams[0].median_gap_s, 7.5e-6, 1e-12);
  assert_close(t->streams[1].busy_s, 245e-6, 1e-12);
  assert_int_equal(t->n_overlaps, 1);
  assert_close(t->overlaps[0].both_s, 230.5e-6, 1e-12);
  assert_int_equal(t->n_strange, 1);
  assert_string_equal(t->strange[0].name, "mystery_v2");
}

/* The same two steps as every profiler writes them. */
static void forms(void **state) {
  (void)state;
  static const struct {
    const char *file;
    MsTraceForm form;
    const char *steps_by;
    int devices;
  } expect[] = {{"nsys.sqlite", MS_TRACE_NSYS, "marks of the host", 2},
                {"nsys_gpu_trace.csv", MS_TRACE_NSYS, "its optimizer", 1},
                {"rocprofv3_kernel_trace.csv", MS_TRACE_ROCPROF, "its optimizer", 1},
                {"rocprof_results.csv", MS_TRACE_ROCPROF, "its optimizer", 1},
                {"rocpd.db", MS_TRACE_ROCPROF, "its optimizer", 1},
                {"op_summary.csv", MS_TRACE_MSPROF, "its optimizer", 1},
                {"kernel_details.csv", MS_TRACE_MSPROF, "marks of the GPU", 1}};
  for (gsize i = 0; i < G_N_ELEMENTS(expect); i++) {
    GError *error = NULL;
    g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *file = g_build_filename(MS_SOURCE_DIR "/tests/data/logs", expect[i].file, NULL);
    g_autoptr(MsTrace) trace = ms_trace_load(file, -1, ms_test_kernels, notes, &error);
    assert_null(error);
    assert_int_equal(trace->form, expect[i].form);
    assert_int_equal(notes->len, expect[i].devices - 1);
    g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, ms_test_kernels);
    assert_string_equal(t->steps_by, expect[i].steps_by);
    assert_int_equal(t->steps, 2);
    assert_close(class_s(t, "gemm"), 100.5e-6, 1e-12);
    assert_close(class_s(t, "attention"), 200e-6, 1e-12);
    assert_close(class_s(t, "all_gather"), 245e-6, 1e-12);
    assert_close(class_s(t, "optimizer"), 50e-6, 1e-12);
    assert_close(class_s(t, "elementwise"), 20e-6, 1e-12);
    assert_close(class_s(t, "unrecognised"), 9e-6, 1e-12);
    assert_close(t->busy_s, 394e-6, 1e-12);
    assert_close(t->span_s, 959e-6, 1e-12);
    assert_int_equal(t->n_streams, 2);
    assert_string_equal(t->streams[0].name, "7");
    assert_close(t->overlaps[0].both_s, 230.5e-6, 1e-12);
    const MsTraceTimes *const all[] = {t};
    g_autofree char *gemm = ms_trace_gemm_csv(all, 1);
    if (expect[i].form == MS_TRACE_MSPROF) /* B is stored transposed */
      assert_string_equal(gemm, "dtype,m,n,k,latency_us\nbf16,4096,1536,7168,100.5\n");
    else assert_null(gemm);
    g_autoptr(MsTrace) last = ms_trace_load(file, expect[i].devices - 1, ms_test_kernels, notes, NULL);
    assert_non_null(last);
    assert_int_equal(last->kernels->len, expect[i].devices == 1 ? 12 : 10);
    assert_null(ms_trace_load(file, expect[i].devices, ms_test_kernels, notes, &error));
    assert_non_null(strstr(error->message, "counted from 0: no GPU"));
    g_error_free(error);
  }
}

#define GPU_KERNEL(pid, gpu, ts, dur)                                                                            \
  "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"nvjet_hsh\",\"pid\":" pid ",\"tid\":7,\"ts\":" ts ",\"dur\":" dur \
  ",\"args\":{\"device\":" gpu ",\"stream\":7}}"

/* GPUs of one process, and of two whose devices are counted from 0: one of them counts. */
static void several_gpus(void **state) {
  (void)state;
  static const char *const text[] = {
      "{\"traceEvents\":[" GPU_KERNEL("1", "1", "2", "50") "," GPU_KERNEL("0", "0", "1", "20") "]}",
      "{\"traceEvents\":[" GPU_KERNEL("80", "0", "2", "50") "," GPU_KERNEL("10", "0", "1", "20") "]}",
      "{\"traceEvents\":[" GPU_KERNEL("10", "3", "2", "50") "," GPU_KERNEL("10", "0", "1", "20") "]}"};
  for (guint i = 0; i < G_N_ELEMENTS(text); i++)
    for (int device = -1; device < 2; device++) {
      GError *error = NULL;
      g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
      g_autoptr(MsReader) reader = ms_reader_of(text[i], strlen(text[i]), "trace");
      g_autoptr(MsTrace) trace = ms_trace_read(reader, "trace", device, ms_test_kernels, notes, &error);
      assert_null(error);
      assert_int_equal(notes->len, device < 0);
      g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, ms_test_kernels);
      assert_close(class_s(t, "gemm"), device == 1 ? 50e-6 : 20e-6, 1e-12);
      assert_string_equal(t->streams[0].name, "7");
    }
}

/* Every "from" becomes "to", of the same length. */
static void replace_all(char *bytes, gsize length, const char *from, const char *to) {
  for (gsize i = 0, n = strlen(from); i + n <= length; i++)
    if (memcmp(bytes + i, from, n) == 0) memcpy(bytes + i, to, n);
}

/* Steps may be counted from 0, or not at all. */
static void steps_from_zero(void **state) {
  (void)state;
  static const char *const names[][2] = {{"iteration 0", "iteration 1"}, {"iteration  ", "iteration  "}};
  for (int k = 0; k < 2; k++) {
    g_autofree char *bytes = NULL, *other = ms_test_data_path("zero.sqlite");
    gsize length;
    assert_true(g_file_get_contents(MS_SOURCE_DIR "/tests/data/logs/nsys.sqlite", &bytes, &length, NULL));
    replace_all(bytes, length, "iteration 7", names[k][0]);
    replace_all(bytes, length, "iteration 8", names[k][1]);
    assert_true(g_file_set_contents(other, bytes, (gssize)length, NULL));
    g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(MsTrace) trace = ms_trace_load(other, -1, ms_test_kernels, notes, NULL);
    assert_non_null(trace);
    g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, ms_test_kernels);
    assert_int_equal(t->steps, 2);
    assert_close(t->step_s, 1e-3, 1e-12);
  }
}

/* Names of CANN's operators where the column of types says nothing, and without it. */
static void cann_names(void **state) {
  (void)state;
  static const char text[] = "Name,Type,Start Time(us),Duration(us),Stream ID\n"
                             "aclnnMatmul_MatMulCommon_MatMulV2,N/A,1,2,0\n"
                             "hcom_allReduce__471_0_1,hcom_allReduce_,10.5,3,1\n"
                             "whatever,GroupedMatmul,20,4,0\n";
  g_autoptr(MsTrace) trace = whole(text);
  g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, ms_test_kernels);
  assert_close(class_s(t, "gemm"), 2e-6, 1e-12);
  assert_close(class_s(t, "all_reduce"), 3e-6, 1e-12);
  assert_close(class_s(t, "grouped_gemm"), 4e-6, 1e-12);
}

/* Shapes and sizes that the profiler recorded become tables that fit reads. */
static void tables(void **state) {
  (void)state;
  g_autofree char *text = sample();
  g_autoptr(MsTrace) trace = whole(text);
  g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, ms_test_kernels);
  const MsTraceTimes *const all[] = {t};
  g_autofree char *gemm = ms_trace_gemm_csv(all, 1), *collectives = ms_trace_collective_csv(all, 1);
  assert_string_equal(gemm, "dtype,m,n,k,latency_us\nbf16,4096,1536,7168,100.5\n");
  assert_string_equal(collectives, "op,num_gpus,bytes,latency_us\nall_gather,8,16000,240\n");
}

/* Kernels of stream 7 one behind the other, the second half of them beside one of stream 20. `grid`: of the first ones,
 * "" where the profiler does not say; every third is four times as long, in a grid of its own where they have one. */
static char *pairs(const char *name, const char *grid, double slow) {
  GString *out = g_string_new("{\"traceEvents\": [\n");
  double now_us = 0;
  for (int i = 0; i < 24; i++) {
    gboolean large = i % 3 == 2, beside = i >= 12;
    double length_us = 10 * (large ? 4 : 1) * (beside ? slow : 1);
    g_autofree char *args = *grid ? g_strdup_printf(", \"grid\": [%s%s, 1, 1]", grid, large ? "4" : "") : g_strdup("");
    g_string_append_printf(out,
                           "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"%s\", \"ts\": %g, \"dur\": %g, "
                           "\"args\": {\"stream\": 7%s}},\n",
                           name, now_us, length_us, args);
    if (beside)
      g_string_append_printf(out,
                             "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel_AllGather\", \"ts\": "
                             "%g, \"dur\": %g, \"args\": {\"stream\": 20}},\n",
                             now_us + 0.2 * length_us, 0.8 * length_us);
    now_us += length_us + 5;
  }
  g_string_truncate(out, out->len - 2);
  return g_string_free(g_string_append(out, "]}"), FALSE);
}

static const MsTraceClassTime *class_of(const MsTraceTimes *t, const char *word) {
  for (int i = 0; i < t->n_classes; i++)
    if (strcmp(t->classes[i].word, word) == 0) return &t->classes[i];
  fail_msg("no %s", word);
  return NULL;
}

/* What kernels take beside others is compared with what those of the same size take alone, or not at all. */
static void slowdown(void **state) {
  (void)state;
  static const char norm[] = "rmsnorm_fwd_tuned_kernel", product[] = "nvjet_hsh_128x128";
  static const struct {
    const char *name, *grid, *word;
    double slow, expect;
  } cases[] = {{norm, "13", "norm", 1.3, 1.3},
               {norm, "13", "norm", 1, 1},
               {norm, "", "norm", 1.3, NAN},        /* of no known size */
               {product, "132", "gemm", 1.3, NAN}}; /* as many blocks say nothing of a product */
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *text = pairs(cases[i].name, cases[i].grid, cases[i].slow);
    g_autoptr(MsTrace) trace = whole(text);
    g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, ms_test_kernels);
    const MsTraceClassTime *c = class_of(t, cases[i].word), *other = class_of(t, "all_gather");
    if (isnan(cases[i].expect)) assert_true(isnan(c->slowdown));
    else assert_close(c->slowdown, cases[i].expect, 1e-9);
    assert_close(c->beside, 0.8 * cases[i].slow / (1 + cases[i].slow), 1e-9);
    assert_close(other->beside, 1, 1e-9);
    assert_true(isnan(other->slowdown)); /* none was alone */
    /* the same size in the launch, another in the work: not compared */
    for (char *at = text; (at = strstr(at, "[134,")) != NULL;) memcpy(at, "[13 ,", 5);
    g_autoptr(MsTrace) mixed = whole(text);
    g_autoptr(MsTraceTimes) m = ms_trace_times_new(mixed, ms_test_kernels);
    assert_true(isnan(class_of(m, cases[i].word)->slowdown));
  }
}

/* Without marks a step ends with its optimizer; what follows the last end is no whole step. */
static void steps_without_marks(void **state) {
  (void)state;
  g_autofree char *text = sample();
  for (char *at = text; (at = strstr(at, "ProfilerStep")) != NULL;) memcpy(at, "OtherRegion!", 12);
  g_autoptr(MsTrace) trace = whole(text);
  g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, ms_test_kernels);
  assert_string_equal(t->steps_by, "its optimizer");
  assert_int_equal(t->steps, 2);
  assert_close(class_s(t, "gemm"), 100.5e-6, 1e-12);
  assert_close(t->step_s, (1000 + 959) / 2.0 * 1e-6, 1e-12);
}

/* A file that was cut: what is whole counts, but for the step that is not; it says so. */
static void cut(void **state) {
  (void)state;
  g_autofree char *text = sample();
  GError *error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  gsize length = strlen(text) - 60; /* in the last event */
  g_autoptr(MsTrace) trace = read_text(text, length, notes, &error);
  assert_null(error);
  assert_int_equal(notes->len, 1);
  assert_non_null(strstr(notes->pdata[0], "ends early"));
  g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, ms_test_kernels);
  assert_int_equal(t->steps, 1);
  assert_close(class_s(t, "all_gather"), 250e-6, 1e-12);
  assert_close(t->time_s, (624.5 + 5) * 1e-6, 1e-12);
}

/* A file that was cut ahead of what is asked of it says that, not how profiles are taken. */
static void cut_before_kernels(void **state) {
  (void)state;
  static const char text[] =
      "{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"ts\":1,\"dur\":2},\n{\"ph\":";
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(GError) error = NULL;
  assert_null(read_text(text, strlen(text), notes, &error));
  assert_non_null(strstr(error->message, ":2: ends early, before the first kernel"));
}

/* What no GPU does is said, and read all the same. */
static void odd_traces(void **state) {
  (void)state;
#define KERNEL(stream, ts, dur)                                                                    \
  "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"sm90_xmma_gemm_bf16\",\"ts\":" #ts ",\"dur\":" #dur \
  ",\"args\":{\"stream\":" #stream "}}"
  static const struct {
    const char *text, *note;
  } table[] = {
      {"[" KERNEL(7, 0, 10) "," KERNEL(7, 10, 10) "," KERNEL(8, 5, 10) "]", NULL},
      {"[" KERNEL(7, 0, 10) "," KERNEL(7, 9, 10) "]", NULL}, /* a launch that depends begins early */
      {"[" KERNEL(7, 0, 10) "," KERNEL(7, 200, 10) "]", NULL},
      {"[" KERNEL(7, 0, 10) "," KERNEL(8, 3600000000, 10) "]", "no kernel for 3.6e+03 s"},
      {"[" KERNEL(7, 0, 10) "," KERNEL(7, 0, 10) "]", "stream 7 lie over each other for 50 % of their time"},
      {"[" KERNEL(7, 0, 10) "," KERNEL(7, "10,5", 10) "]", "1 kernels without a usable time"},
      {"[" KERNEL(7, 0, 10) "]\n[" KERNEL(7, 10, 10) "]", "what follows its end is left out"},
      {"{\"distributedInfo\":{\"rank\":8,\"world_size\":8},\"traceEvents\":[" KERNEL(7, 0, 10) "]}",
       "rank 8 of 8, which there is not"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(table); i++) {
    GError *error = NULL;
    g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(MsTrace) trace = read_text(table[i].text, strlen(table[i].text), notes, &error);
    assert_null(error);
    assert_int_equal(trace->rank, -1);
    if (notes->len != (table[i].note ? 1 : 0)) fail_msg("row %u: %u notes", i, notes->len);
    if (table[i].note && !strstr(notes->pdata[0], table[i].note)) fail_msg("row %u: %s", i, (char *)notes->pdata[0]);
  }
}

/* One that was cut in its only step has no whole one: what there is counts, and is said to be a part. */
static void cut_in_the_only_step(void **state) {
  (void)state;
  static const char text[] =
      "{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#5\",\"ts\":0,\"dur\":1000,"
      "\"pid\":1,\"tid\":1},\n" KERNEL(7, 10, 20) ",\n" KERNEL(7, 40, 25) ",\n{\"ph\":";
  GError *error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(MsTrace) trace = read_text(text, strlen(text), notes, &error);
  assert_null(error);
  assert_int_equal(notes->len, 2);
  assert_non_null(strstr(notes->pdata[0], "the 2 kernels before that count"));
  assert_non_null(strstr(notes->pdata[1], "its one step is not whole: times and counts are of its first 6.5e-05 s"));
}
#undef KERNEL

/* --- families -------------------------------------------------------------------------------------------------- */
static void known_names(void **state) {
  (void)state;
  static const char *const expect[][3] = {
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize128x128x64_cublas", "gemm"},
      {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x256_32x3_nn_align8>(Params)", "gemm"},
      {"Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1", "gemm"},
      {"MatMulV2", "gemm"},
      {"void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, 128u, 128u, 1u, 5u>(...)", "gemm"},
      {"void deep_gemm::sm90_fp8_gemm_1d2d_impl<deep_gemm::GemmType::MGroupedContiguous>(m_grouped)", "grouped_gemm"},
      {"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<>>>",
       "grouped_gemm"},
      {"GroupedMatmul", "grouped_gemm"},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x128", "attention"},
      {"void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>(Flash_bwd_params)",
       "attention"},
      {"FlashAttentionScoreGrad", "attention"},
      {"void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<>(Params)", "norm"},
      {"void transformer_engine::fused_rope_forward_kernel<>(float const*)", "rope"},
      {"void transformer_engine::cast_transpose_fused_kernel_notaligned<>(Param)", "quantize"},
      {"void transformer_engine::dgated_act_cast_transpose_kernel<>()", "activation"},
      {"triton_poi_fused_mul_silu_4", "activation"},
      {"triton_red_fused_add_mean_3", "elementwise"},
      {"void at::native::(anonymous namespace)::softmax_warp_forward<float>()", "softmax"},
      {"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::lambda()#1>>",
       "elementwise"},
      {"void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctorMaster<float>>(long)", "optimizer"},
      {"void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)", "dispatch"},
      {"void deep_ep::internode::combine<false, 2, __nv_bfloat16>(int4*)", "combine"},
      {"void deep_ep::intranode::notify_dispatch<8>(int const*)", "exchange_wait"},
      {"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"},
      {"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "p2p"},
      {"ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "collective"},
      {"ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "all_to_all", "all_to_allv"},
      {"hcom_allReduce__123_0_1", "all_reduce"},
      {"Memcpy HtoD (Pinned -> Device)", "memcpy"},
      {"void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>", "embedding"}};
  for (gsize i = 0; i < G_N_ELEMENTS(expect); i++) {
    int family = ms_kernel_family(ms_test_kernels, expect[i][0], expect[i][2]);
    const char *word =
        family < 0 ? "none" : g_array_index(ms_test_kernels->families, MsKernelFamily, (guint)family).class_word;
    if (strcmp(word, expect[i][1]) != 0) fail_msg("%s is %s, not %s", expect[i][0], word, expect[i][1]);
  }
}

/* Every operator belongs to one class, every operator that a class names exists. */
static void classes_cover_operators(void **state) {
  (void)state;
  int named = 0;
  for (int op = 0; op < MS_N_OPS; op++)
    if (ms_kernel_class_of_op(ms_test_kernels, ms_op_words[op]) < 0)
      fail_msg("no class of kernels covers %s", ms_op_words[op]);
  for (guint i = 0; i < ms_test_kernels->classes->len; i++)
    named +=
        (int)json_array_get_length(json_node_get_array(g_array_index(ms_test_kernels->classes, MsKernelClass, i).ops));
  assert_int_equal(named, MS_N_OPS);
}

/* --- beside each other ----------------------------------------------------------------------------------------- */
static MsProfile *profile(const char *file) { return ms_test_profile(file, -1); }

static const MsProfilePart *part(const MsProfile *p, const char *word) {
  for (int i = 0; i < p->n_parts; i++)
    if (strcmp(p->part[i].word, word) == 0) return &p->part[i];
  fail_msg("%s has no %s", p->file, word);
  return NULL;
}

static const char layout[] = "{\"tp\": 2, \"pp\": 1, \"ep\": 4}";

/* The simulated stage holds the seconds of computation that the result says. */
static void simulated_stage(void **state) {
  (void)state;
  g_autofree char *file = ms_test_profile_scenario(layout);
  g_autoptr(MsProfile) p = profile(file);
  assert_int_equal(p->kind, MS_PROFILE_SCENARIO);
  assert_close(p->step_s, p->result->step_time_s, 1e-6);
  assert_true(p->busy_s <= p->step_s && p->busy_s > 0.1 * p->step_s);
  double grouped_s = p->result->stage_time[p->stage].family_s[MS_FAMILY_GROUPED];
  assert_true(grouped_s > 0);
  assert_close(part(p, "grouped_gemm")->time_s, grouped_s, 1e-3);
}

/* What was saved says the same as the trace itself. */
static void saved(void **state) {
  (void)state;
  g_autofree char *text = sample(), *file = ms_test_data_path("saved.json"), *raw = ms_test_data_path("raw.json");
  g_autoptr(MsTrace) trace = whole(text);
  g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, ms_test_kernels);
  g_autofree char *json = ms_figures_json(&ms_trace_figures, t);
  ms_test_data_write("saved.json", json);
  ms_test_data_write("raw.json", text);
  g_autoptr(MsProfile) a = profile(raw), b = profile(file);
  assert_int_equal(b->kind, MS_PROFILE_SAVED_TRACE);
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  GError *error = NULL;
  g_autoptr(MsDiff) d = ms_diff_new(a, b, ms_test_kernels, notes, &error);
  assert_null(error);
  assert_int_equal(d->n_rows, t->n_classes);
  assert_int_equal(d->n_streams, 2);
  assert_int_equal(d->n_keys, 0);
  for (int i = 0; i < d->n_rows; i++) assert_close(d->row[i].ratio, 1, 1e-12);
}

/* Rows by seconds at stake; streams by what runs on them, whatever they are called. */
static void differences(void **state) {
  (void)state;
  g_autofree char *text = sample(), *a_file = ms_test_data_path("a.json"), *b_file = ms_test_data_path("b.json");
  ms_test_data_write("a.json", text);
  for (char *at = text; (at = strstr(at, "\"dur\": 200.000")) != NULL;) memcpy(at, "\"dur\": 260.000", 14);
  for (char *at = text; (at = strstr(at, "\"stream\": 20")) != NULL;) memcpy(at, "\"stream\": 31", 12);
  ms_test_data_write("b.json", text);
  g_autoptr(MsProfile) a = profile(a_file), b = profile(b_file);
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  GError *error = NULL;
  g_autoptr(MsDiff) d = ms_diff_new(a, b, ms_test_kernels, notes, &error);
  assert_null(error);
  assert_string_equal(d->row[0].word, "attention");
  assert_close(d->row[0].stake_s, -60e-6, 1e-9);
  assert_close(d->row[0].ratio, 200.0 / 260, 1e-9);
  assert_close(d->row[1].stake_s + 1, 1, 1e-12);
  assert_string_equal(d->stream[0].a, "7");
  assert_string_equal(d->stream[0].b, "7");
  assert_string_equal(d->stream[1].a, "20");
  assert_string_equal(d->stream[1].b, "31");
}

/* A trace of another model is refused; a saved prediction is compared by families. */
static void other_model(void **state) {
  (void)state;
  g_autofree char *file = ms_test_profile_scenario(layout), *raw = ms_test_data_path("raw.json"), *text = sample(),
                  *saved_file = ms_test_data_path("saved-run.json");
  ms_test_data_write("raw.json", text);
  g_autoptr(MsProfile) a = profile(file), b = profile(raw);
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(GError) error = NULL;
  assert_null(ms_diff_new(a, b, ms_test_kernels, notes, &error));
  assert_non_null(strstr(error->message, "is of another model"));
  assert_non_null(strstr(error->message, "4096 x 1536 x 7168"));
  g_autofree char *json = ms_figures_json(&ms_run_figures, a->result);
  ms_test_data_write("saved-run.json", json);
  g_autoptr(MsProfile) c = profile(saved_file);
  assert_int_equal(c->kind, MS_PROFILE_SAVED_RUN);
  g_autoptr(MsDiff) d = ms_diff_new(a, c, ms_test_kernels, notes, NULL);
  assert_true(a->coarse);
  assert_int_equal(c->stage, a->stage); /* the one that computes longest, of both */
  assert_close(part(c, "gemm")->time_s, a->result->stage_time[a->stage].family_s[MS_FAMILY_GEMM], 1e-9);
  for (int rank = 0; rank <= 1; rank++) { /* rank 0 is on the first stage; where others are, nothing saved says */
    g_autoptr(MsProfile) of_rank = ms_profile_load(saved_file, -1, rank, ms_test_kernels, notes, &error);
    assert_int_equal(of_rank->stage, rank == 0 ? 0 : a->stage);
  }
  g_clear_error(&error);
  assert_null(ms_profile_load(saved_file, a->result->stages, -1, ms_test_kernels, notes, &error));
  assert_non_null(strstr(error->message, "counted from 0: no stage"));
}

/* What is written in the form of the profiler is read as what was simulated; a limit leaves a whole file. */
static void round_trip(void **state) {
  (void)state;
  MS_FULL_TIER_ONLY();
  GError *error = NULL;
  guint64 left_out = 0;
  static const int rank = 5;
  MsKinetoOptions options = {&rank, 1, 2, 0};
  g_autofree char *file = ms_test_profile_scenario(layout), *out = ms_test_data_path("kineto.json");
  g_autoptr(MsProfile) want = profile(file);
  g_autoptr(MsDetail) detail = NULL;
  g_autoptr(MsResult) result = ms_simulate(want->scenario, MS_FIDELITY_FULL, &detail, &error);
  assert_null(error);
  assert_true(ms_report_trace_kineto(want->scenario, detail, &options, out, &left_out, &error));
  assert_int_equal(left_out, 0);
  g_autofree char *text = NULL;
  gsize length = 0;
  assert_true(g_file_get_contents(out, &text, &length, NULL));
  g_autoptr(MsJson) strict =
      ms_json_parse(text, (gssize)length, "trace", &error); /* as JSON is, not only as read here */
  assert_null(error);
  g_autoptr(MsTrace) trace = whole(text);
  assert_int_equal(trace->steps->len, 2);
  assert_int_equal(trace->rank, 5);
  assert_int_equal(trace->ranks, 8);
  g_autoptr(MsProfile) got = profile(out);
  assert_int_equal(got->n_parts, want->n_parts);
  for (int i = 0; i < want->n_parts; i++)
    assert_close(part(got, want->part[i].word)->time_s, want->part[i].time_s, 2e-3);
  assert_close(got->step_s, want->step_s, 1e-6);
  assert_int_equal(got->n_products, want->n_products); /* shapes come back */
  options.limit_B = (double)length / 3;
  assert_true(ms_report_trace_kineto(want->scenario, detail, &options, out, &left_out, &error));
  assert_true(left_out > 0);
  g_autofree char *less = NULL;
  assert_true(g_file_get_contents(out, &less, &length, NULL));
  assert_true((double)length < options.limit_B + 16);
  g_autoptr(MsTrace) part_of = whole(less);
  assert_true(part_of->kernels->len > 0 && part_of->kernels->len < trace->kernels->len);
}

/* Rows of a run that was timed come back as they ran: two steps of three rows on this rank, with a pause between them.
 */
static void a_run_comes_back(void **state) {
  (void)state;
  GError *error = NULL;
  const MsOp op[] = {{.name = "qkv", .kind = MS_OP_GEMM, .dtype = MS_ODT_BF16, .m = 32, .n = 64, .k = 128},
                     {.name = "attention", .kind = MS_OP_ATTENTION},
                     {.name = "grads", .kind = MS_OP_ALL_REDUCE, .message_B = 4096}};
  const double step_start_s[] = {0, 0.020}, step_s[] = {0.018, 0.016};
  MsKinetoRow row[6];
  for (int i = 0; i < 6; i++) {
    double start_s = step_start_s[i / 3] + 0.001 + 0.005 * (i % 3);
    row[i] = (MsKinetoRow){&op[i % 3], start_s, start_s + 1e-3 * (1 + i)};
  }
  g_autofree char *file = ms_test_profile_scenario(layout), *out = ms_test_data_path("run.json"), *text = NULL;
  g_autoptr(MsScenario) s = ms_scenario_load(file, &error);
  assert_null(error);
  const MsKinetoRun run = {"a CPU", 1, 2, 6, 2, row, step_start_s, step_s, 7e10};
  assert_true(ms_report_trace_run(s, &run, out, &error));
  assert_true(g_file_get_contents(out, &text, NULL, NULL));
  g_autoptr(MsTrace) trace = whole(text);
  assert_string_equal(trace->device, "a CPU");
  assert_int_equal(trace->rank, 1);
  assert_int_equal(trace->ranks, 2);
  g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, ms_test_kernels);
  assert_close(t->reference_flops, 7e10, 0);
  assert_int_equal(t->steps, 2);
  assert_close(t->known, 1, 1e-12);
  assert_close(t->time_s, 1e-3 * 21 / 2, 1e-9); /* of a step */
  assert_close(t->busy_s, t->time_s, 1e-9);
  assert_int_equal(t->n_classes, 3);
  for (int i = 0; i < 3; i++) { /* 3 + 6, 2 + 5, 1 + 4 ms */
    static const char *const word[] = {"all_reduce", "attention", "gemm"};
    assert_string_equal(t->classes[i].word, word[i]);
    assert_close(t->classes[i].time_s, 1e-3 * (9 - 2 * i) / 2, 1e-9);
  }
  assert_int_equal(t->n_products, 1);
  assert_close(t->products[0].k, 128, 0);
}

/* --- what is refused ------------------------------------------------------------------------------------------- */
static GError *refuse(const char *kind, const char *file, const char *text, gsize length) {
  (void)kind, (void)text, (void)length;
  GError *error = NULL;
  g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
  ms_trace_free(ms_trace_load(file, -1, ms_test_kernels, notes, &error));
  return error;
}

static void corpus(void **state) {
  (void)state;
  g_autofree char *folder = ms_test_data_path("");
  ms_test_refusals("kineto", folder, refuse, 8);
  ms_test_refusals("profiles", folder, refuse, 6);
}

/* Kernels are read, or one line says what is wrong. */
static gboolean sound(const MsTrace *trace, const GError *error) {
  assert_true(!trace == (error != NULL));
  if (trace) {
    g_autoptr(MsTraceTimes) t = ms_trace_times_new(trace, ms_test_kernels);
    assert_true(t->busy_s <= t->time_s * (1 + 1e-9));
    return TRUE;
  }
  assert_int_equal(error->code, MS_ERROR_INPUT);
  assert_null(strchr(error->message, '\n'));
  return FALSE;
}

/* Damaged databases: pages of them overwritten, or cut. */
static void damaged_databases(void **state) {
  (void)state;
  static const char *const files[] = {"nsys.sqlite", "rocpd.db"};
  g_autoptr(GRand) rand = g_rand_new_with_seed(29);
  int refused = 0, rounds = ms_by_tier(60, 2000);
  for (int k = 0; k < rounds; k++) {
    g_autofree char *file = g_build_filename(MS_SOURCE_DIR "/tests/data/logs", files[k % 2], NULL), *bytes = NULL;
    gsize length = 0;
    assert_true(g_file_get_contents(file, &bytes, &length, NULL));
    for (int i = g_rand_int_range(rand, 1, 40); i > 0; i--)
      bytes[g_rand_int_range(rand, 16, (gint32)length)] = (char)g_rand_int_range(rand, 0, 256);
    if (k % 5 == 0) length = (gsize)g_rand_int_range(rand, 64, (gint32)length);
    g_autofree char *other = ms_test_data_path("damaged.db");
    assert_true(g_file_set_contents(other, bytes, (gssize)length, NULL));
    g_autoptr(GError) error = NULL;
    g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(MsTrace) trace = ms_trace_load(other, -1, ms_test_kernels, notes, &error);
    refused += !sound(trace, error);
  }
  assert_in_range(refused, 1, rounds - 1);
}

static char *sample_of(int k) {
  static const char *const files[] = {"nsys_gpu_trace.csv", "rocprofv3_kernel_trace.csv", "op_summary.csv",
                                      "kernel_details.csv"};
  if (k % 2) return sample();
  g_autofree char *file = g_build_filename(MS_SOURCE_DIR "/tests/data/logs", files[k / 2 % 4], NULL);
  char *text = NULL;
  assert_true(g_file_get_contents(file, &text, NULL, NULL));
  return text;
}

/* Damaged traces. */
static void damaged(void **state) {
  (void)state;
  g_autoptr(GRand) rand = g_rand_new_with_seed(23);
  int refused = 0, rounds = ms_by_tier(200, 5000);
  for (int k = 0; k < rounds; k++) {
    g_autofree char *text = sample_of(k), *other = ms_test_mutate(rand, text);
    g_autoptr(GError) error = NULL;
    g_autoptr(GPtrArray) notes = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(MsTrace) trace = read_text(other, strlen(other), notes, &error);
    refused += !sound(trace, error);
  }
  assert_in_range(refused, 1, rounds - 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(times),
                                     cmocka_unit_test(slowdown),
                                     cmocka_unit_test(tables),
                                     cmocka_unit_test(steps_without_marks),
                                     cmocka_unit_test(cut),
                                     cmocka_unit_test(cut_in_the_only_step),
                                     cmocka_unit_test(cut_before_kernels),
                                     cmocka_unit_test(odd_traces),
                                     cmocka_unit_test(corpus),
                                     cmocka_unit_test(classes_cover_operators),
                                     cmocka_unit_test(known_names),
                                     cmocka_unit_test(damaged),
                                     cmocka_unit_test(simulated_stage),
                                     cmocka_unit_test(saved),
                                     cmocka_unit_test(differences),
                                     cmocka_unit_test(other_model),
                                     cmocka_unit_test(round_trip),
                                     cmocka_unit_test(a_run_comes_back),
                                     cmocka_unit_test(forms),
                                     cmocka_unit_test(several_gpus),
                                     cmocka_unit_test(steps_from_zero),
                                     cmocka_unit_test(cann_names),
                                     cmocka_unit_test(damaged_databases)};
  return cmocka_run_group_tests(tests, ms_test_profiles_setup, ms_test_profiles_teardown);
}
