#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# What every commit has to pass: formats, lints and tests that need no guest.
#
# Inputs:  the tree; shellcheck is used when it is installed.
# Outputs: status 0 when all is well; else the first tool's own message.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
cargo=scripts/cargo.sh

# The witnesses of what is read from debug information, and of traces that are written.
mkdir -p "$CACHE"
LOG=$CACHE/check.log
need_tools gcc:gcc g++:g++ gdb:gdb dwz:dwz objcopy:binutils \
    babeltrace2:babeltrace2

say "licence headers"
scripts/spdx.sh
if command -v shellcheck >/dev/null; then
    say "shell scripts"
    shellcheck -x scripts/*.sh bench/*.sh bench/guest/*.sh .ci/run qemu-test/init qemu-test/demo qemu-test/image/*.sh
fi
# Older assemblers than that of the kernel's toolchain write no such .sframe.
mkdir -p build/check
"$PROJECT/scripts/enter.sh" "$("$PROJECT/scripts/sdk.sh" root)/root" "$PROJECT" "$PROJECT" \
    gcc-14 -O2 -Wl,-z,lazy -Wa,--gsframe -o build/check/sframe qemu-test/victims/only_sframe.c
export NSPROBE_SFRAME="$PROJECT/build/check/sframe"

NSPROBE_FILES=$(scripts/debian-files.sh)
export NSPROBE_FILES

say "userland: format, lints, tests"
$cargo fmt --all --check
$cargo clippy --quiet --workspace --all-targets -- -D warnings
$cargo test --quiet
if [ -e kmod/main.rs ]; then
    say "module: format, lints"
    # The kernel's own rustfmt: what it formats, the kernel's check accepts.
    "$PROJECT/scripts/enter.sh" "$("$PROJECT/scripts/sdk.sh" root)/root" "$PROJECT" "$PROJECT" \
        rustfmt --edition 2021 --check kmod/main.rs
    scripts/kmod.sh CLIPPY=1
fi
say "all is well"
