#!/usr/bin/env bash
# tests/rows.sh BUILD - techniques are rows (src/*/*.def): a row with an empty or a missing column does not compile, a
# new row needs no other edit, and no other folder asks for a technique by name. Works in a copy of the sources; prints
# what is wrong, status 1 then.
set -u
cd "$(dirname "$0")/.." || exit 4
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
bad=0
build=${1:-build}
wrong() { echo "$*"; bad=1; }
cp -r src "$copy/src"
flags="-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-missing-field-initializers -I$copy/src \
  $(pkg-config --cflags glib-2.0 json-glib-1.0 yaml-0.1)"

# Headers of libraries are read once, not for every row that is tried.
printf '#include <%s>\n' glib.h math.h string.h >"$copy/libraries.h"
# shellcheck disable=SC2086
${CC:-cc} $flags -x c-header "$copy/libraries.h" -o "$copy/libraries.h.gch" 2>"$copy/log" || wrong "$(cat "$copy/log")"
flags="$flags -include $copy/libraries.h"

# shellcheck disable=SC2086
compiles() { # FILES, separated by commas
  local file
  for file in ${1//,/ }; do ${CC:-cc} $flags -fsyntax-only "$copy/$file" 2>"$copy/log" || return 1; done
}

write_row() { # DEF MACRO COLUMN...: the table as it is in the tree, and one row more
  local def=$1 text="$2($3"
  shift 3
  for column in "$@"; do text="$text, $column"; done
  { cat "$def"; echo "$text)"; } >"$copy/$def"
}

# The columns of the first row of a table, one a line.
columns_of() { # DEF MACRO
  awk -v macro="^$2\\(" '
    !on && $0 ~ macro { on = 1; sub(/^[^(]*\(/, "") }
    on {
      sub(/^ +/, "")
      for (i = 1; i <= length($0); i++) {
        c = substr($0, i, 1)
        if (c == "\\") { text = text c substr($0, ++i, 1); continue }
        if (c == "\"") quoted = !quoted
        if (!quoted) depth += (c == "(") - (c == ")")
        if (depth < 0) { print text; exit }
        if (c == "," && !quoted && depth == 0) { print text; text = "" }
        else if (text != "" || c != " ") text = text c
      }
      text = text " "
    }' "$1"
}

# Which tables of the copies tried/N.def of one that a FILE has do not compile, read behind each other in one run: each
# is read by the file as its own, with every name of the file defined anew.
do_not_compile() { # DEF FILES, separated by commas
  local def=$1 file i
  { echo '#ifdef MS_TRIED'; echo '#include MS_TRIED'; echo '#else'; cat "$copy/$def"; echo '#endif'; } >"$copy/whole"
  mv "$copy/$def" "$copy/kept"
  mv "$copy/whole" "$copy/$def"
  for file in ${2//,/ }; do
    for i in "$copy"/tried/*.def; do
      echo '#undef MS_TRIED'
      echo "#define MS_TRIED \"$i\""
      grep '^#define' "$copy/$file" | sed -E 's/#define +([A-Za-z0-9_]+).*/#undef \1/'
      echo "#include \"$copy/$file\""
    done >"$copy/all.c"
    sed -i "1i #include \"$copy/$file\"" "$copy/all.c" # with its headers, which read the table as it is
    # shellcheck disable=SC2086
    ${CC:-cc} $flags -fmax-errors=0 -fsyntax-only "$copy/all.c" 2>&1
  done | awk '/ error: /{ counts = !/redefinition/ } counts && match($0, /\/tried\/[0-9a-z]+\.def:/) &&
    (/ error: / || /in expansion of/) { print substr($0, RSTART + 7, RLENGTH - 12) }' | sort -u
  mv "$copy/kept" "$copy/$def"
}

# A row like the first, or with the columns that are given, compiles under another name; the same row does not when any
# one column is empty, or with one column less. All are tried together, and alone what that does not tell. Leaves the
# whole one in the copy.
try_row() { # DEF FILES MACRO [COLUMN...]
  local def=$1 file=$2 macro=$3 i row found
  shift 3
  local columns=("$@")
  if [ $# = 0 ]; then
    mapfile -t columns < <(columns_of "$def" "$macro")
    columns=('TWIN, "twin"' "${columns[@]:2}")
  fi
  set -- "${columns[@]}"
  mkdir -p "$copy/tried"
  rm -f "$copy"/tried/*
  for ((i = 0; i < ${#columns[@]}; i++)); do
    row=("${columns[@]}")
    row[i]=
    write_row "$def" "$macro" "${row[@]}"
    cp "$copy/$def" "$copy/tried/$i.def"
  done
  row=("${columns[@]}")
  unset 'row[-1]' # of whichever column is missing, the macro counts one too few
  write_row "$def" "$macro" "${row[@]}"
  cp "$copy/$def" "$copy/tried/$i.def"
  write_row "$def" "$macro" "$@"
  cp "$copy/$def" "$copy/tried/whole.def"
  compiles "$file" || wrong "$def: a whole row does not compile: $(grep -m 1 error "$copy/log")"
  found=" $(do_not_compile "$def" "$file" | tr '\n' ' ')"
  for ((i = 0; i <= ${#columns[@]}; i++)); do
    if [[ $found == *" $i "* && $found != *" whole "* ]]; then continue; fi
    cp "$copy/tried/$i.def" "$copy/$def"
    ! compiles "$file" || wrong "$def: a row with column $((i + 1)) empty or missing compiles (${columns[i]-the last})"
  done
  write_row "$def" "$macro" "$@"
}

# Columns that contradict each other, or that no rows lay together, do not compile.
is_refused() { # DEF FILE MACRO COLUMN...
  local def=$1 file=$2
  write_row "$def" "${@:3}"
  ! compiles "$file" || wrong "$def: a row of ${*:4} compiles"
  cp "$def" "$copy/$def"
}

nobody_names() { # PATTERN OWN_FOLDER DEFAULTS: uses of single rows outside the folder of the table, but for defaults
  local named
  named=$(grep -rnE "$1" src --include='*.[ch]' | grep -vE "^$2" | grep -vE "$3")
  [ -z "$named" ] || wrong "asks for a technique by name, not its row: $named"
}

# What asks for a value of an enumeration is a switch without a default: with one value more it does not compile.
value_is_asked_for() { # HEADER VALUE FILE...: the value in front of the new one
  local header=$1 value=$2 file
  shift 2
  sed -E "0,/\\b$value\\b/s/(WORD\\()?\\b$value\\b(, \"[^\"]*\"\\))?/&, \\1${value}_TWIN\\2/" "$header" >"$copy/$header"
  for file in "$@"; do
    compiles "$file"
    grep -q "${value}_TWIN. not handled in switch" "$copy/log" || wrong "$file does not ask for a value behind $value"
  done
  cp "$header" "$copy/$header"
}

# --- dispatchers ----------------------------------------------------------------------------------------------------
nobody_names 'MS_DISPATCH_[A-Z]' src/describe/ 'the default \*/|ms_dispatchers\[MS_DISPATCH_ALLGATHER\].launch_type'
try_row src/describe/dispatcher.def src/describe/dispatcher.c MS_DISPATCHER

# Every row under another name predicts what it does itself: what the row does not say, nothing asks for. Collected
# here, predicted by predict_twins: what knows a table is compiled anew, the rest is the library's.
twin_tables=() knows_a_table='' twins=0
twins_predict_the_same() { # DEF MACRO KNOWS_THE_TABLE KEY SCENARIO WORD...: words of rows that the scenario can have
  local name word key=$4 scenario=$5
  twin_tables+=("$1 $2")
  knows_a_table=${knows_a_table:+$knows_a_table|}$3
  shift 5
  mkdir -p "$copy/runs"
  for word in "$@"; do
    twins=$((twins + 1))
    for name in "$word" "twin-$word"; do
      sed -E 's/("'"$key"'": *)"[a-z0-9-]+"/\1"'"$name"'"/' "$scenario" >"$copy/runs/$twins.$key.$name.json"
    done
  done
}

predict_twins() {
  local objects=() file fidelity def macro word one
  while read -r def macro; do
    { cat "$def"
      sed -E '/\($/ { N; s/\n *//; }' "$def" | sed -nE "/^$macro\\(/,/\\)\$/p" |
        sed -E 's/^('"$macro"'\()([A-Z0-9_]+), "/\1TWIN_\2, "twin-/; s/(\.launch_(type|format) = )"[^"]*"/\1NULL/'
    } >"$copy/$def"
  done < <(printf '%s\n' "${twin_tables[@]}" | sort -u)
  for file in $(grep -lE "$knows_a_table" -r src --include='*.c'); do
    # shellcheck disable=SC2086
    ${CC:-cc} $flags -c "$copy/$file" -o "$copy/${file//\//-}.o" 2>"$copy/log" ||
      wrong "$file does not compile with one row more: $(grep -m 1 error "$copy/log")"
    objects+=("$copy/${file//\//-}.o")
  done
  # shellcheck disable=SC2046
  ${CC:-cc} "$build/src/cli/main.o" "${objects[@]}" "$build/libmoesim.a" $(make -s link-flags) -o "$copy/moesim" \
    2>"$copy/log" || { wrong "a program with more rows does not link: $(head -n 2 "$copy/log")"; return; }
  for fidelity in bound fast full; do # a line for each scenario, in the order of their names
    MOESIM_DATA=$PWD "$copy/moesim" run --json --fidelity $fidelity "$copy"/runs/*.json 2>&1 |
      sed -E 's/"elapsed_s":[0-9.e+-]+//; s/"name":"[^"]*"//' | paste -d' ' <(printf '%s\n' "$copy"/runs/*.json) - |
      sed "s|^$copy/runs/||; s/twin-//g"
  done >"$copy/predictions"
  for one in "$copy"/runs/*.twin-*.json; do
    word=$(basename "$one")
    word=${word//twin-/}
    grep -F "$word " "$copy/predictions" >"$copy/of"
    [ "$(grep -c '"step_time_s":[0-9]' "$copy/of")" = 6 ] ||
      wrong "no predictions with ${word#*.}: $(head -c 200 "$copy/of")"
    [ "$(sort "$copy/of" | uniq -c | grep -c '^ *2 ')" = 3 ] ||
      wrong "known by its name, as its twin differs: ${word#*.}"
  done
  for one in "$copy"/runs/*.{dispatcher,precision}.twin-*.json; do # whose twins no argument says
    ! MOESIM_DATA=$PWD "$copy/moesim" launch "$one" >/dev/null 2>"$copy/log" || wrong "launches ${one##*.twin-}"
    grep -qE '(options.dispatcher|training.precision): .* does not have twin-' "$copy/log" ||
      wrong "does not say why it does not launch ${one##*.twin-}: $(head -n 1 "$copy/log")"
  done
  while read -r def macro; do cp "$def" "$copy/$def"; done < <(printf '%s\n' "${twin_tables[@]}")
}

twins_predict_the_same src/describe/dispatcher.def MS_DISPATCHER 'MS_N_DISPATCHERS|ms_dispatcher|dispatcher\.def' \
  dispatcher scenarios/run-qwen3-235b-h100-256.json alltoall deepep hybridep

# --- precisions -----------------------------------------------------------------------------------------------------
nobody_names '\bMS_(BF16|FP16|FP8_[A-Z]+|MXFP8|NVFP4)\b|[!=]= MS_ODT_(FP8|FP8_BLOCK|MXFP8|NVFP4)\b' src/describe/ '^$'
try_row src/describe/precision.def src/describe/precision.c MS_PRECISION
cp src/describe/precision.def "$copy/src/describe/precision.def"
try_row src/describe/op_dtype.def src/describe/precision.c,src/describe/enums.c MS_OP_DTYPE
cp src/describe/op_dtype.def "$copy/src/describe/op_dtype.def"
twins_predict_the_same src/describe/precision.def MS_PRECISION 'MS_N_PRECISIONS|ms_precisions|precision\.def' \
  precision scenarios/run-deepseek-v3-gb200-256.json fp8-tensorwise fp8-blockwise mxfp8

# --- schedules ------------------------------------------------------------------------------------------------------
nobody_names 'MS_SCHED_[A-Z0-9]' src/sched/ '[^=!<>]= MS_SCHED_1F1B[,;]|ms_schedule_new\(MS_SCHED_1F1B,'

# A schedule that is 1F1B under another name: a row and a file with a builder.
try_row src/sched/schedule.def src/sched/schedule.c SCHEDULE TWIN '"twin"' '"1F1B under another name"' ms_twin_build \
  ms_fits_always \
  MS_PLACE_ROUND_ROBIN MS_CHUNKS_ONE MS_COPIES_ONE MS_SPLITS_NONE MS_SENDS_BLOCK MS_COSTS_IGNORED MS_PAIRS_NEVER \
  MS_STEPS_APART \
  ms_1f1b_live MS_SEARCH_LEAVES_OUT '"it is a test"'
cat >"$copy/src/sched/twin.c" <<'C'
#include "sched/build.h"
MsSchedule *ms_twin_build(const MsScheduleNumbers *n) { return ms_1f1b_build(n); }
C
cat >"$copy/main.c" <<'C'
#include "sched/sched.h"
#include <string.h>
int main(void) {
  MsScheduleKind twin = 0;
  while (strcmp(ms_schedule_words[twin], "twin") != 0) twin++;
  g_autoptr(MsSchedule) a = ms_schedule_new((int)twin, 4, 8, 1, 0, FALSE, NULL, 0),
                        b = ms_schedule_new(MS_SCHED_1F1B, 4, 8, 1, 0, FALSE, NULL, 0);
  if (!a || !ms_schedule_valid(a, NULL, 0)) return 1;
  for (int s = 0; s < 4; s++)
    if (a->n[s] != b->n[s] || memcmp(a->slot[s], b->slot[s], sizeof(MsSlot) * (size_t)a->n[s]) != 0) return 2;
  g_autoptr(MsSchedule) refused = ms_schedule_new((int)twin, 4, 8, 2, 0, FALSE, NULL, 0); /* its row says one chunk */
  return refused ? 3 : 0;
}
C
# shellcheck disable=SC2086,SC2046
${CC:-cc} $flags "$copy/main.c" "$copy"/src/sched/*.c "$copy"/src/base/{err,kept}.c $(pkg-config --libs glib-2.0) \
  -lm -o "$copy/main" 2>"$copy/log" ||
  wrong "a new schedule needs more than a row and a builder: $(grep -m 1 error "$copy/log")"
"$copy/main" || wrong "the new schedule is not the one that its row describes ($?)"

# The last row of the tree can go again, with nothing left that needs it.
sed '/^SCHEDULE(GPIPE/,$d' src/sched/schedule.def >"$copy/src/sched/schedule.def"
for file in sched/schedule.c layout/rules_stages.c launch/groups_layout.c; do
  compiles "src/$file" || wrong "src/$file needs the row of gpipe: $(grep -m 1 error "$copy/log")"
done
cp src/sched/schedule.def "$copy/src/sched/schedule.def"

# --- communication of context parallelism ---------------------------------------------------------------------------
nobody_names 'MS_CP_(P2P|ALL_GATHER|A2A|A2A_P2P)[^A-Z0-9_]' src/describe/cp_comm '[^=!<>]= MS_CP_P2P;'
try_row src/describe/cp_comm.def src/describe/cp_comm.c CP_COMM
cp src/describe/cp_comm.def "$copy/src/describe/cp_comm.def"
sed -E 's/"layout": \{/&"cp": 2, "cp_comm_type": "p2p", /' scenarios/run-llama3-70b-h100-64.json >"$copy/cp.json"
twins_predict_the_same src/describe/cp_comm.def CP_COMM 'MS_N_CP_COMMS|ms_cp_comm_(words|rows)|cp_comm\.def' \
  cp_comm_type "$copy/cp.json" p2p all_gather a2a

value_is_asked_for src/describe/cp_comm.h MS_CP_HEADS_INSIDE src/layout/resolve.c
value_is_asked_for src/describe/cp_comm.h MS_CP_KEYS_ARE_GATHERED src/work/attention.c src/exec/rows_attention.c \
  src/launch/form_titan.c
for pair in STAY,STAY AMONG_ALL,GO_ROUND AMONG_ALL,ARE_GATHERED INSIDE,STAY INSIDE,ARE_GATHERED; do
  is_refused src/describe/cp_comm.def src/describe/cp_comm.c CP_COMM TWIN '"twin"' '"no rows lay it"' \
    "MS_CP_HEADS_${pair%,*}" "MS_CP_KEYS_${pair#*,}" '""'
done

# --- sets of modules, attention backends ----------------------------------------------------------------------------
words=src/describe/enums.c
sets=src/describe/module_sets.c
nobody_names 'MS_(RM|OM|CG)_[A-Z]' 'src/(describe|work)/' '^$'
try_row src/describe/recompute_module.def src/describe/recompute.c,$words MS_RECOMPUTE_MODULE
try_row src/describe/offload_module.def src/work/rows.c,$sets,$words MS_OFFLOAD_MODULE
try_row src/describe/cuda_graph.def src/work/graphs.c,$sets,$words MS_CUDA_GRAPH
nobody_names 'MS_ATTN_(FUSED|FLASH|UNFUSED)' src/describe/ 'MS_ATTN_FUSED[,;]'
try_row src/describe/attention_backend.def $words MS_ATTN_BACKEND
twins_predict_the_same src/describe/attention_backend.def MS_ATTN_BACKEND \
  'MS_N_ATTN_BACKENDS|ms_attn_(backends|backend_words|generation)|attention_backend\.def' attention_backend \
  scenarios/published/nanotron/NT-1B-n2-dp2tp8pp1-mbs2-z1.json flash fa2 triton unfused
value_is_asked_for src/describe/enums.h MS_ATTN_IN_TRITON src/cost/cost.c

# --- frameworks, vendors --------------------------------------------------------------------------------------------
nobody_names 'MS_FRAMEWORK_[A-Z]' 'src/(describe|launch)/' \
  '[ (]framework != MS_FRAMEWORK_MEGATRON|MS_FRAMEWORK_MEGATRON[;,]|start\(s->hardware, MS_FRAMEWORK_MEGATRON'
try_row src/describe/framework.def src/describe/framework.c,$words MS_FRAMEWORK
cp src/describe/framework.def "$copy/src/describe/framework.def"
sed -E 's/"hardware"/"framework": "megatron", &/' scenarios/run-llama3-70b-h100-64.json >"$copy/megatron.json"
frameworks='MS_N_FRAMEWORKS|ms_frameworks\b|ms_framework_words|framework\.def|vendor\.def'
twins_predict_the_same src/describe/framework.def MS_FRAMEWORK "$frameworks" framework "$copy/megatron.json" megatron
twins_predict_the_same src/describe/framework.def MS_FRAMEWORK "$frameworks" framework \
  scenarios/published/nanotron/NT-1B-n2-dp2tp8pp1-mbs2-z1.json nanotron
nobody_names '"(NVIDIA|AMD|Moore Threads|Huawei|Intel)"' src/describe/ '^$'

# --- collectives, optimizers ----------------------------------------------------------------------------------------
nobody_names 'MS_COLLECTIVES_[A-Z]' src/describe/ '^$'
try_row src/describe/collectives.def src/describe/hardware_table.c MS_COLLECTIVES
sed -E 's/"hardware": "h100-sxm"/"hardware": {"base": "h100-sxm", "collectives": "nccl"}/' \
  scenarios/run-llama3-70b-h100-64.json >"$copy/collectives.json"
twins_predict_the_same src/describe/collectives.def MS_COLLECTIVES \
  'MS_N_COLLECTIVES|ms_collectives_rows|collectives\.def' \
  collectives "$copy/collectives.json" nccl nccl-pat hccl hccl-a2
try_row src/describe/optimizer.def $words MS_OPTIMIZER
cp src/describe/optimizer.def "$copy/src/describe/optimizer.def"

# --- operators, adapters, laws ---------------------------------------------------------------------------------------
try_row src/describe/op.def src/work/op.c,src/describe/curve_op.c OP
cp src/describe/op.def "$copy/src/describe/op.def"
try_row src/describe/lora_target.def src/describe/lora.c,$words MS_LORA_TARGET
cp src/describe/lora_target.def "$copy/src/describe/lora_target.def"
try_row src/describe/laws.def src/describe/laws.c MS_LAW twin '"s"' 0 1 '"a test"'
cp src/describe/laws.def "$copy/src/describe/laws.def"

# --- small sets of words --------------------------------------------------------------------------------------------
value_is_asked_for src/describe/words.def MS_OPTIMIZER_FOREACH src/work/step.c
value_is_asked_for src/describe/enums.h MS_MATRICES_ORTHOGONALISED src/describe/enums.c src/work/step.c
value_is_asked_for src/describe/words.def MS_NORM_LAYER src/work/norm.c src/work/count.c src/exec/rows_linear.c
value_is_asked_for src/describe/words.def MS_ACT_SQUARED_RELU src/work/mlp.c src/exec/rows_linear.c
value_is_asked_for src/describe/words.def MS_GROUPED_TURBO src/work/experts.c
value_is_asked_for src/describe/words.def MS_LINEAR_CP_CHUNKWISE src/work/delta_net.c
value_is_asked_for src/describe/words.def MS_GRAPH_LOCAL src/work/graphs.c
value_is_asked_for src/describe/words.def MS_DT_FP16 src/memory/memory.c
value_is_asked_for src/describe/framework.h MS_AGAIN_READ src/work/dispatch.c
value_is_asked_for src/describe/routing.h MS_ROUTING_ROUND_ROBIN src/work/piece.c
for value in MS_PERMUTE_EXCHANGE MS_PAD_ALWAYS MS_ASK_MAP MS_WAIT_BEHIND MS_CARRY_ONCE MS_WITH_DOMAIN_EXPERT; do
  folder=work/dispatch.c
  [ $value != MS_PAD_ALWAYS ] || folder=work/experts.c
  value_is_asked_for src/describe/dispatcher.h $value src/$folder
done
value_is_asked_for src/describe/dispatcher.h MS_MOVED_BY_ASYNC_COPIES src/cost/cost.c
value_is_asked_for src/describe/dispatcher.h MS_BUFFERS_TOKENS src/memory/memory.c
value_is_asked_for src/sched/kind.h MS_PLACE_BIDIRECTIONAL src/sched/slots.c src/work/piece.c
value_is_asked_for src/sched/kind.h MS_SENDS_BESIDE src/step/program.c
value_is_asked_for src/describe/words.def MS_OUTER_OPTIM src/work/step.c
value_is_asked_for src/describe/words.def MS_CE_TE src/work/piece.c src/exec/rows_ends.c
value_is_asked_for src/describe/words.def MS_MHC_CUTILE src/work/hyper.c
value_is_asked_for src/describe/words.def MS_POS_NONE src/describe/model.c
value_is_asked_for src/describe/words.def MS_SCORE_SQRTSOFTPLUS src/describe/model.c src/exec/rows_moe.c
value_is_asked_for src/describe/goodput.h MS_PER_JOB src/study/goodput.c
value_is_asked_for src/describe/goodput.h MS_CHECKPOINT_IN_MEMORY src/study/goodput.c

predict_twins
exit $bad
