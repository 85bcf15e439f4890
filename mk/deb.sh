#!/bin/sh
# mk/deb.sh VERSION FOLDER - builds FOLDER/moesim_VERSION_ARCH.deb with dpkg-deb (dpkg-dev is part of build-essential).
set -eu
version=$1
folder=$2
arch=$(dpkg --print-architecture)
libdir=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
root=$folder/root
rm -rf "$root"
mkdir -p "$root/DEBIAN" "$folder/debian"
CPPFLAGS=-DMS_NO_SOURCE_DATA make -s -j2 QUICK= PREFIX=/usr BUILD="$folder/build" \
  LIBDIR="$libdir" DESTDIR="$root" install
all=$root/usr/libexec/moesim/moesim-all
[ -e "$all" ] || all=
strip --strip-unneeded "$root/usr/bin/moesim" ${all:+"$all"} "$root$libdir"/libmoesim*.so.0
strip --strip-debug "$root$libdir"/libmoesim*.a
chmod 644 "$root$libdir"/libmoesim*.so.0
gzip -9n "$root/usr/share/man/man1/moesim.1"
# dpkg-shlibdeps wants a source package beside it; this is all it reads of one.
printf 'Source: moesim\n\nPackage: moesim\nArchitecture: any\n' >"$folder/debian/control"
depends=$(cd "$folder" &&
  dpkg-shlibdeps -O -e"root/usr/bin/moesim" ${all:+-eroot/usr/libexec/moesim/moesim-all} \
    -e"root$libdir/libmoesim.so.0" -e"root$libdir/libmoesim_lcma.so.0" -l"root$libdir" 2>/dev/null |
  sed -n 's/^shlibs:Depends=//p')
cat >"$root/DEBIAN/control" <<END
Package: moesim
Version: $version
Architecture: $arch
Maintainer: moesim developers <moesim@localhost>
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: $depends
Suggests: gnuplot-nox, python3
Section: science
Priority: optional
Description: simulator and parallelism planner for training large language models
 Predicts step time, memory and communication of a training run of a
 mixture-of-experts or dense transformer under every parallel layout, and
 finds the layout that does it best.
END
echo "activate-noawait ldconfig" >"$root/DEBIAN/triggers"
printf '%s 0 moesim\n' libmoesim libmoesim_lcma >"$root/DEBIAN/shlibs"
doc=$root/usr/share/doc/moesim
cat >"$doc/copyright" <<END
Copyright: the developers of moesim
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
END
# The date is that of the version, so that the same sources give the same package.
{ printf 'moesim (%s) unstable; urgency=medium\n\n  * See README.md.\n\n' "$version"
  printf ' -- moesim developers <moesim@localhost>  Sun, 22 Nov 2026 00:00:00 +0000\n'
} | gzip -9n >"$doc/changelog.gz"
mkdir -p "$root/usr/share/lintian/overrides"
cat >"$root/usr/share/lintian/overrides/moesim" <<END
# The package is built by whoever runs "make deb": there is no address to write to.
moesim: bogus-mail-host *
moesim: bogus-mail-host-in-debian-changelog *
# One package holds the program and its libraries.
moesim: package-name-doesnt-match-sonames libmoesim-lcma0 libmoesim0
END
dpkg-deb --root-owner-group --build "$root" "$folder/moesim_${version}_$arch.deb" >/dev/null
echo "$folder/moesim_${version}_$arch.deb"
