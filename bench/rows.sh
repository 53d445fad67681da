#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# What unwind rows cost when they are compiled, and when they come from the cache: of the
# C library, and of what is largest in the peers' guest and in Rust's own libraries.
#
# Inputs:  PEERS: the folder of scripts/peers.sh; or FILES (environment) to measure.
# Outputs: lines "rows NAME FILE SECTIONS TABLE COMPILED CACHED", in bytes and ms.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"

# The largest regular file of those names below a folder.
largest() { # folder pattern
    find "$1" -name "$2" -type f -printf '%s %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d' ' -f2-
}

if [ -z "${FILES:-}" ]; then
    libraries=$1/root/usr/lib/x86_64-linux-gnu
    FILES="$libraries/libc.so.6 $(largest "$libraries" '*.so*')"
    rust=$(rustc --print sysroot 2>/dev/null) && FILES="$FILES $(largest "$rust/lib" '*.so*')"
fi
scripts/cargo.sh build --quiet --release -p nsprobe-unwind --example rows
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
# shellcheck disable=SC2086 # a list of words
build/cargo/x86_64-unknown-linux-gnu/release/examples/rows "$cache" $FILES
