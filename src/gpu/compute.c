#include "gpu/compute.h"

#include <dlfcn.h>
#include <string.h>

#include "base/err.h"

const char *const ms_compute_words[] = {"cuda", "opencl", NULL};

typedef struct { /* one argument of a kernel: a number, or memory of the device */
  size_t size_B;
  union {
    int i;
    float f;
    void *memory;
  } value;
} Argument;
enum { ARGUMENTS = 12 };

typedef struct Backend Backend;
struct Backend { /* what CUDA and OpenCL do; every function returns FALSE and sets *error on failure */
  MsDialect dialect;
  gboolean (*open)(MsCompute *compute, int device, GError **error);
  void (*close)(MsCompute *compute);
  gboolean (*compile)(MsCompute *compute, const char *source, void **module, GError **error);
  void (*unload)(MsCompute *compute, void *module);
  gboolean (*function)(MsCompute *compute, void *module, const char *name, void **function, GError **error);
  void (*forget)(MsCompute *compute, void *function);
  gboolean (*allocate)(MsCompute *compute, size_t size_B, void **memory, GError **error);
  void (*release)(MsCompute *compute, void *memory);
  gboolean (*write)(MsCompute *compute, void *memory, const void *from, size_t size_B, GError **error);
  gboolean (*read)(MsCompute *compute, void *to, void *memory, size_t size_B, GError **error);
  gboolean (*launch)(MsCompute *compute, void *function, const size_t *groups, Argument *arguments, int n,
                     GError **error);
  gboolean (*begin)(MsCompute *compute, GError **error); /* of a timed stretch */
  gboolean (*end)(MsCompute *compute, double *seconds, GError **error);
};

typedef int (*Call)(void);

struct MsCompute {
  const Backend *backend;
  void *library[2];
  char name[256];
  void *context, *queue, *device, *event[2]; /* handles of the library */
  gint64 since;
};

struct MsComputeKernel {
  MsCompute *compute;
  MsScheme *scheme;
  MsSourceOptions options;
  void *module, *multiply, *merge;
};

static gboolean failed(GError **error, const char *format, ...) G_GNUC_PRINTF(2, 3);
static gboolean failed(GError **error, const char *format, ...) {
  va_list args;
  va_start(args, format);
  g_autofree char *message = g_strdup_vprintf(format, args);
  va_end(args);
  if (!error || !*error) ms_error(error, MS_ERROR_ENV, "%s", message);
  return FALSE;
}

/* --- libraries ------------------------------------------------------------------------------------------------- */
static void *open_library(const char *const *names) {
  const char *folder = g_getenv("MOESIM_GPU_LIBRARIES");
  void *library = NULL;
  for (int i = 0; names[i] && !library; i++) {
    g_autofree char *path = folder && *folder ? g_build_filename(folder, names[i], NULL) : NULL;
    if (path) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  }
  return library;
}

typedef struct {
  const char *name;
  void *to; /* address of a pointer to a function */
} Symbol;

static gboolean load(void *library, const char *file, const Symbol *symbols, size_t n, GError **error) {
  if (!library) return failed(error, "no %s", file);
  for (size_t i = 0; i < n; i++) {
    void *symbol = dlsym(library, symbols[i].name);
    if (!symbol) return failed(error, "%s has no %s", file, symbols[i].name);
    memcpy(symbols[i].to, &symbol, sizeof symbol);
  }
  return TRUE;
}

/* --- CUDA ------------------------------------------------------------------------------------------------------ */
static struct {
  int (*init)(unsigned), (*device_get)(int *, int), (*device_name)(char *, int, int), (*attribute)(int *, int, int),
      (*retain)(void **, int), (*release)(int), (*set_current)(void *), (*module_load)(void **, const void *),
      (*module_unload)(void *), (*module_function)(void **, void *, const char *), (*allocate)(void **, size_t),
      (*free)(void *), (*write)(void *, const void *, size_t), (*read)(void *, void *, size_t),
      (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
      (*synchronize)(void), (*event_create)(void **, unsigned), (*event_destroy)(void *),
      (*event_record)(void *, void *), (*event_wait)(void *), (*event_ms)(float *, void *, void *);
  int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *),
      (*compile)(void *, int, const char *const *), (*ptx_size)(void *, size_t *), (*ptx)(void *, char *),
      (*log_size)(void *, size_t *), (*log)(void *, char *), (*destroy)(void **);
} cuda;

static gboolean cuda_fine(int status, const char *call, GError **error) {
  return status == 0 || failed(error, "cuda: %s returned %d", call, status);
}
#define CUDA(member, ...) cuda_fine(cuda.member(__VA_ARGS__), #member, error)

static int cuda_device(const MsCompute *compute) { return GPOINTER_TO_INT(compute->device); }

static gboolean cuda_open(MsCompute *compute, int device, GError **error) {
  static const char *const driver[] = {"libcuda.so.1", "libcuda.so", NULL}, *const nvrtc[] = {"libnvrtc.so.13",
                                                                                              "libnvrtc.so.12",
                                                                                              "libnvrtc.so.11.2",
                                                                                              "libnvrtc.so", NULL};
  const Symbol driver_symbols[] = {{"cuInit", &cuda.init},
                                   {"cuDeviceGet", &cuda.device_get},
                                   {"cuDeviceGetName", &cuda.device_name},
                                   {"cuDeviceGetAttribute", &cuda.attribute},
                                   {"cuDevicePrimaryCtxRetain", &cuda.retain},
                                   {"cuDevicePrimaryCtxRelease_v2", &cuda.release},
                                   {"cuCtxSetCurrent", &cuda.set_current},
                                   {"cuModuleLoadData", &cuda.module_load},
                                   {"cuModuleUnload", &cuda.module_unload},
                                   {"cuModuleGetFunction", &cuda.module_function},
                                   {"cuMemAlloc_v2", &cuda.allocate},
                                   {"cuMemFree_v2", &cuda.free},
                                   {"cuMemcpyHtoD_v2", &cuda.write},
                                   {"cuMemcpyDtoH_v2", &cuda.read},
                                   {"cuLaunchKernel", &cuda.launch},
                                   {"cuCtxSynchronize", &cuda.synchronize},
                                   {"cuEventCreate", &cuda.event_create},
                                   {"cuEventDestroy_v2", &cuda.event_destroy},
                                   {"cuEventRecord", &cuda.event_record},
                                   {"cuEventSynchronize", &cuda.event_wait},
                                   {"cuEventElapsedTime", &cuda.event_ms}};
  const Symbol nvrtc_symbols[] = {{"nvrtcCreateProgram", &cuda.create},       {"nvrtcCompileProgram", &cuda.compile},
                                  {"nvrtcGetPTXSize", &cuda.ptx_size},        {"nvrtcGetPTX", &cuda.ptx},
                                  {"nvrtcGetProgramLogSize", &cuda.log_size}, {"nvrtcGetProgramLog", &cuda.log},
                                  {"nvrtcDestroyProgram", &cuda.destroy}};
  int handle = 0;
  compute->library[0] = open_library(driver);
  compute->library[1] = open_library(nvrtc);
  if (!load(compute->library[0], driver[0], driver_symbols, G_N_ELEMENTS(driver_symbols), error) ||
      !load(compute->library[1], nvrtc[1], nvrtc_symbols, G_N_ELEMENTS(nvrtc_symbols), error) || !CUDA(init, 0) ||
      !CUDA(device_get, &handle, device) || !CUDA(device_name, compute->name, (int)sizeof compute->name, handle))
    return FALSE;
  compute->device = GINT_TO_POINTER(handle);
  return CUDA(retain, &compute->context, handle) && CUDA(set_current, compute->context) &&
         CUDA(event_create, &compute->event[0], 0) && CUDA(event_create, &compute->event[1], 0);
}

static void cuda_close(MsCompute *compute) {
  for (int i = 0; i < 2; i++)
    if (compute->event[i]) cuda.event_destroy(compute->event[i]);
  if (compute->context) cuda.release(cuda_device(compute));
}

static gboolean cuda_compile(MsCompute *compute, const char *source, void **module, GError **error) {
  enum { MAJOR = 75, MINOR = 76 }; /* attributes */
  int major = 0, minor = 0;
  size_t size = 0;
  void *program = NULL;
  if (!CUDA(attribute, &major, MAJOR, cuda_device(compute)) || !CUDA(attribute, &minor, MINOR, cuda_device(compute)) ||
      !CUDA(create, &program, source, "lcma.cu", 0, NULL, NULL))
    return FALSE;
  g_autofree char *architecture = g_strdup_printf("--gpu-architecture=compute_%d%d", major, minor), *text = NULL;
  const char *const options[] = {architecture, "--fmad=true"};
  gboolean ok = cuda.compile(program, 2, options) == 0;
  if (!ok) {
    if (cuda.log_size(program, &size) == 0) cuda.log(program, text = g_malloc0(size + 1));
    failed(error, "cuda: the generated kernel was refused: %s", text ? text : "no reason given");
  } else
    ok = CUDA(ptx_size, program, &size) && CUDA(ptx, program, text = g_malloc0(size + 1)) &&
         CUDA(module_load, module, text);
  cuda.destroy(&program);
  return ok;
}

static void cuda_unload(MsCompute *compute, void *module) {
  (void)compute;
  cuda.module_unload(module);
}
static gboolean cuda_function(MsCompute *compute, void *module, const char *name, void **function, GError **error) {
  (void)compute;
  return CUDA(module_function, function, module, name);
}
static void cuda_forget(MsCompute *compute, void *function) {
  (void)compute;
  (void)function;
}
static gboolean cuda_allocate(MsCompute *compute, size_t size_B, void **memory, GError **error) {
  (void)compute;
  return CUDA(allocate, memory, size_B);
}
static void cuda_release(MsCompute *compute, void *memory) {
  (void)compute;
  cuda.free(memory);
}
static gboolean cuda_write(MsCompute *compute, void *memory, const void *from, size_t size_B, GError **error) {
  (void)compute;
  return CUDA(write, memory, from, size_B);
}
static gboolean cuda_read(MsCompute *compute, void *to, void *memory, size_t size_B, GError **error) {
  (void)compute;
  return CUDA(read, to, memory, size_B);
}

static gboolean cuda_launch(MsCompute *compute, void *function, const size_t *groups, Argument *arguments, int n,
                            GError **error) {
  void *pointer[ARGUMENTS];
  (void)compute;
  for (int i = 0; i < n; i++) pointer[i] = &arguments[i].value;
  return CUDA(launch, function, (unsigned)groups[0], (unsigned)groups[1], (unsigned)groups[2], MS_SOURCE_THREADS, 1, 1,
              0, NULL, pointer, NULL);
}

static gboolean cuda_begin(MsCompute *compute, GError **error) { return CUDA(event_record, compute->event[0], NULL); }
static gboolean cuda_end(MsCompute *compute, double *seconds, GError **error) {
  float ms = 0;
  if (!CUDA(event_record, compute->event[1], NULL) || !CUDA(event_wait, compute->event[1]) ||
      !CUDA(event_ms, &ms, compute->event[0], compute->event[1]))
    return FALSE;
  *seconds = 1e-3 * (double)ms;
  return TRUE;
}

/* --- OpenCL ---------------------------------------------------------------------------------------------------- */
static struct {
  int (*platforms)(unsigned, void **, unsigned *), (*devices)(void *, guint64, unsigned, void **, unsigned *),
      (*info)(void *, unsigned, size_t, void *, size_t *);
  void *(*context)(const void *, unsigned, void *const *, void *, void *, int *),
      *(*queue)(void *, void *, guint64, int *);
  void *(*program)(void *, unsigned, const char **, const size_t *, int *);
  int (*build)(void *, unsigned, void *const *, const char *, void *, void *),
      (*build_info)(void *, void *, unsigned, size_t, void *, size_t *);
  void *(*kernel)(void *, const char *, int *), *(*buffer)(void *, guint64, size_t, void *, int *);
  int (*argument)(void *, unsigned, size_t, const void *),
      (*launch)(void *, void *, unsigned, const size_t *, const size_t *, const size_t *, unsigned, const void *,
                void *),
      (*read)(void *, void *, unsigned, size_t, size_t, void *, unsigned, const void *, void *),
      (*write)(void *, void *, unsigned, size_t, size_t, const void *, unsigned, const void *, void *),
      (*finish)(void *);
  int (*release_context)(void *), (*release_queue)(void *), (*release_program)(void *), (*release_kernel)(void *),
      (*release_buffer)(void *);
} cl;

static gboolean cl_fine(int status, const char *call, GError **error) {
  return status == 0 || failed(error, "opencl: %s returned %d", call, status);
}
#define CL(member, ...) cl_fine(cl.member(__VA_ARGS__), #member, error)

/* The device-th device of all platforms. */
static gboolean cl_find(MsCompute *compute, int device, GError **error) {
  enum { MOST = 16, ALL = 0xffffffff, NAME = 0x102b };
  void *platform[MOST], *found[MOST];
  unsigned platforms = 0, n = 0;
  int all = 0;
  if (cl.platforms(MOST, platform, &platforms) != 0 || platforms == 0) return failed(error, "opencl: no platform");
  for (unsigned i = 0; i < MIN(platforms, MOST); i++) {
    if (cl.devices(platform[i], ALL, MOST, found, &n) != 0) continue;
    if (device < all + (int)n) {
      compute->device = found[device - all];
      return CL(info, compute->device, NAME, sizeof compute->name - 1, compute->name, NULL);
    }
    all += (int)n;
  }
  return failed(error, "opencl: no device %d, there are %d", device, all);
}

static gboolean cl_open(MsCompute *compute, int device, GError **error) {
  static const char *const files[] = {"libOpenCL.so.1", "libOpenCL.so", NULL};
  const Symbol symbols[] = {{"clGetPlatformIDs", &cl.platforms},
                            {"clGetDeviceIDs", &cl.devices},
                            {"clGetDeviceInfo", &cl.info},
                            {"clCreateContext", &cl.context},
                            {"clCreateCommandQueue", &cl.queue},
                            {"clCreateProgramWithSource", &cl.program},
                            {"clBuildProgram", &cl.build},
                            {"clGetProgramBuildInfo", &cl.build_info},
                            {"clCreateKernel", &cl.kernel},
                            {"clCreateBuffer", &cl.buffer},
                            {"clSetKernelArg", &cl.argument},
                            {"clEnqueueNDRangeKernel", &cl.launch},
                            {"clEnqueueReadBuffer", &cl.read},
                            {"clEnqueueWriteBuffer", &cl.write},
                            {"clFinish", &cl.finish},
                            {"clReleaseContext", &cl.release_context},
                            {"clReleaseCommandQueue", &cl.release_queue},
                            {"clReleaseProgram", &cl.release_program},
                            {"clReleaseKernel", &cl.release_kernel},
                            {"clReleaseMemObject", &cl.release_buffer}};
  int status = 0;
  compute->library[0] = open_library(files);
  if (!load(compute->library[0], files[0], symbols, G_N_ELEMENTS(symbols), error) || !cl_find(compute, device, error))
    return FALSE;
  compute->context = cl.context(NULL, 1, &compute->device, NULL, NULL, &status);
  if (!cl_fine(status, "context", error)) return FALSE;
  compute->queue = cl.queue(compute->context, compute->device, 0, &status);
  return cl_fine(status, "queue", error);
}

static void cl_close(MsCompute *compute) {
  if (compute->queue) cl.release_queue(compute->queue);
  if (compute->context) cl.release_context(compute->context);
}

static gboolean cl_compile(MsCompute *compute, const char *source, void **module, GError **error) {
  enum { LOG = 0x1183 };
  int status = 0;
  *module = cl.program(compute->context, 1, &source, NULL, &status);
  if (!cl_fine(status, "program", error)) return FALSE;
  if (cl.build(*module, 1, &compute->device, "", NULL, NULL) == 0) return TRUE;
  size_t size = 0;
  cl.build_info(*module, compute->device, LOG, 0, NULL, &size);
  g_autofree char *text = g_malloc0(size + 1);
  cl.build_info(*module, compute->device, LOG, size, text, NULL);
  return failed(error, "opencl: the generated kernel was refused: %s", text);
}

static void cl_unload(MsCompute *compute, void *module) {
  (void)compute;
  cl.release_program(module);
}
static gboolean cl_function(MsCompute *compute, void *module, const char *name, void **function, GError **error) {
  int status = 0;
  (void)compute;
  *function = cl.kernel(module, name, &status);
  return cl_fine(status, "kernel", error);
}
static void cl_forget(MsCompute *compute, void *function) {
  (void)compute;
  cl.release_kernel(function);
}
static gboolean cl_allocate(MsCompute *compute, size_t size_B, void **memory, GError **error) {
  enum { READ_WRITE = 1 };
  int status = 0;
  *memory = cl.buffer(compute->context, READ_WRITE, size_B, NULL, &status);
  return cl_fine(status, "buffer", error);
}
static void cl_release(MsCompute *compute, void *memory) {
  (void)compute;
  cl.release_buffer(memory);
}
static gboolean cl_write(MsCompute *compute, void *memory, const void *from, size_t size_B, GError **error) {
  return CL(write, compute->queue, memory, 1, 0, size_B, from, 0, NULL, NULL);
}
static gboolean cl_read(MsCompute *compute, void *to, void *memory, size_t size_B, GError **error) {
  return CL(read, compute->queue, memory, 1, 0, size_B, to, 0, NULL, NULL);
}

static gboolean cl_launch(MsCompute *compute, void *function, const size_t *groups, Argument *arguments, int n,
                          GError **error) {
  const size_t local[] = {MS_SOURCE_THREADS, 1, 1}, global[] = {groups[0] * MS_SOURCE_THREADS, groups[1], groups[2]};
  for (int i = 0; i < n; i++)
    if (!CL(argument, function, (unsigned)i, arguments[i].size_B, &arguments[i].value)) return FALSE;
  return CL(launch, compute->queue, function, 3, NULL, global, local, 0, NULL, NULL);
}

static gboolean cl_begin(MsCompute *compute, GError **error) {
  if (!CL(finish, compute->queue)) return FALSE;
  compute->since = g_get_monotonic_time();
  return TRUE;
}
static gboolean cl_end(MsCompute *compute, double *seconds, GError **error) {
  if (!CL(finish, compute->queue)) return FALSE;
  *seconds = 1e-6 * (double)(g_get_monotonic_time() - compute->since);
  return TRUE;
}

/* --- both ------------------------------------------------------------------------------------------------------ */
static const Backend backends[] = {{MS_DIALECT_CUDA, cuda_open, cuda_close, cuda_compile, cuda_unload, cuda_function,
                                    cuda_forget, cuda_allocate, cuda_release, cuda_write, cuda_read, cuda_launch,
                                    cuda_begin, cuda_end},
                                   {MS_DIALECT_OPENCL, cl_open, cl_close, cl_compile, cl_unload, cl_function, cl_forget,
                                    cl_allocate, cl_release, cl_write, cl_read, cl_launch, cl_begin, cl_end}};

MsCompute *ms_compute_open(const char *kind, int device, GError **error) {
  MsCompute *compute = g_new0(MsCompute, 1);
  for (size_t i = 0; i < G_N_ELEMENTS(backends); i++)
    if (strcmp(kind, ms_compute_words[i]) == 0) compute->backend = &backends[i];
  if (compute->backend && compute->backend->open(compute, device, error)) return compute;
  if (compute->backend) g_prefix_error(error, "no generated kernel can run here: ");
  ms_compute_close(compute);
  return NULL;
}

void ms_compute_close(MsCompute *compute) {
  if (!compute) return;
  if (compute->backend) compute->backend->close(compute);
  g_free(compute); /* the libraries stay: they have threads of their own */
}

const char *ms_compute_device(const MsCompute *compute) { return compute->name; }
MsDialect ms_compute_dialect(const MsCompute *compute) { return compute->backend->dialect; }

MsComputeKernel *ms_compute_kernel(MsCompute *compute, const MsScheme *scheme, const MsSourceOptions *options,
                                   GError **error) {
  g_autofree char *source = ms_source(scheme, options, error);
  if (!source) return NULL;
  g_autoptr(MsComputeKernel) kernel = g_new0(MsComputeKernel, 1);
  kernel->compute = compute;
  kernel->options = *options;
  kernel->scheme = ms_scheme_new(scheme->name, error);
  const Backend *b = compute->backend;
  if (!kernel->scheme || !b->compile(compute, source, &kernel->module, error) ||
      !b->function(compute, kernel->module, MS_SOURCE_KERNEL, &kernel->multiply, error))
    return NULL;
  if (options->groups > 1 && !b->function(compute, kernel->module, MS_SOURCE_MERGE, &kernel->merge, error)) return NULL;
  return g_steal_pointer(&kernel);
}

void ms_compute_kernel_free(MsComputeKernel *kernel) {
  if (!kernel) return;
  const Backend *b = kernel->compute->backend;
  if (kernel->multiply) b->forget(kernel->compute, kernel->multiply);
  if (kernel->merge) b->forget(kernel->compute, kernel->merge);
  if (kernel->module) b->unload(kernel->compute, kernel->module);
  ms_scheme_free(kernel->scheme);
  g_free(kernel);
}

typedef struct {
  void *a, *b, *c, *part;
  size_t a_B, b_B, c_B;
} Memory;

static Argument of_int(gint64 x) { return (Argument){sizeof(int), {.i = (int)x}}; }
static Argument of_memory(void *x) { return (Argument){sizeof(void *), {.memory = x}}; }
static Argument of_sum(const MsComputeKernel *k, double x) {
  return k->options.type == MS_GPU_INT8 ? of_int((gint64)x) : (Argument){sizeof(float), {.f = (float)x}};
}

static gboolean multiply_once(MsComputeKernel *k, const MsComputeGemm *g, const Memory *x, GError **error) {
  int grid[2];
  ms_source_grid(k->scheme, &k->options, g->m, g->n, grid);
  const size_t groups[] = {(size_t)grid[0], (size_t)grid[1], (size_t)k->options.groups};
  Argument all[ARGUMENTS] = {of_int(g->m),       of_int(g->n),    of_int(g->k),    of_sum(k, g->alpha),
                             of_memory(x->a),    of_int(g->lda),  of_memory(x->b), of_int(g->ldb),
                             of_sum(k, g->beta), of_memory(x->c), of_int(g->ldc),  of_memory(x->part)};
  if (!k->compute->backend->launch(k->compute, k->multiply, groups, all, ARGUMENTS, error)) return FALSE;
  if (!k->merge) return TRUE;
  const size_t lines[] = {((size_t)(g->m * g->n) + MS_SOURCE_THREADS - 1) / MS_SOURCE_THREADS, 1, 1};
  Argument parts[] = {of_int(g->m),       of_int(g->n),    of_sum(k, g->alpha), of_memory(x->part),
                      of_sum(k, g->beta), of_memory(x->c), of_int(g->ldc)};
  return k->compute->backend->launch(k->compute, k->merge, lines, parts, G_N_ELEMENTS(parts), error);
}

static gboolean memory_make(MsComputeKernel *k, const MsComputeGemm *g, Memory *x, GError **error) {
  const Backend *b = k->compute->backend;
  const MsSourceOptions *o = &k->options;
  size_t element_B = ms_gpu_type_B(o->type);
  x->a_B = (size_t)((o->trans_a ? g->k - 1 : g->m - 1) * g->lda + (o->trans_a ? g->m : g->k)) * element_B;
  x->b_B = (size_t)((o->trans_b ? g->n - 1 : g->k - 1) * g->ldb + (o->trans_b ? g->k : g->n)) * element_B;
  x->c_B = (size_t)((g->m - 1) * g->ldc + g->n) * 4;
  return b->allocate(k->compute, x->a_B, &x->a, error) && b->allocate(k->compute, x->b_B, &x->b, error) &&
         b->allocate(k->compute, x->c_B, &x->c, error) &&
         b->allocate(k->compute, o->groups > 1 ? (size_t)(g->m * g->n * o->groups) * 4 : 4, &x->part, error) &&
         b->write(k->compute, x->a, g->a, x->a_B, error) && b->write(k->compute, x->b, g->b, x->b_B, error) &&
         b->write(k->compute, x->c, g->c, x->c_B, error);
}

static void memory_clear(MsComputeKernel *k, Memory *x) {
  void *all[] = {x->a, x->b, x->c, x->part};
  for (int i = 0; i < 4; i++)
    if (all[i]) k->compute->backend->release(k->compute, all[i]);
}

gboolean ms_compute_gemm(MsComputeKernel *k, const MsComputeGemm *g, int repeats, double *seconds, GError **error) {
  const Backend *b = k->compute->backend;
  Memory x = {0};
  gboolean ok = memory_make(k, g, &x, error);
  for (int i = 0; i < repeats && ok; i++) {
    double time_s = 0;
    ok = b->begin(k->compute, error) && multiply_once(k, g, &x, error) && b->end(k->compute, &time_s, error);
    if (seconds) seconds[i] = time_s;
  }
  ok = ok && b->read(k->compute, g->c, x.c, x.c_B, error);
  memory_clear(k, &x);
  return ok;
}
