#include "gpu/gpu.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/stats.h"

const char *const ms_gpu_vendor_words[] = {"cuda", "musa", NULL};
const char *const ms_gpu_collective_words[] = {"all_reduce", "all_gather", "reduce_scatter", "alltoall", NULL};

/* --- the table of symbols -------------------------------------------------------------------------------------- */
typedef int Status; /* 0 is success in all of these libraries */
typedef void *Handle;

/* X(member, CUDA, MUSA, parameters): signatures of cuda_runtime_api.h, cublas_api.h and nccl.h */
#define RUNTIME(X)                                                                           \
  X(get_count, "cudaGetDeviceCount", "musaGetDeviceCount", (int *))                          \
  X(set_device, "cudaSetDevice", "musaSetDevice", (int))                                     \
  X(get_attribute, "cudaDeviceGetAttribute", "musaDeviceGetAttribute", (int *, int, int))    \
  X(runtime_version, "cudaRuntimeGetVersion", "musaRuntimeGetVersion", (int *))              \
  X(memory, "cudaMemGetInfo", "musaMemGetInfo", (size_t *, size_t *))                        \
  X(allocate, "cudaMalloc", "musaMalloc", (void **, size_t))                                 \
  X(release, "cudaFree", "musaFree", (void *))                                               \
  X(copy, "cudaMemcpyAsync", "musaMemcpyAsync", (void *, const void *, size_t, int, Handle)) \
  X(stream_create, "cudaStreamCreate", "musaStreamCreate", (Handle *))                       \
  X(stream_destroy, "cudaStreamDestroy", "musaStreamDestroy", (Handle))                      \
  X(stream_wait, "cudaStreamSynchronize", "musaStreamSynchronize", (Handle))                 \
  X(event_create, "cudaEventCreate", "musaEventCreate", (Handle *))                          \
  X(event_destroy, "cudaEventDestroy", "musaEventDestroy", (Handle))                         \
  X(event_record, "cudaEventRecord", "musaEventRecord", (Handle, Handle))                    \
  X(event_wait, "cudaEventSynchronize", "musaEventSynchronize", (Handle))                    \
  X(event_ms, "cudaEventElapsedTime", "musaEventElapsedTime", (float *, Handle, Handle))
#define BLAS(X)                                                                                                   \
  X(blas_create, "cublasCreate_v2", "mublasCreate", (Handle *))                                                   \
  X(blas_destroy, "cublasDestroy_v2", "mublasDestroy", (Handle))                                                  \
  X(blas_stream, "cublasSetStream_v2", "mublasSetStream", (Handle, Handle))                                       \
  X(gemm, "cublasGemmEx", "mublasGemmEx",                                                                         \
    (Handle, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int, const void *, \
     void *, int, int, int, int))
#define COLLECTIVES(X)                                                                                      \
  X(comm_create, "ncclCommInitAll", "mcclCommInitAll", (Handle *, int, const int *))                        \
  X(comm_destroy, "ncclCommDestroy", "mcclCommDestroy", (Handle))                                           \
  X(all_reduce, "ncclAllReduce", "mcclAllReduce", (const void *, void *, size_t, int, int, Handle, Handle)) \
  X(all_gather, "ncclAllGather", "mcclAllGather", (const void *, void *, size_t, int, Handle, Handle))      \
  X(reduce_scatter, "ncclReduceScatter", "mcclReduceScatter",                                               \
    (const void *, void *, size_t, int, int, Handle, Handle))                                               \
  X(send, "ncclSend", "mcclSend", (const void *, size_t, int, int, Handle, Handle))                         \
  X(recv, "ncclRecv", "mcclRecv", (void *, size_t, int, int, Handle, Handle))                               \
  X(group_start, "ncclGroupStart", "mcclGroupStart", (void))                                                \
  X(group_end, "ncclGroupEnd", "mcclGroupEnd", (void))

typedef struct {
#define MEMBER(name, cuda, musa, parameters) Status(*name) parameters;
  RUNTIME(MEMBER) BLAS(MEMBER) COLLECTIVES(MEMBER)
#undef MEMBER
} Api;

typedef struct {
  size_t offset;
  const char *name[2];
} Symbol; /* name by vendor */
#define ROW(member, cuda, musa, parameters) {offsetof(Api, member), {cuda, musa}},
static const Symbol runtime_symbols[] = {RUNTIME(ROW)}, blas_symbols[] = {BLAS(ROW)},
                    collective_symbols[] = {COLLECTIVES(ROW)};
#undef ROW

enum { MAX_NAMES = 5, RUNTIME_LIBRARY = 0, BLAS_LIBRARY, COLLECTIVE_LIBRARY, DRIVER_LIBRARY, N_LIBRARIES };
static const char *const libraries[2][N_LIBRARIES][MAX_NAMES] = {
    {{"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"},
     {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"},
     {"libnccl.so.2", "libnccl.so"},
     {"libcuda.so.1", "libcuda.so"}},
    {{"libmusart.so.5", "libmusart.so.4", "libmusart.so.1.0", "libmusart.so"},
     {"libmublas.so.1.0", "libmublas.so"},
     {"libmccl.so.2", "libmccl.so"},
     {"libmusa.so.1.0", "libmusa.so"}}};
static const char *const driver_symbols[2][3] = {{"cuInit", "cuDeviceGet", "cuDeviceGetName"},
                                                 {"muInit", "muDeviceGet", "muDeviceGetName"}};

/* Numbers of the headers: cudaDeviceAttr, cudaMemcpyKind, cudaDataType, cublasComputeType_t, ncclDataType_t,
 * ncclRedOp_t; MUSA has the same, but names transposition as rocBLAS does and has another default algorithm. */
enum {
  ATTRIBUTE_MULTIPROCESSORS = 16,
  ATTRIBUTE_CACHE_B = 38,
  HOST_TO_DEVICE = 1,
  DEVICE_TO_DEVICE = 3,
  BF16 = 14,
  COMPUTE_FP32 = 68,
  COMM_BF16 = 9,
  COMM_SUM = 0
};
static const struct { int plain, transposed, algorithm; } blas_words[2] = {{0, 1, -1}, {111, 112, 0}};

enum { MAX_DEVICES = 64, MAX_COPIES = 16 };

struct MsGpu {
  int vendor;
  Api api;
  void *library[N_LIBRARIES];
  MsGpuInfo info;
  Handle stream, blas, start, end;
  void *random; /* device memory filled with random BF16 numbers */
  int ranks;    /* of the communicators that are open */
  Handle comm[MAX_DEVICES], comm_stream[MAX_DEVICES];
};

static gboolean failed(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);
static gboolean failed(GError **error, const char *format, ...) { /* the first failure is the one that is told */
  if (error && *error) return FALSE;
  va_list args;
  va_start(args, format);
  g_autofree char *message = g_strdup_vprintf(format, args);
  va_end(args);
  return ms_error(error, MS_ERROR_ENV, "%s", message);
}

static gboolean fine(const MsGpu *gpu, Status status, const char *call, GError **error) {
  return status == 0 || failed(error, "%s: %s returned %d", gpu->info.vendor, call, status);
}
#define CALL(gpu, member, ...) fine(gpu, (gpu)->api.member(__VA_ARGS__), #member, error)

/* --- loading --------------------------------------------------------------------------------------------------- */
static void *open_library(const char *const *names) {
  const char *folder = g_getenv("MOESIM_GPU_LIBRARIES");
  for (int i = 0; i < MAX_NAMES && names[i]; i++) {
    g_autofree char *path = folder && *folder ? g_build_filename(folder, names[i], NULL) : NULL;
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
  }
  return NULL;
}

/* NULL when all of them are there, else the first that is missing. */
static const char *load(MsGpu *gpu, int which, const Symbol *symbols, size_t n) {
  void *library = gpu->library[which] = open_library(libraries[gpu->vendor][which]);
  if (!library) return libraries[gpu->vendor][which][0];
  for (size_t i = 0; i < n; i++) {
    void *symbol = dlsym(library, symbols[i].name[gpu->vendor]);
    if (!symbol) return symbols[i].name[gpu->vendor];
    memcpy((char *)&gpu->api + symbols[i].offset, &symbol, sizeof symbol);
  }
  return NULL;
}

/* The driver alone says the name in a form that does not change with the version of a struct. */
static void read_name(MsGpu *gpu) {
  void *library = gpu->library[DRIVER_LIBRARY] = open_library(libraries[gpu->vendor][DRIVER_LIBRARY]);
  Status (*init)(unsigned) = NULL, (*get)(int *, int) = NULL, (*name)(char *, int, int) = NULL;
  int device = 0;
  if (!library) return;
  void *symbol[3];
  for (int i = 0; i < 3; i++)
    if (!(symbol[i] = dlsym(library, driver_symbols[gpu->vendor][i]))) return;
  memcpy(&init, &symbol[0], sizeof init);
  memcpy(&get, &symbol[1], sizeof get);
  memcpy(&name, &symbol[2], sizeof name);
  if (init(0) != 0 || get(&device, gpu->info.device) != 0 ||
      name(gpu->info.name, (int)sizeof gpu->info.name, device) != 0)
    gpu->info.name[0] = '\0';
  gpu->info.name[sizeof gpu->info.name - 1] = '\0';
}

/* Random numbers of about [-1, 1] in BF16, from a fixed seed. */
enum { RANDOM_B = 32 << 20 };
static gboolean make_random(MsGpu *gpu, GError **error) {
  g_autofree guint16 *host = g_malloc(RANDOM_B);
  g_autoptr(GRand) dice = g_rand_new_with_seed(1);
  for (int i = 0; i < RANDOM_B / 2; i++) {
    union {
      float f;
      guint32 u;
    } value = {.f = (float)g_rand_double_range(dice, -1, 1)};
    host[i] = (guint16)(value.u >> 16);
  }
  return CALL(gpu, allocate, &gpu->random, RANDOM_B) &&
         CALL(gpu, copy, gpu->random, host, RANDOM_B, HOST_TO_DEVICE, gpu->stream) &&
         CALL(gpu, stream_wait, gpu->stream);
}

static gboolean start(MsGpu *gpu, int device, GError **error) {
  size_t available = 0, whole = 0;
  int cache_B = 0;
  if (!CALL(gpu, get_count, &gpu->info.count)) return FALSE;
  if (gpu->info.count < 1) return failed(error, "%s: no device", gpu->info.vendor);
  if (device < 0 || device >= gpu->info.count)
    return failed(error, "%s: no device %d, there are %d", gpu->info.vendor, device, gpu->info.count);
  gpu->info.device = device;
  if (!CALL(gpu, set_device, device) ||
      !CALL(gpu, get_attribute, &gpu->info.multiprocessors, ATTRIBUTE_MULTIPROCESSORS, device) ||
      !CALL(gpu, get_attribute, &cache_B, ATTRIBUTE_CACHE_B, device) ||
      !CALL(gpu, runtime_version, &gpu->info.runtime_version) || !CALL(gpu, memory, &available, &whole) ||
      !CALL(gpu, stream_create, &gpu->stream) || !CALL(gpu, event_create, &gpu->start) ||
      !CALL(gpu, event_create, &gpu->end) || !CALL(gpu, blas_create, &gpu->blas) ||
      !CALL(gpu, blas_stream, gpu->blas, gpu->stream))
    return FALSE;
  gpu->info.memory_B = (double)whole;
  gpu->info.cache_B = cache_B;
  read_name(gpu);
  gpu->info.has_collectives =
      gpu->info.count > 1 && !load(gpu, COLLECTIVE_LIBRARY, collective_symbols, G_N_ELEMENTS(collective_symbols));
  return make_random(gpu, error);
}

static MsGpu *open_vendor(int vendor, int device, GError **error) {
  MsGpu *gpu = g_new0(MsGpu, 1);
  gpu->vendor = vendor;
  g_strlcpy(gpu->info.vendor, ms_gpu_vendor_words[vendor], sizeof gpu->info.vendor);
  const char *missing = load(gpu, RUNTIME_LIBRARY, runtime_symbols, G_N_ELEMENTS(runtime_symbols));
  if (!missing) missing = load(gpu, BLAS_LIBRARY, blas_symbols, G_N_ELEMENTS(blas_symbols));
  gboolean ok = missing ? failed(error, "%s: no %s", gpu->info.vendor, missing) : start(gpu, device, error);
  if (ok) return gpu;
  ms_gpu_close(gpu);
  return NULL;
}

MsGpu *ms_gpu_open(const char *vendor, int device, GError **error) {
  g_autoptr(GString) why = g_string_new(NULL);
  for (int i = 0; ms_gpu_vendor_words[i]; i++) {
    if (vendor && strcmp(vendor, ms_gpu_vendor_words[i]) != 0) continue;
    g_autoptr(GError) reason = NULL;
    MsGpu *gpu = open_vendor(i, device, &reason);
    if (gpu) return gpu;
    g_string_append_printf(why, "%s%s", why->len ? "; " : "", reason->message);
  }
  failed(error, "no GPU can be measured here: %s", why->str);
  return NULL;
}

static void close_comms(MsGpu *gpu) {
  for (int i = 0; i < gpu->ranks; i++) {
    if (gpu->comm[i]) gpu->api.comm_destroy(gpu->comm[i]);
    if (gpu->comm_stream[i]) gpu->api.stream_destroy(gpu->comm_stream[i]);
    gpu->comm[i] = gpu->comm_stream[i] = NULL;
  }
  gpu->ranks = 0;
}

void ms_gpu_close(MsGpu *gpu) {
  if (!gpu) return;
  close_comms(gpu);
  if (gpu->random) gpu->api.release(gpu->random);
  if (gpu->blas) gpu->api.blas_destroy(gpu->blas);
  if (gpu->start) gpu->api.event_destroy(gpu->start);
  if (gpu->end) gpu->api.event_destroy(gpu->end);
  if (gpu->stream) gpu->api.stream_destroy(gpu->stream);
  for (int i = 0; i < N_LIBRARIES; i++)
    if (gpu->library[i]) dlclose(gpu->library[i]);
  g_free(gpu);
}

const MsGpuInfo *ms_gpu_info(const MsGpu *gpu) { return &gpu->info; }

/* --- timing ---------------------------------------------------------------------------------------------------- */
typedef gboolean (*Work)(MsGpu *gpu, void *data, int turn, GError **error);

static gboolean batch(MsGpu *gpu, Work work, void *data, Handle stream, int calls, int *turn, double *seconds,
                      GError **error) {
  float ms = 0;
  if (!CALL(gpu, event_record, gpu->start, stream)) return FALSE;
  for (int i = 0; i < calls; i++)
    if (!work(gpu, data, (*turn)++, error)) return FALSE;
  if (!CALL(gpu, event_record, gpu->end, stream) || !CALL(gpu, event_wait, gpu->end) ||
      !CALL(gpu, event_ms, &ms, gpu->start, gpu->end))
    return FALSE;
  *seconds = ms * 1e-3 / calls;
  return isfinite(*seconds) && *seconds > 0
             ? TRUE
             : failed(error, "%s: events say %g s for a call", gpu->info.vendor, *seconds);
}

static gboolean timed(MsGpu *gpu, Work work, void *data, Handle stream, MsGpuProtocol protocol, double *seconds,
                      GError **error) {
  enum { WARM = 3, MAX_CALLS = 100000 };
  int turn = 0, calls = WARM;
  double once = 0;
  if (!batch(gpu, work, data, stream, WARM, &turn, &once, error) ||
      !batch(gpu, work, data, stream, WARM, &turn, &once, error))
    return FALSE;
  calls = (int)CLAMP(ceil(protocol.batch_s / once), WARM, MAX_CALLS);
  g_autofree double *times = g_new(double, MAX(protocol.batches, 1));
  for (int i = 0; i < MAX(protocol.batches, 1); i++)
    if (!batch(gpu, work, data, stream, calls, &turn, &times[i], error)) return FALSE;
  *seconds = ms_quantile(times, MAX(protocol.batches, 1), 0.5);
  return TRUE;
}

/* --- what is timed --------------------------------------------------------------------------------------------- */
typedef struct { /* copies of a buffer, used in turn, so that a call does not find the operands of the one before in the
                    cache */
  int copies;
  void *at[MAX_COPIES];
} Buffers;

static void buffers_free(MsGpu *gpu, Buffers *b) {
  for (int i = 0; i < b->copies; i++) gpu->api.release(b->at[i]);
  b->copies = 0;
}

static gboolean fill(MsGpu *gpu, void *to, size_t bytes, GError **error) {
  for (size_t done = 0; done < bytes; done += RANDOM_B)
    if (!CALL(gpu, copy, (char *)to + done, gpu->random, MIN((size_t)RANDOM_B, bytes - done), DEVICE_TO_DEVICE,
              gpu->stream))
      return FALSE;
  return TRUE;
}

/* What one call touches in all, `bytes` of it in each of these buffers. */
static gboolean buffers_new(MsGpu *gpu, Buffers *b, double bytes, double touched_B, GError **error) {
  int copies = (int)CLAMP(ceil(2 * gpu->info.cache_B / MAX(touched_B, 1)) + 1, 2, MAX_COPIES);
  *b = (Buffers){0};
  for (int i = 0; i < copies; i++) {
    void *memory = NULL;
    if (!CALL(gpu, allocate, &memory, (size_t)bytes)) break;
    b->at[b->copies++] = memory;
    if (!fill(gpu, memory, (size_t)bytes, error)) break;
  }
  if (b->copies == copies) return CALL(gpu, stream_wait, gpu->stream);
  buffers_free(gpu, b);
  return FALSE;
}

typedef struct {
  Buffers a, b, c;
  MsGpuGemmPass pass;
  int m, n, k;
} Gemm;

/* The library is column-major: a row-major C = A B^T is computed as C^T = B A^T. */
static gboolean gemm_once(MsGpu *gpu, void *data, int turn, GError **error) {
  Gemm *g = data;
  static const float one = 1, zero = 0;
  int plain = blas_words[gpu->vendor].plain, transposed = blas_words[gpu->vendor].transposed;
  gboolean a_transposed = g->pass == MS_GPU_WGRAD,
           b_transposed = g->pass == MS_GPU_FORWARD; /* as they lie in memory, row-major */
  int at = turn % g->a.copies;
  return CALL(gpu, gemm, gpu->blas, b_transposed ? transposed : plain, a_transposed ? transposed : plain, g->n, g->m,
              g->k, &one, g->b.at[at], BF16, b_transposed ? g->k : g->n, g->a.at[at], BF16, a_transposed ? g->m : g->k,
              &zero, g->c.at[at], BF16, g->n, COMPUTE_FP32, blas_words[gpu->vendor].algorithm);
}

gboolean ms_gpu_gemm(MsGpu *gpu, MsGpuGemmPass pass, int m, int n, int k, MsGpuProtocol protocol, double *seconds,
                     GError **error) {
  Gemm g = {.pass = pass, .m = m, .n = n, .k = k};
  double a_B = 2.0 * m * k, b_B = 2.0 * n * k, c_B = 2.0 * m * n, touched_B = a_B + b_B + c_B;
  gboolean ok = CALL(gpu, set_device, gpu->info.device) && buffers_new(gpu, &g.a, a_B, touched_B, error) &&
                buffers_new(gpu, &g.b, b_B, touched_B, error) && buffers_new(gpu, &g.c, c_B, touched_B, error) &&
                timed(gpu, gemm_once, &g, gpu->stream, protocol, seconds, error);
  buffers_free(gpu, &g.a);
  buffers_free(gpu, &g.b);
  buffers_free(gpu, &g.c);
  return ok;
}

typedef struct {
  Buffers from, to;
  size_t bytes;
} Copy;

static gboolean copy_once(MsGpu *gpu, void *data, int turn, GError **error) {
  Copy *c = data;
  return CALL(gpu, copy, c->to.at[turn % c->to.copies], c->from.at[turn % c->from.copies], c->bytes, DEVICE_TO_DEVICE,
              gpu->stream);
}

static gboolean copy(MsGpu *gpu, double bytes, double touched_B, MsGpuProtocol protocol, double *seconds,
                     GError **error) {
  Copy c = {.bytes = (size_t)bytes};
  gboolean ok = CALL(gpu, set_device, gpu->info.device) && buffers_new(gpu, &c.from, bytes, touched_B, error) &&
                buffers_new(gpu, &c.to, bytes, touched_B, error) &&
                timed(gpu, copy_once, &c, gpu->stream, protocol, seconds, error);
  buffers_free(gpu, &c.from);
  buffers_free(gpu, &c.to);
  return ok;
}

gboolean ms_gpu_copy(MsGpu *gpu, double bytes, MsGpuProtocol protocol, double *seconds, GError **error) {
  return copy(gpu, bytes, 2 * bytes, protocol, seconds, error);
}

gboolean ms_gpu_cache_copy(MsGpu *gpu, double bytes, MsGpuProtocol protocol, double *seconds, GError **error) {
  return copy(gpu, bytes, HUGE_VAL, protocol, seconds, error);
}

/* --- collectives ----------------------------------------------------------------------------------------------- */
static gboolean open_comms(MsGpu *gpu, int ranks, GError **error) {
  int device[MAX_DEVICES];
  if (gpu->ranks == ranks) return TRUE;
  close_comms(gpu);
  for (int i = 0; i < ranks; i++) device[i] = i;
  gpu->ranks = ranks; /* what is open by then is closed by the next call or the end */
  for (int i = 0; i < ranks; i++)
    if (!CALL(gpu, set_device, i) || !CALL(gpu, stream_create, &gpu->comm_stream[i])) return FALSE;
  return CALL(gpu, comm_create, gpu->comm, ranks, device);
}

typedef struct {
  MsGpuCollective what;
  size_t elements;
  int ranks;
  void *from[MAX_DEVICES], *to[MAX_DEVICES];
} Exchange;

static gboolean exchange_rank(MsGpu *gpu, const Exchange *x, int rank, GError **error) {
  Handle comm = gpu->comm[rank], stream = gpu->comm_stream[rank];
  size_t part = x->elements / (size_t)x->ranks;
  switch (x->what) {
  case MS_GPU_ALL_REDUCE:
    return CALL(gpu, all_reduce, x->from[rank], x->to[rank], x->elements, COMM_BF16, COMM_SUM, comm, stream);
  case MS_GPU_ALL_GATHER: return CALL(gpu, all_gather, x->from[rank], x->to[rank], part, COMM_BF16, comm, stream);
  case MS_GPU_REDUCE_SCATTER:
    return CALL(gpu, reduce_scatter, x->from[rank], x->to[rank], part, COMM_BF16, COMM_SUM, comm, stream);
  default: break;
  }
  for (int peer = 0; peer < x->ranks; peer++) {
    size_t at_B = 2 * part * (size_t)peer;
    if (!CALL(gpu, send, (const char *)x->from[rank] + at_B, part, COMM_BF16, peer, comm, stream) ||
        !CALL(gpu, recv, (char *)x->to[rank] + at_B, part, COMM_BF16, peer, comm, stream))
      return FALSE;
  }
  return TRUE;
}

static gboolean exchange_once(MsGpu *gpu, void *data, int turn, GError **error) {
  (void)turn;
  const Exchange *x = data;
  if (!CALL(gpu, group_start)) return FALSE;
  gboolean ok = TRUE;
  for (int i = 0; i < x->ranks && ok; i++) ok = exchange_rank(gpu, x, i, error);
  return CALL(gpu, group_end) && ok;
}

static gboolean exchange_buffers(MsGpu *gpu, Exchange *x, GError **error) {
  for (int i = 0; i < x->ranks; i++)
    if (!CALL(gpu, set_device, i) || !CALL(gpu, allocate, &x->from[i], 2 * x->elements) ||
        !CALL(gpu, allocate, &x->to[i], 2 * x->elements))
      return FALSE;
  return CALL(gpu, set_device, gpu->info.device);
}

gboolean ms_gpu_collective(MsGpu *gpu, MsGpuCollective what, int ranks, double bytes, MsGpuProtocol protocol,
                           double *seconds, GError **error) {
  if (!gpu->info.has_collectives)
    return failed(error, "%s: no %s, or a single device", gpu->info.vendor,
                  libraries[gpu->vendor][COLLECTIVE_LIBRARY][0]);
  if (ranks < 2 || ranks > MIN(gpu->info.count, MAX_DEVICES))
    return failed(error, "%s: %d ranks of %d devices", gpu->info.vendor, ranks, gpu->info.count);
  if (gpu->info.device >= ranks)
    return failed(error, "%s: device %d, whose events are read, is not among the first %d", gpu->info.vendor,
                  gpu->info.device, ranks);
  Exchange x = {.what = what, .ranks = ranks, .elements = (size_t)(bytes / 2 / ranks) * (size_t)ranks};
  gboolean ok = open_comms(gpu, ranks, error) && exchange_buffers(gpu, &x, error) &&
                timed(gpu, exchange_once, &x, gpu->comm_stream[gpu->info.device], protocol, seconds, error);
  for (int i = 0; i < ranks; i++) {
    if (x.from[i]) gpu->api.release(x.from[i]);
    if (x.to[i]) gpu->api.release(x.to[i]);
  }
  return ok;
}
