#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Prepares the source of an installed kernel, so that modules in Rust can be built for it: Debian's
# headers lack the kernel's crates.
#
# Inputs:  [--check] RELEASE TARGET: a kernel of which linux-headers and linux-source are installed
#          in one version, and the folder for its source; --check: only whether all of that fits.
#          Run by root, on the machine or in a root of scripts/sdk.sh.
# Outputs: TARGET, with what `make modules_prepare` leaves; it appears by a rename when all of it
#          is there, and is not made again. The reason in one line and exit 1 where something does
#          not fit.
set -eu
export LC_ALL=C
check=
[ "$1" != --check ] || { check=1; shift; }
release=$1 target=$2
headers=/usr/src/linux-headers-$release
series=$(echo "$release" | cut -d. -f1,2)
tarball=/usr/src/linux-source-$series.tar.xz

fail() {
    echo "nsprobe: $*" >&2
    exit 1
}
# shellcheck disable=SC2016 # dpkg's own placeholder
version() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null || true; }
# What the kernel was configured with.
configured() { sed -n "s/^$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$headers/.config"; }

[ -e "$headers/.config" ] || fail "there is no $headers: install linux-headers-$release"
[ "$(configured CONFIG_RUST)" = y ] || fail "$release has no Rust (CONFIG_RUST)"
compiler=$(configured CONFIG_CC_VERSION_TEXT | cut -d' ' -f1)
command -v "$compiler" >/dev/null || fail "there is no $compiler: install it"
wanted=$(configured CONFIG_RUSTC_VERSION_TEXT)
found=$(rustc --version 2>/dev/null) || fail "there is no rustc: install it"
[ "$wanted" = "$found" ] || fail "rustc is '$found' and $release is built by '$wanted'"
command -v bindgen >/dev/null || fail "there is no bindgen: install it"
[ ! -e "$target" ] || exit 0

[ -e "$tarball" ] || fail "there is no $tarball: install linux-source-$series"
wanted=$(version "linux-headers-$release")
found=$(version "linux-source-$series")
[ "$wanted" = "$found" ] || fail "linux-source-$series has version $found and $release has" \
    "$wanted: install linux-source-$series=$wanted"
folder=$(dirname "$target")
mkdir -p "$folder"
free=$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1024) }')
[ "$free" -ge 2500 ] || fail "$folder has $free MB free and 2500 are needed"
[ -z "$check" ] || exit 0

new=$target.new
rm -rf "$new"
trap 'rm -rf "$new"' EXIT
mkdir -p "$new"
tar -C "$new" --strip-components=1 --no-same-owner -xf "$tarball"
cp "$headers/Module.symvers" "$headers/.config" "$new/"
set -- "CC=$compiler" "KERNELRELEASE=$release"
make -C "$new" "$@" olddefconfig
diff "$headers/.config" "$new/.config" || fail "this toolchain changes the kernel's configuration"
make -C "$new" -j"$(nproc)" "$@" modules_prepare
rustc --version >"$new/rustc-version"
# What no module outside of the kernel is built from: most of 1.8 GB.
(cd "$new" && rm -rf Documentation drivers fs net samples sound tools/perf tools/testing)
mv "$new" "$target"
