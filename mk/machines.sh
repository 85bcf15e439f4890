#!/usr/bin/env bash
# mk/machines.sh BUILD - docs/machines.md: for every shipped machine the winner of a plan on 64 GPUs, its MFU
# and its band; what the machine's figures rest on. `make machines` writes the page; it takes some minutes.
set -eu
cd "$(dirname "$0")/.."
moesim=$1/moesim

cell() { # machine model options…: "MFU ± band" of the winner, or why there is none
  local json
  json=$("$moesim" plan --json --top 1 --hardware "$1" --model "$2" --gpus 64 "${@:3}" 2>/dev/null) || true
  printf '%s' "$json" | awk '
    match($0, /"best":\[\{.*/) {
      text = substr($0, RSTART)
      if (match(text, /"mfu":[0-9.]+/)) mfu = substr(text, RSTART + 6, RLENGTH - 6)
      if (match(text, /"error_band":[0-9.]+/)) band = substr(text, RSTART + 13, RLENGTH - 13)
    }
    END { if (mfu > 0) printf "%.0f %% ± %.0f %%", 100 * mfu, 100 * band; else printf "none" }'
}

rests() { # machine: what a prediction says beside its figures
  "$moesim" plan --json --top 1 --hardware "$1" --model llama3-8b --gpus 64 2>/dev/null |
    grep -o '"caveat":"[^"]*"' | head -n 1 | sed 's/"caveat":"[^:]*: //; s/"$//'
}

cat <<'EOF'
# Machines

Written by `make machines`: on 64 GPUs the winner of `moesim plan --model MODEL --hardware NAME --gpus 64` at 4,096
tokens, as MFU of the precision's dense peak with its 90 % band. Dense is llama3-8b, MoE qwen3-30b-a3b (small experts:
the host decides), FP8 is llama3-8b in tensorwise FP8. "none": no such precision, or nothing fits.
`moesim show hardware NAME` has every figure with its source; assumed ones widen the band and are named.

| machine | dense BF16 | MoE BF16 | dense FP8 | rests on |
|---|--:|--:|--:|---|
EOF
for file in hardware/*.json; do
  name=$(basename "$file" .json)
  caveat=$(rests "$name")
  printf '| %s | %s | %s | %s | %s |\n' "$name" "$(cell "$name" llama3-8b)" "$(cell "$name" qwen3-30b-a3b)" \
    "$(cell "$name" llama3-8b --precision fp8-tensorwise)" "${caveat:-published runs of it}"
done
cat <<'EOF'

The vendor of the S5000 says 60 % MFU for dense and about 40 % for MoE training (reportify.ai, ldeepai.com): the
predictions of llama3-8b and of qwen3-235b-a22b lie within their bands of it (test_sources).
EOF
