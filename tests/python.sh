#!/usr/bin/env bash
# tests/python.sh BUILD - the Python package over the library of BUILD, the wheel, installed with pip into a folder of
# its own, and the examples of docs/python.md with it. Exit 77 without python3.
set -eu
cd "$(dirname "$0")/.."
build=$(cd "$1" && pwd)
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export PYTHONDONTWRITEBYTECODE=1
tables=python3 # one with pandas, where there is one: frames are tested with it
for candidate in /usr/bin/python3 python3; do
  if [ -x "$(command -v "$candidate")" ] && "$candidate" -c 'import pandas' 2>/dev/null; then tables=$candidate; fi
done
PYTHONPATH=$build/python MOESIM_LIBRARY=$build/libmoesim.so.0 "$tables" tests/python/test_moesim.py

make -s BUILD="$build" wheel >"$room/name"
cp "$(cat "$room/name")" "$room/"
make -s BUILD="$build" wheel >/dev/null
cmp "$(cat "$room/name")" "$room"/*.whl # the same input, the same bytes
unset MOESIM_LIBRARY MOESIM_DATA
if python3 -m pip --version >/dev/null 2>&1; then
  python3 -m pip install -q --no-index --no-deps --target "$room/installed" "$room"/*.whl
else
  echo "no pip: the wheel is unpacked"
  python3 -m zipfile -e "$room"/*.whl "$room/installed"
fi
export PYTHONPATH=$room/installed
python3 -c 'import moesim, sys; sys.exit(not moesim.__file__.startswith(sys.argv[1]))' "$room/installed"
python3 tests/python/test_moesim.py
ln -s "$PWD/scenarios" "$PWD/docs" "$room/"
cd "$room"
python3 -c 'import doctest, sys; r = doctest.testfile(sys.argv[1], module_relative=False, optionflags=doctest.ELLIPSIS)
sys.exit(r.failed > 0 or r.attempted < 10)' docs/python.md
