#!/bin/sh
# tests/real.sh BUILD - launches of shipped models through the parser and the models of Megatron-LM (`make check-real`),
# where MEGATRON names a checkout and TORCH_PYTHON, or python3, has a PyTorch that it runs on.
set -eu
out=$(make -s BUILD="$1" check-real) && status=0 || status=$?
echo "$out"
case $out in skipped*) exit 77 ;; esac
exit "$status"
