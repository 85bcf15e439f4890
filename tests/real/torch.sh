#!/bin/sh
# tests/real/torch.sh FOLDER - a Debian 13 in FOLDER with a PyTorch that today's Megatron-LM runs on (that of Debian 12
# lacks fake process groups), and FOLDER/python, which runs its Python outside of it: TORCH_PYTHON of `make check-real`.
# Needs root, debootstrap and the network; 2 GB.
set -eu
root=$(realpath -m "${1:?usage: tests/real/torch.sh FOLDER}")
[ -x "$root/usr/bin/python3.13" ] || debootstrap --variant=minbase \
  --include=python3-torch,python3-numpy,python3-einops,python3-packaging,python3-yaml trixie "$root"
libraries=$root/usr/lib/$(uname -m)-linux-gnu
loader=$(find "$root/usr/lib64" "$libraries" -maxdepth 1 -name 'ld-linux*' | head -n 1)
cat >"$root/python" <<END
#!/bin/sh
exec env PYTHONHOME=$root/usr PYTHONPATH= "$loader" --argv0 "$root/python" \\
  --library-path "$libraries/blas:$libraries/lapack:$libraries:$root/usr/lib" "$root/usr/bin/python3.13" "\$@"
END
chmod +x "$root/python"
"$root/python" -c 'import torch; print("PyTorch", torch.__version__)'
