#!/usr/bin/env bash
# tests/mutate.sh [NAME...] - deliberate mistakes in planner and engine, each of which a test must catch.
# tests/mutate.sh --apply - only whether each still stands in the code; in a second, part of the checks.
#
# tests/mutants.txt lists them: a line "== NAME FILE PROGRAM", then lines with "-" that stand in the file exactly once,
# and lines with "+" that replace them. Each is applied alone to a copy of the tree (in $MUTANTS, default a folder in
# $TMPDIR); PROGRAM, the test program that should notice ("full:PROGRAM": in the full tier), is built and run, then the
# others that hold the planner, until one fails. The copy begins with the objects of the tree's own build, so that one
# file is compiled for each mistake. Says which test caught which mistake; status 1 when one survives, does not apply
# (the text moved: mend the list) or does not build. Takes minutes: `make mutants`, no part of `make check`.
set -u
cd "$(dirname "$0")/.." || exit 4
changed() { # LIST NAME FILE: prints the file with the mistake in it; fails where its text is not there, or twice
  perl -e '
    my ($list, $name, $from) = @ARGV;
    my ($old, $new, $in) = ("", "", 0);
    open my $l, "<", $list or die;
    while (<$l>) {
      if (/^== (\S+)/) { $in = $1 eq $name }
      elsif ($in && /^-(.*\n)/) { $old .= $1 }
      elsif ($in && /^\+(.*\n)/) { $new .= $1 }
    }
    local $/; open my $f, "<", $from or die; my $text = <$f>;
    my $n = () = $text =~ /\Q$old\E/g;
    exit 2 if $n != 1 || $old eq "";
    $text =~ s/\Q$old\E/$new/;
    print $text;' "$@"
}

if [ "${1-}" = --apply ]; then
  status=0
  while read -r _ name file _; do
    changed tests/mutants.txt "$name" "$file" >/dev/null && continue
    echo "tests/mutants.txt: $name: its text does not stand once in $file" && status=1
  done < <(grep '^== ' tests/mutants.txt)
  exit $status
fi

root=$PWD copy=${MUTANTS:-${TMPDIR:-/tmp}/moesim-mutants}
programs="test_rules test_space test_plan test_tree test_cuts test_bounds test_properties full:test_space
  test_full_bounds test_full_plan"
export LC_ALL=C MOESIM_CHECK=1
unset MOESIM_DATA

mkdir -p "$copy/as-is" || exit 4
tar -C "$root" -cf - Makefile src tests mk bench | tee >(tar -C "$copy/as-is" -xf -) | tar -C "$copy" -xf -
wait
mapfile -t objects < <(cd "$root" &&
  ls -d build/src build/gen build/flags build/prefix build/libmoesim.a build/tests/{lib,unit} 2>/dev/null)
[ ${#objects[@]} -eq 0 ] || tar -C "$root" -cf - "${objects[@]}" | tar -C "$copy" -xf - || exit 4
list=$copy/as-is/tests/mutants.txt
# With CURDIR of the original a compiler cache knows the objects, and the tests read the original's data.
build() { make -s -C "$copy" CURDIR="$root" BUILD=build "build/tests/$1" >"$copy/log" 2>&1; }

all=0 caught=0 wrong=""
while read -r _ name file first; do
  [ $# -eq 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
  all=$((all + 1)) verdict=survives
  changed "$list" "$name" "$copy/as-is/$file" >"$copy/$file" || verdict="does not stand once in $file"
  for of_tier in $first $(printf '%s\n' $programs | grep -vxF "$first"); do
    [ "$verdict" = survives ] || break
    program=${of_tier#full:}
    [ "$program" = "$of_tier" ] && export MOESIM_TIER=quick || export MOESIM_TIER=full
    build "$program" || { verdict="does not build: $(grep -m 1 error "$copy/log")"; break; }
    said=$(timeout 600 "$copy/build/tests/$program" 2>&1 </dev/null) && continue
    verdict="caught by $program, $(grep -m 1 -o 'FAILED  \] [a-z][a-z_0-9]*' <<<"$said" | cut -d' ' -f4)"
    caught=$((caught + 1))
  done
  echo "$name: $verdict"
  case $verdict in caught*) ;; *) wrong="$wrong $name" ;; esac
  cp "$copy/as-is/$file" "$copy/$file"
done < <(grep '^== ' "$list")
echo "$caught of $all mistakes caught${wrong:+; not:$wrong}"
[ -z "$wrong" ]
