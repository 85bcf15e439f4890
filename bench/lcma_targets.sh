#!/bin/sh
# bench/lcma_targets.sh [quick] - what lower-complexity multiplication is worth on this machine: large shapes on one
# and two threads beside every BLAS
# that is installed, and the decision on 200 random shapes. About six minutes on an otherwise idle machine; `quick`
# does a fifth of the random shapes.
set -eu
cd "$(dirname "$0")/.."
make -s -j2 build/libmoesim.a
mkdir -p build/bench
# shellcheck disable=SC2046
${CC:-cc} -O2 -std=c11 -D_GNU_SOURCE -Wall -Isrc $(pkg-config --cflags glib-2.0) bench/lcma/targets.c \
  build/libmoesim.a -o build/bench/lcma_targets \
  $(pkg-config --libs glib-2.0) -lm -lpthread -ldl
exec build/bench/lcma_targets "$@"
