#!/usr/bin/env bash
# tests/machines.sh BUILD - docs/machines.md is what `make machines` would write: every shipped machine, every figure.
set -u
cd "$(dirname "$0")/.." || exit 4
mk/machines.sh "${1:-build}" | diff -u docs/machines.md - && exit 0
echo "docs/machines.md is stale: make machines"
exit 1
