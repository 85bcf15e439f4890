#!/bin/sh
# bench/lcma_competitors.sh [f32|f64 [TOKENS [LARGEST]]] - lower-complexity multiplication beside its competitors:
# OpenBLAS, BLIS, MKL and oneDNN where installed, Strassen's scheme over the library, and AlphaTensor's and
# AlphaEvolve's schemes executed the usual way (sums in memory, products by the library). Products of language models
# at TOKENS (default 4096), on one and two threads, undisturbed runs only, as tables. LARGEST leaves out layers with
# more weights. Hours on an idle machine.
set -eu
cd "$(dirname "$0")/.."
make -s -j2 build/libmoesim.a
mkdir -p build/bench
# shellcheck disable=SC2046
${CC:-cc} -O2 -std=c11 -D_GNU_SOURCE -Wall -Isrc $(pkg-config --cflags glib-2.0) bench/lcma/competitors.c \
  build/libmoesim.a -o build/bench/lcma_competitors $(pkg-config --libs glib-2.0) -lm -lpthread -ldl
exec build/bench/lcma_competitors "$@"
