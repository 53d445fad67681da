#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds what a module for the stock Debian kernel needs: a Debian 13 root with
# the kernel's own toolchain, and that kernel's source with its Rust crates.
#
# Inputs:  KVER, CACHE, MIRROR; first argument "root": stop after the root, which has
#          the compilers of the victims.
# Outputs: the SDK's folder on stdout:
#            kver              the kernel release (KVER, or what replaced it)
#            root/             the Debian root
#            root/usr/src/nsprobe-kernel/   the prepared source
#          The toolchain's files are those of toolchain-*, by hard links: the roots of several
#          kernels share them.
# Each stage appears by a rename, so an interrupted run is taken up where it
# stopped; two runs at once wait for each other.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# What the kernel's build calls; rustfmt also quiets bindgen.
TOOLCHAIN=gcc-14,g++-14,golang-go,make,rustc,rust-src,bindgen,rustfmt,rust-clippy,bc,flex,bison
TOOLCHAIN=$TOOLCHAIN,libelf-dev,libssl-dev,openssl,kmod,pahole,xz-utils,python3-minimal,rsync
# For the guest: a shell before the root is mounted; compilers of its victims.
TOOLCHAIN=$TOOLCHAIN,busybox-static,libc6-dev,musl-tools
RECIPE=$(echo "1 $TOOLCHAIN" | digest)

sdk=$CACHE/sdk/$KVER-$RECIPE
toolchain=$CACHE/sdk/toolchain-$RECIPE
source=$sdk/root/usr/src/nsprobe-kernel
finish() { echo "$sdk"; exit 0; }

make_toolchain() {
    say "Debian 13 with the kernel's toolchain (about 1 minute)"
    as_root rm -rf "$toolchain.new"
    logged debootstrap_root "$toolchain.new" minbase "$TOOLCHAIN" trixie trixie-backports
    mv "$toolchain.new" "$toolchain"
}

make_root() {
    need_tools mmdebstrap:mmdebstrap unshare:util-linux flock:util-linux newuidmap:uidmap
    need_space "$sdk" 8
    plan=$("$PROJECT/scripts/kernel-version.sh")
    read -r release version source_package image_package <<END
$plan
END
    if [ "$release" != "$KVER" ]; then
        other=$(KVER=$release "$0" root)
        rm -rf "$sdk" && ln -s "$(basename "$other")" "$sdk"
        return
    fi
    (
        flock 8
        [ -e "$toolchain" ] || make_toolchain
    ) 8>"$toolchain.lock"
    say "$release"
    as_root rm -rf "$sdk/root.new"
    as_root cp -al "$toolchain" "$sdk/root.new"
    logged install_in_root "$sdk/root.new" "linux-headers-$release=$version" \
        "$source_package=$version" "$image_package=$version" "linux-modules-$release=$version"
    echo "$release" >"$sdk/kver"
    mv "$sdk/root.new" "$sdk/root"
}

prepare_source() {
    if [ ! -e "$source" ]; then
        say "preparing the kernel's source and its Rust crates (about 3 minutes)"
        logged "$PROJECT/scripts/enter.sh" "$sdk/root" "$PROJECT" / \
            "$PROJECT/scripts/kernel-source.sh" "$release" /usr/src/nsprobe-kernel
    fi
    "$PROJECT/scripts/symbols.sh" "$source"
    touch "$sdk/prepared"
}

[ ! -e "$sdk/prepared" ] || finish
mkdir -p "$CACHE/sdk"
LOG=$CACHE/sdk/$KVER-$RECIPE.log
lock "$CACHE/sdk/$KVER-$RECIPE.root.lock"
[ -e "$sdk/root" ] || make_root
flock -u 9
[ "${1:-}" != root ] || finish
lock "$CACHE/sdk/$KVER-$RECIPE.lock"
[ ! -e "$sdk/prepared" ] || finish
release=$(cat "$sdk/kver")
prepare_source
say "ready: $sdk"
finish
