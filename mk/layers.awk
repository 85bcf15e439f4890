# Fails when a source file includes a header of a layer that mk/layers does not allow.
FNR == NR { if ($0 ~ /^#/) next; split($0, a, ":"); ok[a[1], a[1]] = 1; n = split(a[2], d, " ")
            for (i = 1; i <= n; i++) ok[a[1], d[i]] = 1; next }
/^#include "[a-z]+\// { split(FILENAME, f, "/"); match($0, /"[a-z]+\//); t = substr($0, RSTART + 1, RLENGTH - 2)
  if (!((f[2], t) in ok)) { printf "%s:%d: layer %s may not include %s\n", FILENAME, FNR, f[2], t; bad = 1 } }
END { exit bad }
