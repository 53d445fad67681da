#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# What takes too long for every commit, and needs no guest: the tests that are ignored, and lints
# of what is seldom touched.
#
# Inputs:  the tree.
# Outputs: status 0 when all is well; else the first tool's own message.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
cargo=scripts/cargo.sh
export NSPROBE_STRICT=1

mkdir -p "$CACHE" build/check
LOG=$CACHE/check.log
tests="gcc:gcc g++:g++ go:golang-go objcopy:binutils llvm-symbolizer:llvm eu-unstrip:elfutils"
# shellcheck disable=SC2086 # a list of words
need_for_tests $tests

# What is compiled by the kernel's toolchain, in its root.
sdk=$(scripts/sdk.sh)
in_sdk() { scripts/enter.sh "$sdk/root" "$PROJECT" "$PROJECT" "$@"; }
say "programs of the benchmarks"
in_sdk gcc-14 -O2 -Wall -Wextra -Werror -fsyntax-only bench/*.c

say "fuzz targets: format, lints"
$cargo fmt --manifest-path fuzz/Cargo.toml --check
# A library that is named is not built: libFuzzer itself takes minutes.
[ -e build/check/libfuzzer.a ] || ar rc build/check/libfuzzer.a
CUSTOM_LIBFUZZER_PATH=$PROJECT/build/check/libfuzzer.a $cargo clippy --quiet --locked \
    --manifest-path fuzz/Cargo.toml --bins -- -D warnings

say "long tests"
# Older assemblers than that one write no such .sframe.
in_sdk gcc-14 -O2 -Wl,-z,lazy -Wa,--gsframe -o build/check/sframe qemu-test/victims/only_sframe.c
export NSPROBE_SFRAME="$PROJECT/build/check/sframe"
NSPROBE_FILES=$(scripts/debian-files.sh)
export NSPROBE_FILES
# Go's own library, compiled once for all clones.
export GOCACHE="$CACHE/go-build"
mkdir -p "$GOCACHE"
NSPROBE_CARGO_BINDS="$(dirname "${NSPROBE_FILES%%:*}") $GOCACHE"
export NSPROBE_CARGO_BINDS
if [ "$(id -u)" = 0 ]; then
    $cargo test --quiet -- --ignored
else
    as_root $cargo test --quiet -- --ignored
fi
say "all is well"
