#!/bin/sh
# tests/package.sh [ROOT [DEB]] - the Debian package (made by `make deb` when DEB is not given): lintian without errors,
# and in ROOT, a Debian whose packages can be installed (one is made by debootstrap when it is not given), it installs,
# runs, and removes without a trace. Needs root and the network; prints "skipped: WHY" without lintian, debootstrap,
# dpkg-deb or root.
set -eu
cd "$(dirname "$0")/.."
skip() { echo "skipped: $*"; exit 0; }
for tool in lintian dpkg-deb; do command -v $tool >/dev/null || skip "no $tool"; done
[ "$(id -u)" = 0 ] || skip "chroot needs root"
[ -n "${1:-}" ] || command -v debootstrap >/dev/null || skip "no debootstrap, and no folder with a Debian is given"

made=
if [ -n "${1:-}" ]; then root=$1
else
  made=$(mktemp -d) root=$made/debian
  trap 'rm -rf "$made"' EXIT
  # shellcheck disable=SC1091
  release=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
  debootstrap --variant=minbase "$release" "$root" >"$made/log" 2>&1 || {
    tail -3 "$made/log"
    skip "debootstrap made no Debian"
  }
fi
[ -x "$root/usr/bin/apt-get" ] || skip "$root has no apt-get"
deb=${2:-$(make -s deb)}
files() { (cd "$root" && find etc usr opt -path usr/share/doc -prune -o -name '*moesim*' -print | sort); }

lintian --fail-on error --suppress-tags bad-distribution-in-changes-file "$deb"
before=$(files)
clean() {
  rm -f "$root/tmp/moesim.deb"
  chroot "$root" dpkg --purge moesim >/dev/null 2>&1 || true
  [ -z "$made" ] || rm -rf "$made"
}
trap clean EXIT
cp "$deb" "$root/tmp/moesim.deb"
chroot "$root" apt-get install -y --no-install-recommends /tmp/moesim.deb >/dev/null
chroot "$root" moesim run --json /usr/share/moesim/scenarios/run-llama3-70b-h100-64.json | grep -q '"step_time_s"'
chroot "$root" moesim --version
chroot "$root" apt-get purge -y moesim >/dev/null
[ "$(files)" = "$before" ] || { echo "left behind:"; files; exit 1; }
echo "installed, ran, removed: $(dpkg-deb -f "$deb" Package Version Architecture | tr '\n' ' ')"
