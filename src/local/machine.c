#include "local/machine.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"

static char *proc_line(const char *file, const char *key) {
  g_autofree char *text = NULL;
  if (!g_file_get_contents(file, &text, NULL, NULL)) return NULL;
  char *at = strstr(text, key);
  if (!at || !(at = strchr(at, ':'))) return NULL;
  char *end = strchr(at, '\n');
  return g_strstrip(g_strndup(at + 1, end ? (gsize)(end - at - 1) : strlen(at + 1)));
}

/* "2048K" of the index that is of this level and holds data. */
static double cache_B(int level) {
  for (int i = 0; i < 8; i++) {
    g_autofree char *base = g_strdup_printf("/sys/devices/system/cpu/cpu0/cache/index%d/", i),
                    *at = g_strconcat(base, "level", NULL), *kind = g_strconcat(base, "type", NULL),
                    *size = g_strconcat(base, "size", NULL), *a = NULL, *b = NULL, *c = NULL;
    if (!g_file_get_contents(at, &a, NULL, NULL) || !g_file_get_contents(kind, &b, NULL, NULL) ||
        !g_file_get_contents(size, &c, NULL, NULL))
      continue;
    if (atoi(a) != level || g_str_has_prefix(b, "Instruction")) continue;
    char *unit = NULL;
    double value = g_ascii_strtod(c, &unit);
    return value * (*unit == 'K' ? 1024 : *unit == 'M' ? 1048576 : 1);
  }
  return 0;
}

MsMachine *ms_machine_new(const MsBlas *blas) {
  MsMachine *m = g_new0(MsMachine, 1);
  m->cpu = proc_line("/proc/cpuinfo", "model name");
  if (!m->cpu) m->cpu = g_strdup("unknown");
  m->cores = ms_cpus();
  m->l2_B = cache_B(2), m->l3_B = cache_B(3);
  g_autofree char *memory = proc_line("/proc/meminfo", "MemTotal");
  m->memory_B = memory ? 1024 * g_ascii_strtod(memory, NULL) : 0;
  const char *kernel = ms_blas_kernel(blas), *note = ms_blas_note(blas);
  m->blas =
      g_strdup_printf("%s %s%s%s%s%s%s", ms_blas_name(blas), ms_blas_version(blas), kernel ? ", kernels for " : "",
                      kernel ? kernel : "", note ? " (" : "", note ? note : "", note ? ")" : "");
  return m;
}

void ms_machine_free(MsMachine *m) {
  if (!m) return;
  g_free(m->cpu);
  g_free(m->blas);
  g_free(m);
}

MsPin ms_machine_pin(void) {
  MsPin pin = {.bound = FALSE};
  cpu_set_t one;
  int cpu = CPU_SETSIZE - 1;
  if (sched_getaffinity(0, sizeof pin.before, &pin.before) != 0) return pin;
  while (cpu > 0 && !CPU_ISSET(cpu, &pin.before)) cpu--;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  pin.bound = sched_setaffinity(0, sizeof one, &one) == 0;
  return pin;
}

void ms_machine_unpin(const MsPin *pin) {
  if (pin->bound) sched_setaffinity(0, sizeof pin->before, &pin->before);
}

gboolean ms_machine_quiet(double cpu_s, double wall_s) { return wall_s > 0 && cpu_s > MS_QUIET * wall_s; }
