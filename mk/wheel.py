"""mk/wheel.py VERSION PACKAGE LIBRARY FOLDER - writes FOLDER/moesim-VERSION-py3-none-PLATFORM.whl: the package, the
library stripped, and the data folders. Plain zip, no network; the same input gives the same bytes."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

DATA = ("models", "hardware", "software", "reliability", "scenarios")
METADATA = """Metadata-Version: 2.1
Name: moesim
Version: {version}
Summary: simulator and parallelism planner for training mixture-of-experts and dense transformers
Requires-Python: >=3.9
License-File: LICENSE
Description-Content-Type: text/markdown

Needs the shared libraries of GLib, json-glib, GSL and libyaml; Debian 12: `apt install libglib2.0-0
libjson-glib-1.0-0 libgsl27 libyaml-0-2`. See docs/python.md.
"""


def stripped(library):
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / library.name
        shutil.copy(library, copy)
        if shutil.which("strip"):
            subprocess.run(["strip", "--strip-unneeded", copy], check=True)
        return copy.read_bytes()


def contents(package, library, info, version, tag):
    """Name in the wheel -> bytes, in order."""
    files = {f"moesim/{f.name}": f.read_bytes() for f in sorted(package.iterdir()) if f.is_file()}
    files[f"moesim/{library.name}"] = stripped(library)
    for folder in DATA:
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                files[f"moesim/data/{file}"] = file.read_bytes()
    files[f"{info}/LICENSE"] = Path("LICENSE").read_bytes()
    files[f"{info}/METADATA"] = METADATA.format(version=version).encode()
    wheel = f"Wheel-Version: 1.0\nGenerator: mk/wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/WHEEL"] = wheel.encode()
    return files


def main():
    version, package, library, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    info = f"moesim-{version}.dist-info"
    files = contents(package, library, info, version, tag)
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"moesim-{version}-{tag}.whl"
    part = target.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            out.writestr(entry, data)
    os.replace(part, target)
    print(target)


main()
