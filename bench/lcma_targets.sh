#!/bin/sh
# bench/lcma_targets.sh [SHAPES [decision [THREADS [SEED]]]] - what lower-complexity multiplication is worth here:
# large shapes on one and two threads beside every BLAS that is installed, and the decision on SHAPES random shapes
# (default 300, 0: none) on one and two threads; `decision`: that alone. About ten minutes on an otherwise idle
# machine. With MOESIM_VECTOR=avx2 the libraries use AVX2 too.
set -eu
cd "$(dirname "$0")/.."
make -s -j2 build/libmoesim_lcma.a
mkdir -p build/bench
# shellcheck disable=SC2046
${CC:-cc} -O2 -std=c11 -D_GNU_SOURCE -Wall -Isrc $(pkg-config --cflags glib-2.0) bench/lcma/targets.c \
  build/libmoesim_lcma.a -o build/bench/lcma_targets \
  $(pkg-config --libs glib-2.0) -lm -lpthread -ldl
if [ "${MOESIM_VECTOR:-}" = avx2 ]; then
  export OPENBLAS_CORETYPE=Haswell BLIS_ARCH_TYPE=3 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
fi
exec build/bench/lcma_targets "$@"
