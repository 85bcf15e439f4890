# Fails when a row of README's table of errors is not in docs/accuracy.md as it stands: reads that page, then README.
NR == FNR { page = page $0 "\n"; next }
/^\| \| median \| mean / { inside = 1; next }
inside && /^\|--|^\|-/ { next }
inside && /^\|/ { figures = $0; sub(/^\| [^|]* /, "", figures); rows++
  if (!index(page, figures)) { printf "%s:%d: docs/accuracy.md has no row with %s\n", FILENAME, FNR, figures; bad = 1 }
  next }
{ inside = 0 }
END { if (rows < 3) { print "README.md: no table of errors"; bad = 1 } exit bad }
