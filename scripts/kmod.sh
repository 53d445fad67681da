#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the module for the stock kernel, warnings denied.
#
# Inputs:  KVER, CACHE; words for make after the fixed ones (CLIPPY=1 …).
#          NSPROBE_MUTANT=1: warnings are allowed, and what may panic is not looked at.
#          DEBUG_KERNEL and what goes with it, from scripts/debug-kernel.sh: for that one.
# Outputs: build/kmod/nsprobe.ko and kver; Kbuild's litter in build/kbuild-*. For a debug
#          kernel build/kmod-VARIANT/nsprobe.ko and kver.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
if [ -n "${DEBUG_KERNEL:-}" ]; then
    root=$DEBUG_ROOT
    source=$DEBUG_SOURCE
    compiler=$DEBUG_COMPILER
    release=$(cat "$DEBUG_KERNEL/kver")
    output=$PROJECT/build/kmod-${release##*-}
    # Its objects lie beside its source, which is not in the root.
    folders="$PROJECT $(dirname "$source")"
    built=O=$(readlink "$DEBUG_KERNEL/objects")
else
    sdk=$("$PROJECT/scripts/sdk.sh")
    root=$sdk/root
    source=/usr/src/nsprobe-kernel
    compiler=CC=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$root$source/.config")
    release=$(cat "$sdk/kver")
    output=$PROJECT/build/kmod
    folders=$PROJECT
    built=
fi
# clippy leaves objects that are no module: they get a folder of their own.
objects=$PROJECT/build/kbuild-$release${*:+-$(echo "$*" | tr -c 'A-Za-z0-9\n' -)}
mkdir -p "$objects" "$output"
flags=-Dwarnings
[ -z "${NSPROBE_MUTANT:-}" ] || flags="-Awarnings -Cdebuginfo=0"

"$PROJECT/scripts/enter.sh" "$root" "$folders" "$PROJECT" \
    make -s -C "$source" M="$PROJECT" MO="$objects" "$compiler" KERNELRELEASE="$release" \
    KRUSTFLAGS="$flags" ${built:+"$built"} "$@" modules >&2
if [ $# = 0 ]; then
    # Debug kernels compile it otherwise.
    if [ -z "${DEBUG_KERNEL:-}${NSPROBE_MUTANT:-}" ]; then
        in_root() { "$PROJECT/scripts/enter.sh" "$root" "$PROJECT" "$PROJECT" "$@"; }
        in_root scripts/panics.sh "$objects/kmod/main.o"
        in_root scripts/frames.sh "$objects/kmod/main.o" "$objects/kmod/helpers/helpers.o"
    fi
    cp "$objects/kmod/nsprobe.ko" "$output/nsprobe.ko"
    echo "$release" >"$output/kver"
fi
say "built for $release"
