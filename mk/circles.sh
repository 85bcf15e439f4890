#!/bin/sh
# mk/circles.sh BUILD - fails when files of one folder need each other in a circle: by the symbols of their objects, so
# that a callback in a table counts as well.
set -eu
build=$1
bad=0
for folder in src/*/; do
  name=$(basename "$folder")
  objects=""
  for source in "$folder"*.c; do # not what is left of a file that is gone
    object=$build/${source%.c}.o
    [ ! -f "$object" ] || objects="$objects $object"
  done
  [ -n "$objects" ] || continue
  # shellcheck disable=SC2086
  loop=$(nm -A $objects | awk '
    { split($1, at, ":"); file = at[1]; sub(/.*\//, "", file); sub(/\.o$/, "", file) }
    $(NF - 1) == "U" { needs[file " " $NF] = 1; next }
    $(NF - 1) ~ /^[TDRBC]$/ { of[$NF] = file }
    END { for (pair in needs) { split(pair, a, " "); if (a[2] in of && of[a[2]] != a[1]) print a[1], of[a[2]] } }' |
    tsort 2>&1 >/dev/null | sed -n 's/^tsort: \([^-].*\)/\1/p' | tr '\n' ' ')
  [ -z "$loop" ] || { echo "src/$name: files that need each other in a circle: $loop"; bad=1; }
done
exit $bad
