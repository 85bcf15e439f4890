#!/usr/bin/env bash
# tests/install.sh BUILD - `make install` into an empty folder: what others build on works, and every verb and option
# that the program parses is in the man page and the completions. Prints what is wrong; status 1 then.
set -u
cd "$(dirname "$0")/.." || exit 4
build=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
bad=0
wrong() { echo "$*"; bad=1; }

make -s BUILD="$build" DESTDIR="$root" PREFIX=/usr/local install >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
usr=$root/usr/local
export PKG_CONFIG_PATH=$usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root LD_LIBRARY_PATH=$usr/lib PATH=$usr/bin:$PATH \
  MOESIM_DATA=$usr/share/moesim

# --- libmoesim: the example of the documentation, against the installed header and library --------------------------
# shellcheck disable=SC2046
${CC:-cc} -std=c99 -Wall -Werror examples/predict.c $(pkg-config --cflags --libs moesim) -o "$root/predict" ||
  wrong "examples/predict.c does not build"
for library in moesim moesim_lcma; do
  flags=$(pkg-config --cflags "$library")
  case $flags in *glib*) wrong "$library asks for headers of GLib: $flags" ;; esac
done
readelf -d "$usr/lib/libmoesim.so.0" | grep -q 'NEEDED.*libmpi' && wrong "libmoesim.so needs MPI"
"$root/predict" scenarios/run-llama3-70b-h100-64.json scenarios/plan-llama3-70b-h100-64.json >"$root/out" ||
  wrong "examples/predict.c fails"
step=$(moesim run scenarios/run-llama3-70b-h100-64.json | sed -n 's/^ *step time *\([0-9.]*\) s.*/\1/p')
grep -q "^scenarios/run-llama3-70b-h100-64.json: ${step%?}" "$root/out" ||
  wrong "examples/predict.c says $(head -1 "$root/out"), the program $step s"
exported=$(nm -D --defined-only "$usr/lib/libmoesim.so.0" |
  awk '$3 !~ /^moesim_/ && $3 !~ /^(_init|_fini|__asan|__ubsan|__odr_asan|\.)/ {print $3}' | head -3)
[ -z "$exported" ] || wrong "libmoesim.so exports more than its header: $exported"

# --- the Python package, where there is a python3 -------------------------------------------------------------------
if command -v python3 >/dev/null; then
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$usr/lib/python3/dist-packages python3 -c '
import moesim
print("%.3f" % moesim.run("scenarios/run-llama3-70b-h100-64.json").step_time_s)' >"$root/out" 2>&1
  grep -q "^${step%?}" "$root/out" ||
    wrong "the installed Python package says $(tail -1 "$root/out"), the program $step"
fi

# --- libmoesim_lcma: its example, against the shared and the static library, checked against the plain definition ---
# shellcheck disable=SC2046
multiply() {
  ${CC:-cc} -std=c99 -Wall -Werror examples/multiply.c "-I$usr/include" "$@" -lm -o "$root/multiply" &&
    "$root/multiply" >"$root/out"
}
multiply $(pkg-config --cflags --libs moesim_lcma) ||
  wrong "examples/multiply.c with the shared library: $(cat "$root/out")"
multiply "$usr/lib/libmoesim_lcma.a" $(PKG_CONFIG_SYSROOT_DIR='' pkg-config --libs glib-2.0) -lpthread -ldl ||
  wrong "examples/multiply.c with the static library: $(cat "$root/out")"
exported=$(nm -D --defined-only "$usr/lib/libmoesim_lcma.so.0" |
  awk '$3 !~ /^ms_lcma_/ && $3 !~ /^(_init|_fini|__asan|__ubsan|__odr_asan|\.)/ {print $3}' | head -3)
[ -z "$exported" ] || wrong "libmoesim_lcma.so exports more than its header: $exported"

# --- the manual and the completions: nothing that the program parses is missing -------------------------------------
man=$usr/share/man/man1/moesim.1
sed 's/\\-/-/g' "$man" >"$root/man"
for verb in $(moesim --help | awk '/^  verb/ {on = 1; next} /^$/ {on = 0} on {print $1}' | grep -v '^[-─]'); do
  grep -q "^\.SS moesim $verb" "$root/man" || wrong "man page lacks $verb"
  for option in $(moesim help "$verb" | grep -o -- '--[a-z][a-z-]*' | sort -u); do
    # examples may name options of other programs: only those that are ours count
    moesim "$verb" "$option" --help >/dev/null 2>&1
    moesim help "$verb" | grep -q "^  \(-., \)\?$option[= ]" || continue
    [ "$option" = --help ] || grep -q -- "$option" "$root/man" || wrong "man page lacks $verb $option"
    grep -q -- "$option" "$usr/share/bash-completion/completions/moesim" || wrong "bash completion lacks $verb $option"
    [ "$option" = --help ] ||
      grep -q -- "-l ${option#--} \|-l ${option#--}$" "$usr/share/fish/vendor_completions.d/moesim.fish" ||
      wrong "fish completion lacks $verb $option"
    grep -q -- "'$option" "$usr/share/zsh/vendor-completions/_moesim" || wrong "zsh completion lacks $verb $option"
  done
done
bash -n "$usr/share/bash-completion/completions/moesim" || wrong "bash completion does not parse"
if command -v zsh >/dev/null; then zsh -n "$usr/share/zsh/vendor-completions/_moesim" ||
  wrong "zsh completion does not parse"; fi
if command -v fish >/dev/null; then fish -n "$usr/share/fish/vendor_completions.d/moesim.fish" ||
  wrong "fish completion does not parse"; fi
if command -v groff >/dev/null; then
  warnings=$(groff -man -ww -Tutf8 "$man" 2>&1 >/dev/null | head -3)
  [ -z "$warnings" ] || wrong "man page: $warnings"
fi
breaks=$' \t\n"\'@><=;|&(:' # where readline ends a word, of a bash that nobody changed
complete_words() { # WORD... : what bash offers for the last one
  bash -c 'source "$0/usr/local/share/bash-completion/completions/moesim"
    COMP_WORDBREAKS=$1; shift; COMP_LINE=$*; COMP_POINT=${#COMP_LINE}; compopt() { :; }
    _moesim; echo "${COMPREPLY[*]}"' "$root" "$breaks" "$@"
}
offers() { # EXPECTED WORD...
  local expected=$1
  shift
  local got
  got=$(complete_words "$@")
  [ "$got" = "$expected" ] || wrong "bash completion of '$*' offers '$got', not '$expected'"
}
offers "plan" moesim pla
offers "--fidelity" moesim run --fid
offers "fast full" moesim run --fidelity f
offers "hardware" moesim show har
offers "deepseek-v2 deepseek-v2-lite" moesim show model deepseek-v2
offers "gb200-nvl72" moesim import --hardware gb200-nvl7
offers "gb200-nvl72" moesim import --hardware=gb200-nvl7
offers "modelzoo" moesim launch --form=slurm:modelz # readline keeps "slurm:"
breaks=" "
offers "--hardware=gb200-nvl72" moesim import --hardware=gb200-nvl7
offers "k8s:volcano" moesim launch --form k8s:v
if command -v shellcheck >/dev/null; then # the completion, and every form that is a script
  shellcheck -s bash "$usr/share/bash-completion/completions/moesim" || wrong "bash completion: see above"
  echo '{"model": "mixtral-8x7b", "hardware": "h100-sxm", "gpus": 64, "training": {"seq_length": 4096,
    "global_batch_size": 512}, "layout": {"tp": 2, "ep": 4, "etp": 2, "pp": 4}, "options": {"dispatcher": "alltoall",
    "moe_router_fusion": false, "moe_permute_fusion": false}}' >"$root/run.json"
  for form in megatron mt-megatron slurm slurm:modelzoo slurm:mt-megatron; do
    moesim launch --form "$form" "$root/run.json" >"$root/form.sh" || wrong "launch --form $form fails"
    shellcheck -s bash "$root/form.sh" || wrong "launch --form $form: see above"
  done
  moesim launch --preflight "$root/run.json" >"$root/form.sh" || wrong "launch --preflight fails"
  shellcheck -s bash "$root/form.sh" || wrong "launch --preflight: see above"
  for form in k8s k8s:jobset k8s:volcano skypilot; do # the scripts in their blocks
    moesim launch --form "$form" --restarts 2 --out "$root/form.yaml" "$root/run.json" ||
      wrong "launch --form $form fails"
    rm -f "$root"/block.*
    awk -v to="$root/block" '
      { at = match($0, /[^ ]/) }
      file && at && indent && at < indent { file = "" }
      file && at && !indent { indent = at }
      file { print substr($0, indent) >file }
      /[|]$/ && !file { file = to "." ++n; indent = 0 }' "$root/form.yaml"
    grep -q torchrun "$root"/block.* || wrong "launch --form $form starts nothing"
    for block in "$root"/block.*; do shellcheck -s bash "$block" || wrong "launch --form $form: see above"; done
    ! python3 -c 'import yaml' 2>/dev/null ||
      python3 -c 'import sys, yaml; yaml.safe_load(sys.stdin)' <"$root/form.yaml" ||
      wrong "launch --form $form is no YAML"
  done
fi
try_values() { # FUNCTION of EXPECTED and LINE
  "$1" "plan" "moesim pla"
  "$1" "deepseek-v2 deepseek-v2-lite" "moesim show model deepseek-v2"
  "$1" "gb200-nvl72" "moesim import --hardware gb200-nvl7"
  "$1" "qwen3-30b-a3b qwen3-32b" "moesim plan --model qwen3-3"
  "$1" "megatron" "moesim plan --launch mega"
  "$1" "slurm:modelzoo" "moesim launch --form slurm:modelz"
  "$1" "fast full" "moesim run --fidelity f"
}
if command -v fish >/dev/null; then
  fish_offers() { # EXPECTED LINE
    local got
    got=$(fish -c 'source $argv[1]; complete -C $argv[2]' "$usr/share/fish/vendor_completions.d/moesim.fish" "$2" |
      cut -f1 | tr '\n' ' ')
    [ "$got" = "$1 " ] || wrong "fish completion of '$2' offers '$got', not '$1'"
  }
  try_values fish_offers
fi
if command -v zsh >/dev/null; then
  zsh_offers() { # EXPECTED LINE
    local got
    got=$(timeout 60 zsh -f tests/lib/complete.zsh "$usr/share/zsh/vendor-completions" "$2")
    [ "$got" = "$1 " ] || wrong "zsh completion of '$2' offers '$got', not '$1'"
  }
  try_values zsh_offers
fi

# --- moesim is linked to little; what needs more is done by moesim-all, which is found where it is installed ---------
readelf -d "$usr/bin/moesim" | grep -qE 'NEEDED.*lib(mpi|soup)' && wrong "moesim itself needs MPI or libsoup"
all=$usr/libexec/moesim/moesim-all
if [ -e "$all" ] && readelf -d "$all" | grep -q 'NEEDED.*libsoup'; then
  moesim serve --help >"$root/out" 2>&1 || wrong "moesim serve does not reach moesim-all: $(cat "$root/out")"
  mv "$all" "$root/all"
  moesim serve --help >"$root/out" 2>&1
  status=$?
  { [ $status = 4 ] && grep -q 'moesim-all' "$root/out"; } ||
    wrong "moesim serve without moesim-all: exit $status, $(cat "$root/out")"
  mv "$root/all" "$all"
fi

unset PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR # or make would find other flags, and build everything anew the next time
make -s BUILD="$build" DESTDIR="$root" PREFIX=/usr/local uninstall
left=$(find "$usr" -type f | head -3)
[ -z "$left" ] || wrong "uninstall leaves $left"
exit $bad
