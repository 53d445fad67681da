#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the module that harms the kernel on purpose, for the tests of the runner.
#
# Inputs:  KVER, CACHE; qemu-test/trouble.
# Outputs: build/trouble/trouble.ko.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
sdk=$(scripts/sdk.sh)
release=$(cat "$sdk/kver")
source=/usr/src/nsprobe-kernel
objects=$PROJECT/build/trouble-$release
mkdir -p "$objects" build/trouble
lock "$objects.lock"
cc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$sdk/root$source/.config")
scripts/enter.sh "$sdk/root" "$PROJECT" "$PROJECT" make -s -C "$source" \
    M="$PROJECT/qemu-test/trouble" MO="$objects" CC="$cc" KERNELRELEASE="$release" modules >&2
cp "$objects/trouble.ko" build/trouble/trouble.ko
