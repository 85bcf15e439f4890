#!/usr/bin/env bash
# tests/tasks.sh BUILD [PAGE...] - ten things that a new user wants, done with the command lines of docs/tutorials and
# nothing else: the fenced blocks of a page are one shell script, run in a folder of its own beside a clone. A block
# behind a line `<!-- not run: WHY -->` is left out. Of each page: status 0, a minute on two cores at most (120 s of CPU
# time a command), no line of what is printed above 100 columns, and no abbreviation that the glossary lacks.
# tests/browser/tasks.mjs does each of them in a browser. Prints what is wrong; status 1 then. MOESIM_TASKS_OUT=FOLDER
# keeps what was printed.
set -u
cd "$(dirname "$0")/.." || exit 4
build=$(cd "$1" && pwd)
top=$PWD
shift

#     page    what the user wants
tasks='
layout      from a clone to a launch script for an own cluster
fit         will it fit, and what would
buy         which machine to buy or rent, how many, for when and how much
slow        why is my run slow
script      is there a faster layout than that of my launch script
gpu         add a GPU that nobody knows
model       add a model, change it
ci          guard predictions in CI
python      do it from Python
share       show it to others'

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
unset MOESIM_DATA
export LC_ALL=C.UTF-8 NO_COLOR=1 PATH=$build:$PATH PYTHONDONTWRITEBYTECODE=1
if [ -d .git ] || [ -f .git ]; then git clone -q --no-hardlinks --depth 1 "file://$top" "$room/clone"
else cp -R "$top" "$room/clone"; fi
export PYTHONPATH=$build/python MOESIM_LIBRARY=$build/libmoesim.so.0

blocks() { # FILE: the shell of its blocks, each command said before it is run
  awk '
    /^<!-- not run: ./ { skip = 1; next }
    /^```/ { fenced = !fenced; on = fenced && /^```sh$/ && !skip; if (!fenced) skip = 0; next }
    on' "$1"
}

# Words in capitals and short names of sizes that are neither in the glossary nor names of products.
products='DeepSeek DeepEP CX7 ConnectX InfiniBand NVIDIA NVL NVLink PyTorch TransformerEngine SimAI SimuMax LM'
unexplained() { # FILE
  grep -ohE '\b[A-Z][A-Za-z]*[A-Z][A-Za-z0-9]*\b|\b(tp|cp|pp|vpp|ep|etp|dp|edp|mbs)\b' "$1" | sort -u |
    grep -vE '^(EP|TP|CP|PP|VPP|ETP|DP|GB|B|H|A)[0-9]+$' |
    grep -vxF -f <(grep -ohE '[A-Za-z0-9]+' docs/glossary.md; tr ' ' '\n' <<<"$products")
}

bad=0 n=0
while read -r page wants; do
  [ -n "$page" ] || continue
  [ $# -eq 0 ] || case " $* " in *" $page "*) ;; *) continue ;; esac
  [ "$page" != python ] || command -v python3 >/dev/null || { echo "no python3: $page was not run"; continue; }
  n=$((n + 1))
  mkdir "$room/$page" && ln -s "$room/clone/scenarios" "$room/$page/scenarios"
  { echo 'set -eu; ulimit -t 120'; blocks "docs/tutorials/$page".md; } >"$room/$page.sh"
  (cd "$room/$page" && bash "$room/$page.sh") >"$room/$page.out" 2>"$room/$page.err" </dev/null ||
    { echo "$page ($wants): exit $?"; tail -n 5 "$room/$page.out" "$room/$page.err"; bad=1; }
  LC_ALL=C awk -v page="$page" '{ text = $0; gsub(/[\200-\277]/, "", text) } # of a character its first byte counts
    length(text) > 100 { printf "%s prints %d columns: %s\n", page, length(text), $0; bad = 1 }
    END { exit bad }' "$room/$page.out" || bad=1
  sed -i -E '/^moesim: [a-z]+ +[0-9]+ %.* so far$/d' "$room/$page.err" # progress: names of files
  words=$(cat "$room/$page.out" "$room/$page.err" | unexplained - | tr '\n' ' ')
  [ -z "$words" ] || { echo "$page prints words that docs/glossary.md lacks: $words"; bad=1; }
  for word in $words; do cat "$room/$page.out" "$room/$page.err" | grep -m 1 -wF -- "$word"; done
done <<<"$tasks"
[ -z "${MOESIM_TASKS_OUT:-}" ] || cp "$room"/*.out "$MOESIM_TASKS_OUT/"
[ $# -gt 0 ] || [ "$n" -ge 9 ] || { echo "only $n tasks were done"; bad=1; }
exit $bad
