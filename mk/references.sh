#!/bin/sh
# mk/references.sh - fails when a file names a page that a clone does not have, or a section that is not there.
#
# Looked at: every NAME.md in sources, tests, data and pages. A line that names a repository at a commit (NAME@COMMIT)
# may name files of that repository; our own docs/theory is looked at all the same. "docs/theory/PAGE.md 5.3" needs a
# heading "5.3".
cd "$(dirname "$0")/.." || exit 4
{
  grep -nE '[A-Za-z0-9_]\.md\b' Makefile bootstrap README.md
  grep -rnIE '[A-Za-z0-9_]\.md\b' --exclude-dir=node_modules --exclude-dir=golden \
    src tests bench mk examples hardware models software reliability scenarios plots docs
} | LC_ALL=C awk '
function exists(file,  ok, line) { # of the tree; asked once
  if (!(file in known)) { ok = (getline line < file); close(file); known[file] = ok >= 0 }
  return known[file]
}
function headings(file,  line, number) { # the numbers of its sections
  if (file in read_already) return
  read_already[file] = 1
  while ((getline line < file) > 0)
    if (match(line, /^#+ [0-9]+(\.[0-9]+)*/)) {
      number = substr(line, RSTART, RLENGTH); sub(/^#+ /, "", number); section[file, number] = 1
    }
  close(file)
}
function complain(what) { printf "%s:%s: %s\n", file, row, what; bad = 1 }
{
  file = $0; sub(/:.*/, "", file)
  row = substr($0, length(file) + 2); sub(/:.*/, "", row)
  text = substr($0, length(file) + length(row) + 3)
  if (file == "mk/references.sh") next
  foreign = text ~ /[A-Za-z]@[A-Za-z0-9]/
  folder = file; sub(/[^\/]*$/, "", folder)
  while (match(text, /[A-Za-z0-9_.\/-]*[A-Za-z0-9_]\.md/)) {
    name = substr(text, RSTART, RLENGTH); before = substr(text, 1, RSTART - 1)
    text = substr(text, RSTART + RLENGTH)
    sub(/^\/+/, "", name)
    if (substr(before, length(before)) == "%" || text ~ /^\]\(/) continue # a format; the label of a link
    if (foreign && name !~ /^docs\/theory\//) continue
    if (name ~ /^(check|scenario)\.md$/) continue # written by a command that the line shows
    if (!exists(name) && !exists(folder name)) { complain("there is no " name); continue }
    if (name !~ /theory\//) continue
    if (!exists(name)) name = folder name
    headings(name)
    if (match(text, /^ [0-9]+(\.[0-9]+)?/) && substr(text, RSTART + RLENGTH, 1) !~ /[0-9%]/) {
      number = substr(text, RSTART + 1, RLENGTH - 1)
      if (!((name, number) in section)) complain(name " has no section " number)
    }
  }
}
END { exit bad }'
