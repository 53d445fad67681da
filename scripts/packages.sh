#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes Debian packages of what make has built: the program, the module for its kernel, and the
# module's source for dkms.
#
# Inputs:  names of parts: program, module, dkms; or, with build/packages cleared before, "all",
#          the default, or "tests": program and module, of the nsprobe of the tests and with a key
#          of their own, whose name is nsprobe-tests;
#          build/kmod/{nsprobe.ko,kver}, the built nsprobe, packages/; the SDK of that kernel;
#          SIGN_KEY and SIGN_CERT (files in PEM), with which the module is signed;
#          DEBFULLNAME and DEBEMAIL, as Debian's tools take them.
# Outputs: nsprobe_VERSION_amd64.deb, nsprobe-modules-KVER_VERSION_amd64.deb and
#          nsprobe-dkms_VERSION_amd64.deb in build/packages; their paths are printed.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
packages=$PROJECT/build/packages
LOG=$PROJECT/build/packages.log
mkdir -p "$CACHE" build
: >"$LOG"
need_tools openssl:openssl dpkg-deb:dpkg gzip:gzip xz:xz-utils strip:binutils
if [ "${1:-}" = tests ]; then
    export PROFILE=debug
    SIGN_KEY=$PROJECT/build/tests.key SIGN_CERT=$PROJECT/build/tests.crt
    logged openssl req -new -x509 -newkey rsa:2048 -nodes -sha256 -days 2 -subj /CN=nsprobe-tests \
        -keyout "$SIGN_KEY" -out "$SIGN_CERT"
fi

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
maintainer="${DEBFULLNAME:-nsprobe maintainers} <${DEBEMAIL:-root@$(hostname)}>"
# The same sources make the same packages.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# The tree of a package, empty.
tree() { # name
    tree=$packages/$1
    rm -rf "$tree"
    mkdir -p "$tree/DEBIAN"
}

# Completes the tree of a package, and packs it.
pack() { # name fields description
    tree=$packages/$1
    doc=$tree/usr/share/doc/$1
    install -D -m 644 packages/copyright "$doc/copyright"
    printf 'nsprobe (%s) unstable; urgency=medium\n\n  * Release.\n\n -- %s  %s\n' "$version" \
        "$maintainer" "$(date -R -u -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
    size=$(du -sk --exclude=DEBIAN "$tree" | cut -f1)
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: amd64\n' "$1" "$version"
        printf 'Maintainer: %s\nInstalled-Size: %s\n' "$maintainer" "$size"
        printf 'Section: devel\nPriority: optional\n%s\nDescription: %s\n' "$2" "$3"
    } >"$tree/DEBIAN/control"
    (cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\n' | sort | xargs md5sum) \
        >"$tree/DEBIAN/md5sums"
    file=$packages/$1_${version}_amd64.deb
    logged dpkg-deb --root-owner-group -Zxz --build "$tree" "$file"
    echo "$file"
}

program() {
    tree nsprobe
    DESTDIR=$tree PREFIX=/usr scripts/install.sh program
    strip --strip-all "$tree/usr/bin/nsprobe"
    gzip -9n "$tree"/usr/share/man/man1/*
    install -D -m 644 packages/60-nsprobe.rules "$tree/usr/lib/udev/rules.d/60-nsprobe.rules"
    install -D -m 644 packages/modules-load.conf "$tree/etc/modules-load.d/nsprobe.conf"
    install -D -m 644 packages/nsprobe.lintian "$tree/usr/share/lintian/overrides/nsprobe"
    install -D -m 644 packages/agent.toml "$tree/etc/nsprobe/agent.toml"
    unit=usr/lib/systemd/system/nsprobe-agent.service
    install -D -m 644 packages/nsprobe-agent.service "$tree/$unit"
    printf '%s\n' /etc/modules-load.d/nsprobe.conf /etc/nsprobe/agent.toml \
        >"$tree/DEBIAN/conffiles"
    install -m 755 packages/nsprobe.postrm "$tree/DEBIAN/postrm"
    pack nsprobe 'Recommends: nsprobe-module' 'tracer and profiler of programs in containers
 Traces and profiles user-space programs across namespaces: calls, CPU
 time, leaks and latencies, by container, with names of functions from the
 files of the containers. It needs the kernel module nsprobe, which is in
 nsprobe-modules-KERNEL.'
}

# Without debug information, then signed, then compressed: the kernel checks what modprobe unpacks.
module() {
    release=$(cat build/kmod/kver)
    name=nsprobe-modules-$release
    tree "$name"
    sdk=$(KVER=$release scripts/sdk.sh)
    # shellcheck disable=SC2016 # dpkg's own placeholder
    kernel=$(scripts/enter.sh "$sdk/root" "" / \
        dpkg-query -W -f '${Version}' "linux-modules-$release")
    object=$tree/usr/lib/modules/$release/updates/nsprobe.ko
    install -D -m 644 build/kmod/nsprobe.ko "$object"
    strip --strip-debug "$object"
    if [ -n "${SIGN_KEY:-}${SIGN_CERT:-}" ]; then
        for file in "${SIGN_KEY:-}" "${SIGN_CERT:-}"; do
            [ -r "$file" ] || die "cannot read '$file': SIGN_KEY and SIGN_CERT are the files of a" \
                "key and of its certificate"
        done
        "$sdk/root/usr/src/nsprobe-kernel/scripts/sign-file" sha256 "$SIGN_KEY" "$SIGN_CERT" "$object"
    fi
    xz --check=crc32 --lzma2=dict=1MiB "$object"
    for script in postinst postrm; do
        sed "s/@KVER@/$release/g" "packages/module.$script" >"$tree/DEBIAN/$script"
        chmod 755 "$tree/DEBIAN/$script"
    done
    pack "$name" "Depends: linux-modules-$release (= $kernel), kmod
Provides: nsprobe-module
Enhances: nsprobe" "kernel module of nsprobe for Linux $release
 The module that nsprobe traces and profiles by. It fits the kernel of exactly
 this version of the package linux-modules-$release."
}

# Built on the machine that it is for, from the source that Debian has of its kernel.
dkms() {
    name=nsprobe-dkms
    tree "$name"
    source=$tree/usr/src/nsprobe-$version
    mkdir -p "$source/common"
    cp -r Kbuild kmod scripts/kernel-source.sh packages/dkms/build "$source/"
    cp -r common/src "$source/common/"
    sed "s/@VERSION@/$version/" packages/dkms/dkms.conf >"$source/dkms.conf"
    for script in postinst prerm postrm; do
        sed "s/@VERSION@/$version/" "packages/dkms/$script" >"$tree/DEBIAN/$script"
        chmod 755 "$tree/DEBIAN/$script"
    done
    needs='dkms, linux-source-7.2 | linux-source-7.3, rustc, rust-src, bindgen, gcc-14, make, bc'
    # openssl: the kernel's configuration asks what it can do.
    needs="$needs, flex, bison, libelf-dev, libssl-dev, openssl, pahole, python3"
    needs="$needs, xz-utils"
    pack "$name" "Depends: $needs
Provides: nsprobe-module
Enhances: nsprobe" "kernel module of nsprobe, built by dkms
 The module that nsprobe traces and profiles by, for each installed kernel of
 Debian's backports of which linux-headers and linux-source are there in one
 version. The first build for a kernel prepares its source: about five minutes
 of two processors and 2.5 GB in /var/lib/nsprobe-dkms, of which 550 MB stay."
}

[ $# != 0 ] || set -- all
case $1 in
tests) rm -rf "$packages" && set -- program module ;;
all) rm -rf "$packages" && set -- program module dkms ;;
esac
for part in "$@"; do "$part"; done
