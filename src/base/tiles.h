/* src/base/tiles.h - whether this process may use AMX: the CPU has tile registers and products of bfloat16 and of 8-bit
 * numbers, and Linux lets it. Asking for that is what makes it so, for all threads and children. Without GLib, as
 * tests/units is; compilers do not all know the names of these features, so the CPU is asked (Intel SDM, CPUID leaf 7).
 */
#ifndef MS_BASE_TILES_H
#define MS_BASE_TILES_H

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int ms_tiles_allowed(void) {
  const unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25, all = bf16 | tile | int8;
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA */
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & all) == all &&
         syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

#endif
