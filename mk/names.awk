# Fails when a comment or a page names a function, constant, type, file or test of ours that is not there. Reads the
# list of files (one a line), then sources, then pages; a name with capitals for what varies (ms_cli_NAME), or one that
# ends in "_", stands for several. On the page of a folder (docs/layers) that holds for each name in backquotes.
function complain(name) { printf "%s:%d: there is no %s\n", FILENAME, FNR, name; bad = 1 }
function names(text, known,  name, before) {
  while (match(text, /(ms_|MS_|Ms[A-Z])[A-Za-z0-9_]*/)) {
    name = substr(text, RSTART, RLENGTH)
    before = RSTART > 1 ? substr(text, RSTART - 1, 1) : ""
    text = substr(text, RSTART + RLENGTH)
    if (before ~ /[A-Za-z0-9_]/ || name ~ /_$|^ms_.*[A-Z]/) continue
    if (known) code[name]
    else told[name] = told[name] FILENAME ":" FNR " "
  }
}
function paths(text,  name, part, before, after) {
  if (text ~ /[A-Za-z]@[A-Za-z0-9]/) return # another repository's
  while (match(text, /[a-z_0-9]+\/[a-z_0-9]+\.(c|h|def|inc)/)) {
    name = substr(text, RSTART, RLENGTH)
    before = RSTART > 1 ? substr(text, RSTART - 1, 1) : ""
    after = substr(text, RSTART + RLENGTH, 1)
    text = substr(text, RSTART + RLENGTH)
    split(name, part, "/")
    if (before !~ /[\/.A-Za-z0-9_-]/ && after !~ /[A-Za-z0-9_]/ && part[1] in folder && !(name in file)) complain(name)
  }
}
function tests(text,  name) {
  while (match(text, /(^|[^A-Za-z0-9_.\/-])test_[a-z0-9_]*[a-z0-9]/)) {
    name = substr(text, RSTART, RLENGTH); sub(/^[^t]/, "", name)
    text = substr(text, RSTART + RLENGTH)
    if (text !~ /^(_\*|[A-Za-z0-9_]*\()/ && !((name ".c") in base)) complain(name)
  }
}
FILENAME == "-" {
  n = split($0, part, "/"); base[part[n]]; name = part[n]; sub(/\.[a-z]+$/, "", name); base[name]
  if (part[1] == "src" && n > 2) { folder[part[2]]; sub(/^src\//, ""); file[$0] }
  next
}
FNR == 1 { inside = 0 }
function quoted(text,  name) { # a page of a folder: what stands alone in backquotes
  for (; match(text, /`[A-Za-z][A-Za-z_0-9]*(\.(c|h|def|inc)|\(\))?`/); text = substr(text, RSTART + RLENGTH)) {
    name = substr(text, RSTART + 1, RLENGTH - 2); sub(/\(\)$/, "", name)
    if (name !~ /[A-Z][A-Z]/ && !(name in base) && !(name in word)) complain(name)
  }
}
FILENAME ~ /\.md$/ {
  names($0, 0); paths($0); tests($0)
  if (FILENAME ~ /^docs\/layers\//) quoted($0)
  next
}
{
  rest = $0
  while (rest != "") {
    at = index(rest, inside ? "*/" : "/*")
    piece = at ? substr(rest, 1, at - 1) : rest
    names(piece, !inside)
    if (inside) paths(piece)
    else for (i = split(piece, part, /[^A-Za-z0-9_]+/); i > 0; i--) word[part[i]]
    rest = at ? substr(rest, at + 2) : ""
    if (at) inside = !inside
  }
}
END {
  for (name in told) if (!(name in code)) { printf "%s: there is no %s\n", told[name], name; bad = 1 }
  exit bad
}
