#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Collects what the guest sees as /payload. It builds nothing but the victims:
# what is not built yet is left out.
#
# Inputs:  names of the victims that are needed, all by default; build/kmod/nsprobe.ko and
#          kver; build/trouble/trouble.ko; nsprobe, nsprobe-guest-test and
#          nsprobe-victim-panics as the tests have them, or those of PROFILE=release;
#          qemu-test/{init,demo,victims}; build/packages.
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

programs=build/cargo/x86_64-unknown-linux-gnu/${PROFILE:-debug}

collect build/kmod/nsprobe.ko nsprobe.ko
collect build/kmod/kver kver
collect build/trouble/trouble.ko trouble.ko
collect "$programs/nsprobe" nsprobe
collect "$programs/nsprobe-guest-test" nsprobe-guest-test
collect "$programs/nsprobe-victim-panics" victims/panics
collect qemu-test/init init
collect qemu-test/demo demo

# The schema of OTLP, as it is published.
manifest=$(scripts/cargo.sh metadata --format-version 1 --locked \
    --filter-platform x86_64-unknown-linux-gnu |
    grep -o '"[^"]*/opentelemetry-proto-[^"]*/Cargo.toml"' | head -n 1 | tr -d '"')
collect "$(dirname "$manifest")/src/proto/tonic/descriptors.bin" otlp.descriptors

mkdir -p "$payload/packages"
rm -f "$payload"/packages/*
for package in build/packages/*.deb; do
    [ ! -e "$package" ] || cp "$package" "$payload/packages/"
done

"$PROJECT/scripts/victims.sh" "$payload/victims" "$@"
echo "$payload"
