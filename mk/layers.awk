# Fails when a source file includes a header of a layer that mk/layers does not allow, or the private header of another.
FNR == NR { if ($0 ~ /^#/) next
            if ($1 == "private") { ok[$3, $2] = 1; next }
            split($0, a, ":"); ok[a[1], a[1]] = 1; n = split(a[2], d, " ")
            for (i = 1; i <= n; i++) ok[a[1], d[i]] = 1; next }
/^#include "[a-z]+\// { split(FILENAME, f, "/"); match($0, /"[^"]+"/); header = substr($0, RSTART + 1, RLENGTH - 2)
  split(header, t, "/")
  if (f[1] == "src" && !((f[2], t[1]) in ok)) {
    printf "%s:%d: layer %s may not include %s\n", FILENAME, FNR, f[2], t[1]; bad = 1 }
  if (header ~ /(_priv|\/internal)\.h$/ && !(f[1] == "src" && f[2] == t[1]) && !((FILENAME, header) in ok)) {
    printf "%s:%d: %s is private to src/%s\n", FILENAME, FNR, header, t[1]; bad = 1 } }
END { exit bad }
