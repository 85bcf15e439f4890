/* tests/fake/fake_gpu.c - a GPU that exists on paper only, behind the symbols of CUDA (or, with FAKE_MUSA, of MUSA).
 *
 * It keeps a clock: a product takes 5 us + 2mnk / 400 TFLOP/s, a copy 4 us + bytes / 2 TB/s, a collective 20 us + bytes
 * / 100 GB/s; nothing is computed. It is strict: buffers must have been allocated and be large enough for what a call
 * names, words must be those of the vendor's headers. FAKE_GPU_DEVICES devices (default 1); an allocation that does not
 * fit into FAKE_GPU_MEMORY_MB (default 65536) fails with 2; FAKE_GPU_FAIL names a call that fails. */
#include <stdlib.h>
#include <string.h>

#ifdef FAKE_MUSA
#define RT(name)      musa##name
#define BLAS(name)    mublas##name
#define BLAS_V2(name) mublas##name
#define COMM(name)    mccl##name
#define DRIVER(name)  mu##name
enum { PLAIN = 111, TRANSPOSED = 112, ALGORITHM = 0 };
#else
#define RT(name)      cuda##name
#define BLAS(name)    cublas##name
#define BLAS_V2(name) cublas##name##_v2
#define COMM(name)    nccl##name
#define DRIVER(name)  cu##name
enum { PLAIN = 0, TRANSPOSED = 1, ALGORITHM = -1 };
#endif
#define API __attribute__((visibility("default")))

enum { OK = 0, WRONG = 1, NO_MEMORY = 2, BLOCKS = 4096 };
static struct {
  char *at;
  size_t bytes;
} block[BLOCKS];
static size_t used_B;
static double clock_s;

static int number(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }
static int fails(const char *call) { return getenv("FAKE_GPU_FAIL") && strcmp(getenv("FAKE_GPU_FAIL"), call) == 0; }

/* Whether [at, at + bytes) lies in one allocation. */
static int holds(const void *at, size_t bytes) {
  for (int i = 0; i < BLOCKS; i++)
    if (block[i].at && (const char *)at >= block[i].at && (const char *)at + bytes <= block[i].at + block[i].bytes)
      return 1;
  return 0;
}

API int RT(GetDeviceCount)(int *count) { return *count = number("FAKE_GPU_DEVICES", 1), fails("count"); }
API int RT(SetDevice)(int device) { return device < 0 || device >= number("FAKE_GPU_DEVICES", 1); }
API int RT(DeviceGetAttribute)(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == 16 ? 132 : attribute == 38 ? 50 << 20 : 0;
  return *value == 0;
}
API int RT(RuntimeGetVersion)(int *version) { return *version = 13000, OK; }
API int RT(MemGetInfo)(size_t *available, size_t *whole) {
  *whole = (size_t)number("FAKE_GPU_MEMORY_MB", 65536) << 20;
  return *available = *whole - used_B, OK;
}
API int RT(Malloc)(void **at, size_t bytes) { /* addresses without memory behind them: nobody may touch them */
  static char *next = (char *)0x100000000000;
  if (used_B + bytes > (size_t)number("FAKE_GPU_MEMORY_MB", 65536) << 20) return NO_MEMORY;
  for (int i = 0; i < BLOCKS; i++)
    if (!block[i].at) {
      *at = block[i].at = next;
      block[i].bytes = bytes;
      used_B += bytes;
      next += bytes + (1 << 20);
      return OK;
    }
  return NO_MEMORY;
}
API int RT(Free)(void *at) {
  for (int i = 0; i < BLOCKS; i++)
    if (block[i].at == at) {
      used_B -= block[i].bytes;
      block[i].at = NULL;
      return OK;
    }
  return WRONG;
}
API int RT(MemcpyAsync)(void *to, const void *from, size_t bytes, int kind, void *stream) {
  if (!stream || !holds(to, bytes) || (kind == 3 ? !holds(from, bytes) : kind != 1)) return WRONG;
  clock_s += 4e-6 + 2.0 * (double)bytes / 2e12;
  return OK;
}
API int RT(StreamCreate)(void **stream) { return *stream = malloc(1), OK; }
API int RT(StreamDestroy)(void *stream) { return free(stream), OK; }
API int RT(StreamSynchronize)(void *stream) { return stream ? OK : WRONG; }
API int RT(EventCreate)(void **event) { return *event = calloc(1, sizeof(double)), OK; }
API int RT(EventDestroy)(void *event) { return free(event), OK; }
API int RT(EventRecord)(void *event, void *stream) { return *(double *)event = clock_s, stream ? OK : WRONG; }
API int RT(EventSynchronize)(void *event) { return event ? OK : WRONG; }
API int RT(EventElapsedTime)(float *ms, void *start, void *end) {
  return *ms = (float)((*(double *)end - *(double *)start) * 1e3), OK;
}

API int BLAS_V2(Create)(void **handle) { return *handle = malloc(1), fails("blas"); }
API int BLAS_V2(Destroy)(void *handle) { return free(handle), OK; }
API int BLAS_V2(SetStream)(void *handle, void *stream) { return handle && stream ? OK : WRONG; }
API int BLAS(GemmEx)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int a_type,
                     int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                     int compute, int algorithm) {
  size_t a_columns = (size_t)(ta == PLAIN ? k : m), b_columns = (size_t)(tb == PLAIN ? n : k);
  if (!handle || *(const float *)alpha != 1 || *(const float *)beta != 0 || (ta != PLAIN && ta != TRANSPOSED) ||
      (tb != PLAIN && tb != TRANSPOSED))
    return WRONG;
  if (a_type != 14 || b_type != 14 || c_type != 14 || compute != 68 || algorithm != ALGORITHM || fails("gemm"))
    return WRONG;
  if (lda < (ta == PLAIN ? m : k) || ldb < (tb == PLAIN ? k : n) || ldc < m) return WRONG;
  if (!holds(a, 2 * a_columns * (size_t)lda) || !holds(b, 2 * b_columns * (size_t)ldb) ||
      !holds(c, 2 * (size_t)n * (size_t)ldc))
    return WRONG;
  clock_s += 5e-6 + 2.0 * m * n * k / 400e12;
  return OK;
}

/* One clock serves all devices, so only the first rank of a group moves it. */
static int ranks, in_group;
static size_t group_B;
typedef struct {
  int rank;
} Comm;

API int COMM(CommInitAll)(void **comm, int n, const int *devices) {
  ranks = n;
  for (int i = 0; i < n; i++) {
    Comm *c = malloc(sizeof *c);
    c->rank = devices[i];
    comm[i] = c;
  }
  return fails("comm");
}
API int COMM(CommDestroy)(void *comm) { return free(comm), OK; }
API int COMM(GroupStart)(void) { return in_group++, group_B = 0, OK; }
API int COMM(GroupEnd)(void) {
  if (in_group-- != 1) return WRONG;
  clock_s += 20e-6 + (double)group_B / 100e9;
  return OK;
}
static int exchange(const void *from, size_t from_B, const void *to, size_t to_B, size_t whole_B, int type,
                    int operation, const Comm *comm, void *stream) {
  if (!in_group || !stream || type != 9 || operation != 0 || (from && !holds(from, from_B)) || (to && !holds(to, to_B)))
    return WRONG;
  if (comm->rank == 0) group_B += whole_B;
  return OK;
}
API int COMM(AllReduce)(const void *from, void *to, size_t n, int type, int operation, void *comm, void *stream) {
  return exchange(from, 2 * n, to, 2 * n, 2 * n, type, operation, comm, stream);
}
API int COMM(AllGather)(const void *from, void *to, size_t n, int type, void *comm, void *stream) {
  return exchange(from, 2 * n, to, 2 * n * (size_t)ranks, 2 * n * (size_t)ranks, type, 0, comm, stream);
}
API int COMM(ReduceScatter)(const void *from, void *to, size_t n, int type, int operation, void *comm, void *stream) {
  return exchange(from, 2 * n * (size_t)ranks, to, 2 * n, 2 * n * (size_t)ranks, type, operation, comm, stream);
}
API int COMM(Send)(const void *from, size_t n, int type, int peer, void *comm, void *stream) {
  return peer < ranks ? exchange(from, 2 * n, NULL, 0, 2 * n, type, 0, comm, stream) : WRONG;
}
API int COMM(Recv)(void *to, size_t n, int type, int peer, void *comm, void *stream) {
  return peer < ranks ? exchange(NULL, 0, to, 2 * n, 0, type, 0, comm, stream) : WRONG;
}

API int DRIVER(Init)(unsigned flags) { return flags != 0; }
API int DRIVER(DeviceGet)(int *handle, int device) { return *handle = device, OK; }
API int DRIVER(DeviceGetName)(char *name, int length, int device) {
  (void)device;
  strncpy(name, "Paper GPU 64GB", (size_t)length - 1);
  return OK;
}
