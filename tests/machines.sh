#!/usr/bin/env bash
# tests/machines.sh BUILD - docs/machines.md is what `make machines` would write: every shipped machine, every figure
# (of published runs test_full_accuracy). Exit 77 without python3.
set -u
cd "$(dirname "$0")/.." || exit 4
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
python3 mk/machines.py "${1:-build}/moesim" docs/machines.md | diff -u docs/machines.md - && exit 0
echo "docs/machines.md is stale: make machines"
exit 1
