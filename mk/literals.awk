# Fails when a folder that predicts holds a fractional number, or a number behind a #define, that mk/literals does not
# explain: what was chosen by looking at runs belongs to src/describe/laws.def and software/laws.json. Comments, strings
# and whole numbers within expressions (counts of kernels, bytes and passes) are left out.
FNR == NR { if ($0 ~ /^#/ || NF == 0) next
            split($0, part, ": "); known[part[1], part[2]] = 1; reason[part[1], part[2]] = part[3]; next }
FNR == 1 { inside = 0 }
{ line = $0; code = ""
  while (line != "") {
    if (inside) { at = index(line, "*/"); if (!at) { line = ""; break }
                  line = substr(line, at + 2); inside = 0; continue }
    at = index(line, "/*"); code = code (at ? substr(line, 1, at - 1) : line)
    line = at ? substr(line, at + 2) : ""; inside = at > 0 }
  gsub(/"([^"\\]|\\.)*"/, "", code); sub(/\/\/.*/, "", code)
  defined = code ~ /^#define[ \t]+[A-Z_0-9]+[ \t]+[(]?-?[0-9]/
  if (defined) { sub(/^#define[ \t]+[A-Z_0-9]+/, "", code) }
  while (match(code, /(^|[^A-Za-z0-9_.])[0-9]+(\.[0-9]*)?([eE]-?[0-9]+)?/)) {
    number = substr(code, RSTART, RLENGTH); sub(/^[^0-9]/, "", number); code = substr(code, RSTART + RLENGTH)
    if (!defined && (number !~ /[.eE]/ || number ~ /^[0-9]+\.0$/)) continue
    used[FILENAME, number] = 1
    if (!((FILENAME, number) in known)) {
      printf "%s:%d: %s: a law (src/describe/laws.def), or a line of mk/literals that says where it is from\n",
             FILENAME, FNR, number; bad = 1 } } }
END { for (k in known) { split(k, part, SUBSEP)
        if (reason[k] == "") { printf "mk/literals: %s: %s: has no reason\n", part[1], part[2]; bad = 1 }
        else if (!(k in used))
          printf "mk/literals: %s: %s: is not there any more, the line may go\n", part[1], part[2] }
      exit bad }
