#!/usr/bin/env bash
# tests/commands.sh BUILD - runs the command lines that README.md and docs show: lines of code blocks that begin with
# moesim, build/moesim or make, and what README.md has in backquotes, each once. A block behind a line
# `<!-- not run: WHY -->` is left out, and in backquotes what has words in capitals, but for SCENARIO. The quick tier
# (MOESIM_TIER) takes every third of those that are over in a second. Of make only the recipe is worked out (make -n):
# its targets have tests of their own. Commands run in a folder of their own, with links to the tree's data. Prints
# what fails; status 1 then.
set -u
cd "$(dirname "$0")/.." || exit 4
build=$(cd "$1" && pwd)
top=$PWD
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
for data in scenarios hardware models software reliability plots tests; do ln -s "$top/$data" "$room/$data"; done
ln -s "$build" "$room/build"
printf '%s' '{"schema": 1, "model": "llama3-8b", "hardware": "h100-sxm", "gpus": 16, "training": {"seq_length": 8192,
  "global_batch_size": 64}}' >"$room/small.json"
export PATH=$build:$PATH MOESIM_DATA=$top OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

commands() { # FILE…: file:line<TAB>command, of all blocks that are not marked
  awk '
    FNR == 1 { skip = fenced = indented = 0 }
    /^<!-- not run: ./ { skip = 1; next }
    /^```/ { fenced = !fenced; if (!fenced) skip = 0; next }
    !fenced && /^    / { if (!indented) indented = 1 }
    !fenced && !/^    / { if (indented || $0 != "") { if (indented) skip = 0; indented = 0 } }
    (fenced || indented) && !skip {
      line = $0; sub(/^ +/, "", line); sub(/ +# .*$/, "", line)
      if (line ~ /^(moesim|build\/moesim|make) /) printf "%s:%d\t%s\n", FILENAME, FNR, line
    }' "$@"
}

quoted() { # FILE: the same of what stands in backquotes and can run as it is; `init` asks at a terminal
  awk -F'`' -v OFS='\t' '{
    for (i = 2; i <= NF; i += 2) {
      sub(/SCENARIO/, "scenarios/run-llama3-70b-h100-64.json", $i)
      if ($i ~ /^moesim / && $i !~ /[A-Z][A-Z]|^moesim init |^moesim show hardware$/) print FILENAME ":" FNR, $i
    }
  }' "$1"
}

# As good for a test as what stands there, in a tenth of the time: a named scheme measures no rates first.
quicker() { # COMMAND
  local command=${1/gemm bench 2048 2048 2048/gemm bench 512 512 512}
  command=${command/gemm bench /gemm bench --scheme strassen }
  [[ $command != *--under* ]] || command=${command/scenarios\/plan-*.json/small.json}
  [[ $command != *'report --around'* && $command != *'--around '*deepseek* ]] ||
    command=${command/scenarios\/run-*.json/small.json}
  command=${command/gemm run 3000 3000 3000/gemm run 900 900 900}
  printf '%s' "$command"
}

bad=0 n=0 short=0
while IFS=$'\t' read -r where command; do
  case $command in
  make\ *) run="make -n -C '$top' ${command#make}" ;;
  *) run=$(quicker "$command") ;;
  esac
  if [ "${MOESIM_TIER:-full}" != full ]; then
    case $command in
    make\ * | moesim\ show\ * | moesim\ help\ * | moesim\ schema* | moesim\ gemm\ decide\ *--hardware*) ;;
    *) continue ;;
    esac
    short=$((short + 1))
    [ $((short % 3)) -eq 1 ] || continue
  fi
  n=$((n + 1))
  out=$(cd "$room" && timeout 300 bash -c "$run" 2>&1 </dev/null) ||
    { echo "$where: $command: exit $?"; tail -n 3 <<<"$out"; bad=1; }
done < <({ commands README.md $(find docs -name '*.md' -not -path 'docs/tutorials/*' | sort) # those: tests/tasks.sh
  quoted README.md; } | sed 's|\tbuild/moesim|\tmoesim|' | awk -F'\t' '!seen[$2]++')
[ "$n" -ge 4 ] || { echo "only $n commands were found"; bad=1; }
exit $bad
