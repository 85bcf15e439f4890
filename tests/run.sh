#!/usr/bin/env bash
# tests/run.sh BUILD quick|full|golden-update - runs the test programs of BUILD/tests and the golden cases.
#
# quick leaves out programs named test_full_*, the installation (tests/install.sh), the tables of techniques
# (tests/rows.sh), the tasks of a new user (tests/tasks.sh), the page of machines (tests/machines.sh), the Python
# package (tests/python.sh), the notebook (tests/notebook.sh), Slurm (tests/slurm.sh) and Megatron-LM itself
# (tests/real.sh), and the others draw and sample less (tests/lib/tier.h). A golden case is a folder tests/golden/NAME
# with `cmd` (a shell command that calls `moesim`, run from the top of the source tree) and what it must print and
# return, exactly: `stdout`, `stderr`, `exit`. golden-update writes those three. The full tier also runs
# tests/browser/*.mjs. The last line is always "N passed, M failed" (and ", K skipped" without a browser); status 1
# when M > 0. BUILD/times-TIER lists the seconds of CPU of each, the dearest first.
set -u
cd "${0%/*}/.." || exit 4
export LC_ALL=C NO_COLOR=1 G_DEBUG=fatal-warnings G_SLICE=always-malloc MOESIM_CHECK=1
export LSAN_OPTIONS=suppressions=$PWD/tests/leaks.txt:print_suppressions=0
unset MOESIM_DATA

# --- one job, in a process of its own: its result is a file "PASSED FAILED" and what it has to say ------------------
one_program() { # PROGRAM RESULT
  local name=${1##*/} out status passed=0 failed=0 line
  out=$(timeout 600 "$1" 2>&1 </dev/null)
  status=$?
  while read -r line; do
    [[ $line =~ ^'[  PASSED  ] '([0-9]+)' test' ]] && passed=$((passed + BASH_REMATCH[1]))
    [[ $line =~ ^'[  FAILED  ] '([0-9]+)' test' ]] && failed=$((failed + BASH_REMATCH[1]))
  done <<<"$out"
  if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
  if [ "$status" -eq 0 ] && [ "$passed" -eq 0 ] && [[ $out != *'0 test(s) run'* && $out != *1..0* ]]; then passed=1; fi
  { echo "$passed $failed"
    if [ "$failed" -gt 0 ]; then echo "FAILED $name (exit $status)"; tail -n 60 <<<"$out"; fi; } >"$2"
}

golden_run() { # CASE DIRECTORY: leaves stdout, stderr and exit in DIRECTORY
  timeout 120 bash -c "$(<"$1/cmd")" >"$2/stdout" 2>"$2/stderr" </dev/null
  echo $? >"$2/exit"
}

one_golden() { # CASE RESULT
  local dir=${2%/*}/../golden/${1##*/} part
  mkdir -p "$dir"
  golden_run "$1" "$dir"
  if diff -rq --exclude=cmd "$1" "$dir" >/dev/null; then echo "1 0" >"$2"
  else
    { echo "0 1"
      echo "FAILED golden ${1##*/}: $(<"$1/cmd")"
      for part in exit stdout stderr; do diff -u "$1/$part" "$dir/$part" 2>&1 | head -n 40; done; } >"$2"
  fi
}

one_script() { # SCRIPT RESULT; exit 77: skipped, with a word why
  local out status
  out=$(timeout 600 "$1" "$build" 2>&1 </dev/null)
  status=$?
  if [ "$status" -eq 0 ]; then echo "1 0" >"$2"
  elif [ "$status" -eq 77 ]; then { echo "0 0 1"; echo "skipped $1: $out"; } >"$2"
  else { echo "0 1"; echo "FAILED $1"; tail -n 40 <<<"$out"; } >"$2"; fi
}

# Headless Chromium over the pages (tests/browser/NAME.mjs). Without node, Chromium or playwright-core it is skipped,
# with a word.
one_browser() { # SCRIPT RESULT
  local out status why="" line
  command -v node >/dev/null || why="no node"
  [ -x "${CHROMIUM:-/usr/bin/chromium}" ] || why="no chromium"
  [ -d tests/browser/node_modules/playwright-core ] || why="no playwright-core"
  if [ -n "$why" ]; then
    { echo "0 0 1"; echo "skipped ${1##*/}: $why; ./bootstrap --tests installs it"; } >"$2"
    return
  fi
  out=$(timeout 600 node "$1" 2>&1 </dev/null)
  status=$?
  line=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' <<<"$out" | tail -n 1)
  if [ -z "$line" ]; then line="0 1"; elif [ "$status" -ne 0 ] && [ "${line#* }" -eq 0 ]; then line="${line% *} 1"; fi
  { echo "$line"
    if [ "${line#* }" -gt 0 ]; then echo "FAILED ${1##*/} (exit $status)"; tail -n 60 <<<"$out"
    else grep -v passed <<<"$out"; fi; } >"$2"
}

build=${BUILD_FOLDER:-} TIMEFORMAT='%U %S'
case "${1:-}" in
--browser | --script | --program | --golden)
  { time "one_${1#--}" "$2" "$3"; } 2>"${3%/*}/../times/${3##*/}"
  exit 0 ;;
esac

# --- all of them ----------------------------------------------------------------------------------------------------
build=${1:?usage: tests/run.sh BUILD quick|full|golden-update}
tier=${2:?usage: tests/run.sh BUILD quick|full|golden-update}
PATH=$(cd "$build" && pwd):$PATH
export PATH BUILD_FOLDER=$build MOESIM_TIER=$tier

if [ "$tier" = golden-update ]; then
  for case in tests/golden/*/; do golden_run "${case%/}" "${case%/}"; done
  git status --short tests/golden 2>/dev/null
  exit 0
fi

folder=$(mktemp -d) results=$folder/results
trap 'rm -rf "$folder"' EXIT
mkdir "$results" "$folder/times"
# The longest first, so that none is left alone at the end.
{
  for script in tests/browser/*.mjs; do
    case $script in */harness.mjs) continue ;; esac
    [ "$tier" = full ] && printf '%s\0%s\0%s\0' --browser "$script" "$results/browser.$(basename "$script" .mjs)"
  done
  for name in machines tasks real rows install slurm notebook python; do
    [ "$tier" != full ] || [ -n "${SANITIZE:-}" ] || printf '%s\0%s\0%s\0' --script "tests/$name.sh" "$results/$name"
  done
  [ -n "${SANITIZE:-}" ] || printf '%s\0%s\0%s\0' --script tests/commands.sh "$results/commands"
  for source in tests/unit/test_full_*.c $(printf '%s\n' tests/unit/*.c | grep -v /test_full_); do
    program=$build/tests/$(basename "$source" .c)
    case $(basename "$program") in test_full_*) [ "$tier" = full ] || continue ;; esac
    [ -x "$program" ] && printf '%s\0%s\0%s\0' --program "$program" "$results/$(basename "$program")"
  done
  for case in tests/golden/*/; do
    [ -f "$case/cmd" ] && printf '%s\0%s\0%s\0' --golden "${case%/}" "$results/golden.$(basename "$case")"
  done
} | xargs -0 -r -n 3 -P 2 "$PWD/tests/run.sh"

(cd "$folder/times" && awk 'NF == 2 {printf "%.2f %s\n", $1 + $2, FILENAME}' ./* | sed 's|\./||' | sort -rn) \
  >"$build/times-$tier"

passed=0 failed=0 skipped=0
for result in "$results"/*; do
  [ -f "$result" ] || continue
  read -r p f s <"$result"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + ${s:-0}))
  tail -n +2 "$result"
done
if [ "$passed" -eq 0 ] && [ "$failed" -eq 0 ]; then echo "no test was found"; failed=1; fi
[ "$skipped" -eq 0 ] && echo "$passed passed, $failed failed" || echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
