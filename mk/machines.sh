#!/usr/bin/env bash
# mk/machines.sh BUILD [NAME…] - docs/machines.md: what plans give on every shipped machine, with band, what it rests
# on and published runs; with names the rows of these machines alone. `make machines` writes the page,
# tests/machines.sh compares it; some seconds a machine.
set -eu
cd "$(dirname "$0")/.."
moesim=$1/moesim
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cell() { # options and request of a plan: "MFU ± band" of the winner, or "none"
  { "$moesim" plan --json --top 1 "$@" 2>/dev/null || true; } >"$folder/answer"
  awk '
    match($0, /"best":\[\{.*/) {
      text = substr($0, RSTART)
      if (match(text, /"mfu":[0-9.]+/)) mfu = substr(text, RSTART + 6, RLENGTH - 6)
      if (match(text, /"error_band":[0-9.]+/)) band = substr(text, RSTART + 13, RLENGTH - 13)
    }
    END { if (mfu > 0) printf "%.0f %% ± %.0f %%", 100 * mfu, 100 * band; else printf "none" }' "$folder/answer"
}

rests() { # of the last cell: what a prediction says beside its figures
  grep -o '"caveat":"[^"]*"' "$folder/answer" | head -n 1 | sed 's/"caveat":"[^:]*: //; s/"$//'
}

# Published runs of each machine: how many, and the median of how far predictions are from their step times.
"$moesim" validate --json scenarios/published 2>/dev/null | tr '{' '\n' | awk '
  function word(key) {
    if (!match($0, "\"" key "\":\"[^\"]*\"")) return ""
    return substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
  }
  word("metric") == "step_time" && match($0, /"error":-?[0-9.e-]+/) {
    error = substr($0, RSTART + 8, RLENGTH - 8)
    print word("gpu"), error < 0 ? -error : error
  }' | sort -k1,1 -k2,2g | awk '
  function tell() {
    if (!n) return
    printf "%s %d run%s: %.1f %%\n", name, n, (n > 1) ? "s" : "", 50 * (v[int((n + 1) / 2)] + v[int(n / 2) + 1])
  }
  $1 != name { tell(); n = 0; name = $1 } { v[++n] = $2 } END { tell() }' >"$folder/runs"

adapters='"model": "llama2-70b", "gpus": 8, "training": {"seq_length": 8192, "global_batch_size": 8,
  "micro_batch_size": 1, "lora": {"rank": 16}}, "layout": {}, "options": {"recompute": "auto"}'
sharded='"model": "llama3-8b", "gpus": 64, "framework": "torchtitan", "training": {"seq_length": 4096,
  "global_batch_size": 1024, "micro_batch_size": "auto"}, "layout": {}, "options": {"recompute": "auto"}'
row() { # machine
  local dense moe fp8 lora fsdp caveat runs
  dense=$(cell --model llama3-8b --hardware "$1" --gpus 64)
  caveat=$(rests)
  moe=$(cell --model qwen3-30b-a3b --hardware "$1" --gpus 64)
  fp8=$(cell --model llama3-8b --hardware "$1" --gpus 64 --precision fp8-tensorwise)
  echo "{\"hardware\": \"$1\", $adapters}" >"$folder/lora.json"
  echo "{\"hardware\": \"$1\", $sharded}" >"$folder/fsdp.json"
  lora=$(cell "$folder/lora.json")
  fsdp=$(cell "$folder/fsdp.json")
  runs=$(sed -n "s/^$1 //p" "$folder/runs")
  printf '| %s | %s | %s | %s | %s | %s | %s | %s |\n' "$1" "$dense" "$moe" "$fp8" "$lora" "$fsdp" \
    "${caveat:-measured and published figures}" "${runs:-none}"
}

if [ $# -gt 0 ]; then
  for name in "$@"; do row "$name"; done
  exit
fi
cat <<'EOF'
# Machines

Written by `make machines`, compared by the full tier: the winner of a plan, as MFU of the precision's dense peak with
its 90 % band. Dense is llama3-8b, MoE qwen3-30b-a3b (small experts: the host decides), FP8 llama3-8b in tensorwise
FP8, each on 64 GPUs at 4,096 tokens; FSDP is llama3-8b on 64 GPUs as TorchTitan trains it, LoRA llama2-70b on 8 GPUs
with adapters of rank 16 at 8,192 tokens, as MLPerf has it. "none": no such precision, or nothing fits.
`moesim show hardware NAME` has every figure with its source; assumed ones widen the band and are named. The last
column: published runs of the machine in `scenarios/published`, and how far predictions are from them (median).

| machine | dense BF16 | MoE BF16 | dense FP8 | LoRA | FSDP | rests on | published |
|---|--:|--:|--:|--:|--:|---|---|
EOF
for file in hardware/*.json; do row "$(basename "$file" .json)"; done
cat <<'EOF'

The vendor of the S5000 says 60 % MFU for dense and about 40 % for MoE training (reportify.ai, ldeepai.com): the
predictions of llama3-8b and of qwen3-235b-a22b lie within their bands of it (test_sources).

Gaudi 2 and 3 are here with the rates of their data sheets and the kernels and host of their nearest relative: none of
their runs was compared. Google's TPU and Amazon's Trainium are not: their chips stand in a torus and pass data along
its axes, while every collective here has a scale-up domain and a network behind it (docs/theory/communication.md).
`--hardware tpu-v5p` says so.
EOF
