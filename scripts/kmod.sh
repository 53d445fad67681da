#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the module for the stock kernel, warnings denied.
#
# Inputs:  KVER, CACHE; words for make after the fixed ones (CLIPPY=1 …).
# Outputs: build/kmod/nsprobe.ko and kver; Kbuild's litter in build/kbuild-*.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
sdk=$("$PROJECT/scripts/sdk.sh")
release=$(cat "$sdk/kver")
source=/usr/src/nsprobe-kernel
# clippy leaves objects that are no module: they get a folder of their own.
objects=$PROJECT/build/kbuild-$release${*:+-$(echo "$*" | tr -c 'A-Za-z0-9\n' -)}
mkdir -p "$objects" "$PROJECT/build/kmod"

cc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$sdk/root$source/.config")
"$PROJECT/scripts/enter.sh" "$sdk/root" "$PROJECT" "$PROJECT" \
    make -s -C "$source" M="$PROJECT" MO="$objects" CC="$cc" KERNELRELEASE="$release" \
    KRUSTFLAGS=-Dwarnings "$@" modules >&2
if [ $# = 0 ]; then
    "$PROJECT/scripts/enter.sh" "$sdk/root" "$PROJECT" "$PROJECT" \
        scripts/panics.sh "$objects/kmod/main.o"
    cp "$objects/kmod/nsprobe.ko" "$PROJECT/build/kmod/nsprobe.ko"
    echo "$release" >"$PROJECT/build/kmod/kver"
fi
say "built for $release"
