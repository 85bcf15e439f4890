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
CPPFLAGS=-DMS_NO_SOURCE_DATA make -s -j2 BUILD="$folder/build" PREFIX=/usr LIBDIR="$libdir" DESTDIR="$root" install
strip --strip-unneeded "$root/usr/bin/moesim" "$root$libdir/libmoesim.so.0"
strip --strip-debug "$root$libdir/libmoesim.a"
gzip -9n "$root/usr/share/man/man1/moesim.1"
# dpkg-shlibdeps wants a source package beside it; this is all it reads of one.
printf 'Source: moesim\n\nPackage: moesim\nArchitecture: any\n' >"$folder/debian/control"
depends=$(cd "$folder" &&
  dpkg-shlibdeps -O -e"root/usr/bin/moesim" -e"root$libdir/libmoesim.so.0" -l"root$libdir" 2>/dev/null |
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
 Predicts step time, memory and communication of a training run of a mixture-of-experts
 or dense transformer under every parallel layout, and finds the layout that does it best.
END
printf '/sbin/ldconfig\n' | sed '1i #!/bin/sh' >"$root/DEBIAN/postinst"
chmod 755 "$root/DEBIAN/postinst"
dpkg-deb --root-owner-group --build "$root" "$folder/moesim_${version}_$arch.deb" >/dev/null
echo "$folder/moesim_${version}_$arch.deb"
