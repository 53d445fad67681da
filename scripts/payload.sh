#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Collects what the guest sees as /payload. It builds nothing but the victims:
# what is not built yet is left out.
#
# Inputs:  build/kmod/nsprobe.ko; the newest built nsprobe, nsprobe-guest-test and
#          nsprobe-victim-panics; qemu-test/{init,demo,victims}.
# Outputs: build/payload, whose path is printed.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
payload=$PROJECT/build/payload
mkdir -p "$payload/victims"

# The file as it is now, or its absence: never one of an earlier build. A guest
# that runs meanwhile keeps what it has open.
collect() { # from name
    if [ ! -e "$1" ]; then
        rm -f "$payload/$2"
    elif ! cmp -s "$1" "$payload/$2"; then
        cp "$1" "$payload/$2.$$"
        mv "$payload/$2.$$" "$payload/$2"
    fi
}

# A developer builds without --release, make with it: the newer is meant.
newest() {
    # shellcheck disable=SC2012 # the paths are ours
    ls -t "build/cargo/x86_64-unknown-linux-gnu/debug/$1" \
        "build/cargo/x86_64-unknown-linux-gnu/release/$1" 2>/dev/null | head -n 1
}

collect build/kmod/nsprobe.ko nsprobe.ko
collect "$(newest nsprobe)" nsprobe
collect "$(newest nsprobe-guest-test)" nsprobe-guest-test
collect "$(newest nsprobe-victim-panics)" victims/panics
collect qemu-test/init init
collect qemu-test/demo demo

"$PROJECT/scripts/victims.sh" "$payload/victims"
echo "$payload"
