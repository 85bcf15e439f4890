/* src/lcma/unit_amx.c - products of bfloat16 and of 8-bit whole numbers for CPUs with AMX: two by two tile registers of
 * C, 16 x 16 sums each. The packed operands lie as tile registers want them: 16 elements of a row of A are a cache
 * line, a row of a panel of B is two. An element is a pair of bfloat16 or four numbers of 8 bits.
 *
 * What lies behind the last elements of a row is not read: fewer than 16 are copied and filled up with zeros. Tile
 * registers are configured once for a product, which would be a third of the time of each tile of C. */
#include "lcma/kernel_units.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16,amx-tile,amx-bf16,amx-int8")))
#define INLINE TARGET static inline __attribute__((always_inline))

enum { SIDE = 16, ELEMENT_B = 4, LINE_B = 64, PANEL_B = 2 * LINE_B, MR = 2 * SIDE };
typedef enum { BF16, INT8 } Kind;

typedef struct { /* as LDTILECFG reads it; a register that is not used has neither rows nor bytes */
  uint8_t palette, start_row, reserved[14];
  uint16_t row_B[16];
  uint8_t rows[16];
} Registers;

/* Registers are numbers in the instruction, spelt out: no enum, and these are no functions. */
#define C_00 0
#define C_01 1
#define C_10 2
#define C_11 3
#define A_0  4
#define A_1  5
#define B_0  6
#define B_1  7
#define MULTIPLY(c, a, b)                    \
  do {                                       \
    if (kind == INT8) _tile_dpbssd(c, a, b); \
    else _tile_dpbf16ps(c, a, b);            \
  } while (0)
#define EACH_OF_C(DO)                                                   \
  do {                                                                  \
    DO(C_00, c, ldc_B);                                                 \
    if (right) DO(C_01, c + LINE_B, ldc_B);                             \
    if (below > 0) DO(C_10, c + SIDE * ldc_B, ldc_B);                   \
    if (below > 0 && right) DO(C_11, c + SIDE * ldc_B + LINE_B, ldc_B); \
  } while (0)

#define CLEAR(register, at, step_B) _tile_zero(register)

/* C += A B over 16 elements; rows of A lie step_B apart. */
INLINE void deeper(const Kind kind, const int below, const int right, const char *a, int64_t step_B, const char *b) {
  _tile_loadd(B_0, b, PANEL_B);
  _tile_loadd(A_0, a, step_B);
  MULTIPLY(C_00, A_0, B_0);
  if (right) {
    _tile_loadd(B_1, b + LINE_B, PANEL_B);
    MULTIPLY(C_01, A_0, B_1);
  }
  if (below > 0) {
    _tile_loadd(A_1, a + SIDE * step_B, step_B);
    MULTIPLY(C_10, A_1, B_0);
    if (right) MULTIPLY(C_11, A_1, B_1);
  }
}

/* The same over k < 16. */
INLINE void last(const Kind kind, const int above, const int below, const int right, int64_t row_B, int64_t k,
                 const char *a, const char *b) {
  char all_a[MR * LINE_B] __attribute__((aligned(64))), all_b[SIDE * PANEL_B] __attribute__((aligned(64)));
  for (int i = 0; i < above + below; i++)
    _mm512_store_si512(all_a + i * LINE_B, _mm512_maskz_loadu_epi32((__mmask16)((1 << k) - 1), a + i * row_B));
  memset(all_b, 0, sizeof all_b);
  memcpy(all_b, b, (size_t)(k * PANEL_B));
  __asm__ volatile("" ::: "memory"); /* what tile registers load is not seen by the compiler */
  deeper(kind, below, right, all_a, LINE_B, all_b);
}

INLINE void body(const Kind kind, const int above, const int below, const int right, int64_t row_B, int64_t k,
                 const char *a, const char *b, char *c, int64_t ldc, int add) {
  const int64_t ldc_B = ldc * ELEMENT_B, whole = k / SIDE * SIDE;
  if (add) EACH_OF_C(_tile_loadd);
  else EACH_OF_C(CLEAR);
  for (int64_t l = 0; l < whole; l += SIDE) deeper(kind, below, right, a + l * ELEMENT_B, row_B, b + l * PANEL_B);
  if (whole < k) last(kind, above, below, right, row_B, k - whole, a + whole * ELEMENT_B, b + whole * PANEL_B);
  EACH_OF_C(_tile_stored);
}

/* Registers for a tile of C with so many rows. */
INLINE void configure(int rows) {
  const uint8_t above = (uint8_t)(rows < SIDE ? rows : SIDE), below = (uint8_t)(rows - above);
  const uint16_t below_B = below > 0 ? LINE_B : 0;
  const Registers registers = {.palette = 1,
                               .row_B = {LINE_B, LINE_B, below_B, below_B, LINE_B, below_B, LINE_B, LINE_B},
                               .rows = {above, above, below, below, above, below, SIDE, SIDE}};
  __asm__ volatile("" ::"m"(registers) : "memory"); /* the intrinsic names only the first bytes */
  _tile_loadconfig(&registers);
}
TARGET static void take_registers(void) { configure(MR); }
TARGET static void give_registers(void) { _tile_release(); }

/* Which registers there are is known to the compiler, how many rows they have need not be. */
INLINE void product_tile(const Kind kind, int rows, int vectors, int deep, int64_t k, const void *a, const void *b,
                         void *c, int64_t ldc, int add) {
  const int64_t row_B = MS_KERNEL_ROW_B(deep ? MS_KERNEL_DEEP_SLAB_B : MS_KERNEL_SLAB_B);
  if (rows < MR) configure(rows);
  if (rows == MR && vectors > 1) body(kind, SIDE, SIDE, 1, row_B, k, a, b, c, ldc, add);
  else if (rows > SIDE && vectors > 1) body(kind, SIDE, rows - SIDE, 1, row_B, k, a, b, c, ldc, add);
  else if (rows > SIDE) body(kind, SIDE, rows - SIDE, 0, row_B, k, a, b, c, ldc, add);
  else if (vectors > 1) body(kind, rows, 0, 1, row_B, k, a, b, c, ldc, add);
  else body(kind, rows, 0, 0, row_B, k, a, b, c, ldc, add);
  if (rows < MR) configure(MR);
}
TARGET static void tile_bf16(int rows, int vectors, int deep, int64_t k, const void *a, const void *b, void *c,
                             int64_t ldc, int add, const void *ahead) {
  (void)ahead;
  product_tile(BF16, rows, vectors, deep, k, a, b, c, ldc, add);
}
TARGET static void tile_int8(int rows, int vectors, int deep, int64_t k, const void *a, const void *b, void *c,
                             int64_t ldc, int add, const void *ahead) {
  (void)ahead;
  product_tile(INT8, rows, vectors, deep, k, a, b, c, ldc, add);
}

TARGET static void narrow_a8(void *out, const float *in, size_t n) {
  for (size_t i = 0; i < n; i += 16)
    _mm_storeu_si128((__m128i *)(void *)((int8_t *)out + i),
                     _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_loadu_ps(in + i))));
}

#define KERNEL(title, tiles, numbers, for_a, for_b)                                                \
  {                                                                                                \
    .name = title, .real_B = ELEMENT_B, .mr = MR, .nr = MR, .tile = tiles, .open = take_registers, \
    .close = give_registers, .depth = numbers, .narrow_a = for_a, .narrow_b = for_b                \
  }
const MsKernel ms_kernel_amx_bf16 =
    KERNEL("amx bf16 32x32", tile_bf16, 2, ms_avx512_narrow_a_bf16, ms_avx512_narrow_b_bf16);
const MsKernel ms_kernel_amx_int8 = KERNEL("amx int8 32x32", tile_int8, 4, narrow_a8, ms_avx512_narrow_b_int8);
#endif
