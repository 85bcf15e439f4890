#!/bin/sh
# bench/lcma_competitors.sh [f32|f64 [THREADS [LARGEST [FIRST [libraries]]]]] - lower-complexity multiplication beside
# its competitors: OpenBLAS, BLIS, MKL and oneDNN where installed, and Strassen's, AlphaTensor's and AlphaEvolve's
# schemes executed the usual way (sums in memory, products by the library). Products of language models at 4 to 16
# thousand tokens, on one and two threads, undisturbed runs only, as tables. LARGEST leaves out those with more than so
# many 1e9 multiplications, FIRST the first so many, `libraries` the schemes. An hour on an idle machine. With
# MOESIM_VECTOR=avx2 the libraries use AVX2 too.
set -eu
cd "$(dirname "$0")/.."
make -s -j2 build/libmoesim_lcma.a
mkdir -p build/bench
# shellcheck disable=SC2046
${CC:-cc} -O2 -std=c11 -D_GNU_SOURCE -Wall -Isrc $(pkg-config --cflags glib-2.0) bench/lcma/competitors.c \
  build/libmoesim_lcma.a -o build/bench/lcma_competitors $(pkg-config --libs glib-2.0) -lm -lpthread -ldl
if [ "${MOESIM_VECTOR:-}" = avx2 ]; then
  export OPENBLAS_CORETYPE=Haswell BLIS_ARCH_TYPE=3 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
fi
exec build/bench/lcma_competitors "$@"
