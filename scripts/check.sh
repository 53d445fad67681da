#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# What every commit has to pass: formats, lints and tests that need no guest.
#
# Inputs:  the tree.
# Outputs: status 0 when all is well; else the first tool's own message. No test is
#          skipped: what one lacks fails it (NSPROBE_STRICT).
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
cargo=scripts/cargo.sh
export NSPROBE_STRICT=1

mkdir -p "$CACHE" build/check
LOG=$CACHE/check.log
# The compilers of what is read, those that pack it, and the witnesses of what is said of it:
# here, and in the root of cargo's where one is used.
tests="gcc:gcc g++:g++ go:golang-go objcopy:binutils dwz:dwz xz:xz-utils zstd:zstd gdb:gdb
    llvm-symbolizer:llvm llvm-dwarfdump:llvm eu-unstrip:elfutils babeltrace2:babeltrace2"
# shellcheck disable=SC2086 # lists of words
{
    need_tools $tests shellcheck:shellcheck
    NSPROBE_CARGO_PACKAGES=$(printf '%s\n' $tests | cut -d: -f2 | sort -u | paste -sd,)
}
export NSPROBE_CARGO_PACKAGES

say "licence headers"
scripts/spdx.sh
say "shell scripts"
shellcheck -x scripts/*.sh bench/*.sh bench/guest/*.sh .ci/run qemu-test/init qemu-test/demo qemu-test/image/*.sh

# What is compiled by the kernel's toolchain, in its root.
sdk=$(scripts/sdk.sh)
in_sdk() { scripts/enter.sh "$sdk/root" "$PROJECT" "$PROJECT" "$@"; }
# Older assemblers than that one write no such .sframe.
in_sdk gcc-14 -O2 -Wl,-z,lazy -Wa,--gsframe -o build/check/sframe qemu-test/victims/only_sframe.c
export NSPROBE_SFRAME="$PROJECT/build/check/sframe"
say "programs of the benchmarks"
in_sdk gcc-14 -O2 -Wall -Wextra -Werror -fsyntax-only bench/*.c
say "what may not panic: the judge"
in_sdk scripts/panics.sh --self-test
say "what the module takes of a stack: the judge"
in_sdk scripts/frames.sh --self-test

NSPROBE_FILES=$(scripts/debian-files.sh)
export NSPROBE_FILES
# Go's own library, compiled once for all clones.
export GOCACHE="$CACHE/go-build"
mkdir -p "$GOCACHE"
NSPROBE_CARGO_BINDS="$(dirname "${NSPROBE_FILES%%:*}") $GOCACHE"
export NSPROBE_CARGO_BINDS

say "mutants that still fit the module"
scripts/mutants.sh --check >&2

say "userland: format, lints, tests"
$cargo fmt --all --check
$cargo clippy --quiet --workspace --all-targets -- -D warnings
# Joining mount namespaces takes root, be it that of a user namespace.
if [ "$(id -u)" = 0 ]; then
    $cargo test --quiet
else
    as_root $cargo test --quiet
fi
say "fuzz targets: format, lints"
$cargo fmt --manifest-path fuzz/Cargo.toml --check
# A library that is named is not built: libFuzzer itself takes minutes.
[ -e build/check/libfuzzer.a ] || ar rc build/check/libfuzzer.a
CUSTOM_LIBFUZZER_PATH=$PROJECT/build/check/libfuzzer.a $cargo clippy --quiet --locked \
    --manifest-path fuzz/Cargo.toml --bins -- -D warnings
if [ -e kmod/main.rs ]; then
    say "module: format, lints"
    # The kernel's own rustfmt: what it formats, the kernel's check accepts.
    in_sdk rustfmt --edition 2021 --check kmod/main.rs
    scripts/kmod.sh CLIPPY=1
fi
scripts/bench-age.sh >&2
say "all is well"
