#include "base/vector.h"

#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/err.h"
#include "base/tiles.h"

const char *const ms_vector_words[] = {"plain", "sse2", "avx2", "avx512", "amx", "neon", "sve", NULL};

#if defined(__x86_64__)
static gboolean may_use_tiles(void) {
  static gsize answer;
  if (g_once_init_enter(&answer)) g_once_init_leave(&answer, ms_tiles_allowed() ? 2 : 1);
  return answer == 2;
}
#endif

gboolean ms_vector_has(MsVector unit) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (unit == MS_VECTOR_AMX)
    return ms_vector_has(MS_VECTOR_AVX512) && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512vnni") && may_use_tiles();
  if (unit == MS_VECTOR_AVX512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (unit == MS_VECTOR_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (unit == MS_VECTOR_SSE2) return TRUE;
#elif defined(__aarch64__)
  enum { SVE = 1 << 22 }; /* HWCAP_SVE */
  if (unit == MS_VECTOR_SVE) return (getauxval(AT_HWCAP) & SVE) != 0;
  if (unit == MS_VECTOR_NEON) return TRUE;
#endif
  return unit == MS_VECTOR_PLAIN;
}

static MsVector widest(void) {
  MsVector unit = MS_VECTORS - 1;
  while (!ms_vector_has(unit)) unit--;
  return unit;
}

static gboolean chosen(MsVector *unit, GError **error) {
  const char *word = g_getenv("MOESIM_VECTOR");
  *unit = widest();
  if (!word || !*word) return TRUE;
  g_autoptr(GString) known = g_string_new(NULL);
  for (int i = 0; ms_vector_words[i]; i++) {
    if (!ms_vector_has((MsVector)i)) continue;
    if (strcmp(word, ms_vector_words[i]) == 0) {
      *unit = (MsVector)i;
      return TRUE;
    }
    g_string_append_printf(known, "%s%s", known->len ? ", " : "", ms_vector_words[i]);
  }
  return ms_usage_error(error, "MOESIM_VECTOR is '%s', not a vector unit of this CPU, which has %s", word, known->str);
}

gboolean ms_vector_check(GError **error) {
  MsVector unit;
  return chosen(&unit, error);
}

MsVector ms_vector(void) {
  MsVector unit;
  chosen(&unit, NULL);
  return unit;
}
