#!/bin/sh
# tests/units.sh BUILD - the arithmetic of src/lcma on every vector unit: those of this CPU, those of an x86 CPU
# without AVX-512 and those of aarch64
# under qemu-user (./bootstrap --tests installs it and the cross compiler). What is missing is skipped by name; status
# 1 when a unit is wrong.
set -eu
build=${1:?usage: tests/units.sh BUILD}
cd "$(dirname "$0")/.."
mkdir -p "$build/units"
flags="-std=c11 -O2 -D_GNU_SOURCE -ffp-contract=off -Wall -Wextra -Isrc"
source="tests/units/units.c src/lcma/kernel.c src/lcma/unit_*.c"
step=23 # of the shapes, under an emulator
failed=0

run() { # NAME COMMAND…
  name=$1
  shift
  echo "== $name"
  "$@" || { echo "FAILED $name"; failed=1; }
}
missing() { # PROGRAM WHAT
  command -v "$1" >/dev/null && return 1
  echo "== $2: skipped, no $1: ./bootstrap --tests installs it"
}

# shellcheck disable=SC2086
${CC:-cc} $flags $source -o "$build/units/native"
run "this CPU" "$build/units/native"
case $(uname -m) in
x86_64)
  grep -q avx512f /proc/cpuinfo || echo "== avx512: skipped, this CPU has none, and qemu-user does not emulate it"
  missing qemu-x86_64 "x86 without AVX-512" ||
    run "x86 without AVX-512" qemu-x86_64 -cpu Haswell "$build/units/native" $step 2>/dev/null
  ;;
esac
if ! missing aarch64-linux-gnu-gcc aarch64 && ! missing qemu-aarch64 aarch64; then
  # shellcheck disable=SC2086
  aarch64-linux-gnu-gcc $flags -static $source -o "$build/units/aarch64"
  run "aarch64" qemu-aarch64 -cpu cortex-a72 "$build/units/aarch64" $step
  for length in 1 2 3 4 8; do
    run "aarch64, SVE of $((128 * length)) bits" qemu-aarch64 -cpu "max,sve-max-vq=$length,sve$((128 * length))=on" \
      "$build/units/aarch64" $step sve
  done
fi
exit $failed
