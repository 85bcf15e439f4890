#!/usr/bin/env bash
# tests/notebook.sh BUILD - every cell of docs/notebook.ipynb, run by a kernel of Jupyter with the Python package of
# BUILD; the rich display of a run and of a plan is HTML, and the table one of pandas. Exit 77 where Debian's
# python3-nbclient, python3-ipykernel and python3-pandas are not installed (./bootstrap --tests).
set -eu
cd "$(dirname "$0")/.."
build=$(cd "$1" && pwd)
python=""
for candidate in python3 /usr/bin/python3; do
  if command -v "$candidate" >/dev/null &&
    "$candidate" -c 'import nbclient, nbformat, ipykernel, pandas' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "no python3-nbclient, python3-ipykernel, python3-pandas; ./bootstrap --tests installs them"
  exit 77
fi
export PYTHONPATH=$build/python MOESIM_LIBRARY=$build/libmoesim.so.0 PYTHONDONTWRITEBYTECODE=1
exec "$python" - docs/notebook.ipynb <<'PYTHON'
import sys

import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbclient import NotebookClient


class ThisPython(KernelSpecManager):
    """A kernel of the interpreter that runs this, whatever is registered."""

    def get_kernel_spec(self, name):
        start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=start, language="python", display_name=name)


notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is kept without outputs"
client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": "."}})
client.create_kernel_manager()
client.km.kernel_spec_manager = ThisPython()
client.execute()
shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
kinds = [output.get("data", {}) for output in shown]
html = [data["text/html"] for data in kinds if "text/html" in data]
text = "".join(output.get("text", "") for output in shown)
assert len(html) >= 4, [sorted(data) for data in kinds]
assert any("<svg" in one or "<table" in one for one in html)
assert any("dataframe" in one for one in html), "no table of pandas"
assert "% of the step" in text and "take 1" in text and "12.5GB/s" in text, text
PYTHON
