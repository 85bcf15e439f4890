#!/bin/sh
# bench/lcma_gpu.sh [DTYPE…] - generated kernels on a GPU of this machine (CUDA): squares from 2048 to 16384 and
# products of large models, each scheme beside the definition as generated and, for bf16, cuBLAS. The smallest square
# where a scheme is faster than the definition is the crossing. About ten minutes.
set -eu
cd "$(dirname "$0")/.."
make -s -j2 build/moesim
types=${*:-bf16 tf32 f32 fp16}
for dtype in $types; do
  for shape in "2048 2048 2048" "4096 4096 4096" "8192 8192 8192" "16384 16384 16384" "16384 7168 2048" \
    "8192 28672 8192" "8192 8192 28672"; do
    for scheme in strassen 2x2x3 3x3x3 "strassen*strassen"; do
      # shellcheck disable=SC2086
      build/moesim gemm bench $shape --device cuda --dtype "$dtype" --scheme "$scheme" --reps 7
    done
  done
done
