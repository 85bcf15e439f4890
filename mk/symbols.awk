# Fails when a global symbol of the program (functions, constants, variables) is used by no other object. Reads `nm
# -A` of the program and of its tests.
# What is installed for others (src/lcma/lcma.h) is left out; src/api has names of its own.
$NF !~ /^ms_/ || $NF ~ /^ms_lcma_[sdbi][a-z0-9]*gemm$/ { next }
$(NF - 1) == "U" { used[$NF] = 1; next }
$(NF - 1) ~ /^[TDRBC]$/ { defined[$NF] = $1 }
END {
  for (name in defined) {
    if (used[name]) continue
    object = defined[name]; sub(/:[0-9a-f]*$/, "", object); sub(/^.*:/, "", object)
    printf "%s: no other file uses %s: static, or gone\n", object, name; bad = 1
  }
  exit bad
}
