#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# What every commit has to pass: formats, lints and tests that need no guest. What takes longer
# is in check-full.sh.
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
tests="gcc:gcc g++:g++ objcopy:binutils dwz:dwz xz:xz-utils zstd:zstd gdb:gdb
    babeltrace2:babeltrace2"
# shellcheck disable=SC2086 # a list of words
need_for_tests $tests
need_tools shellcheck:shellcheck

say "licence headers, mutants, shell scripts, formats"
scripts/spdx.sh
scripts/mutants.sh --check
shells="scripts/*.sh bench/*.sh bench/guest/*.sh .ci/run qemu-test/init qemu-test/demo qemu-test/image/*.sh"
# It takes ten seconds: only when one of them has changed.
# shellcheck disable=SC2086 # a list of files
if [ ! -e build/check/shells ] || [ -n "$(find $shells -newer build/check/shells)" ]; then
    shellcheck -x $shells
    touch build/check/shells
fi
$cargo fmt --all --check
sdk=$(scripts/sdk.sh)
# The kernel's own rustfmt: what it formats, the kernel's check accepts.
scripts/enter.sh "$sdk/root" "$PROJECT" "$PROJECT" rustfmt --edition 2021 --check kmod/main.rs

# The lints of userland wait until the tests are compiled, and run beside them.
say "tests, and beside them the module's lints"
# Joining mount namespaces takes root, be it that of a user namespace.
(
    [ "$(id -u)" != 0 ] || exec $cargo test --quiet
    as_root $cargo test --quiet
) >build/check/tests.log 2>&1 &
tests=$!
trap 'kill $tests 2>/dev/null || true' EXIT
nice -n 19 scripts/kmod.sh CLIPPY=1
say "userland: lints"
nice -n 19 $cargo clippy --quiet --workspace --all-targets -- -D warnings
say "waiting for the tests"
wait $tests || {
    cat build/check/tests.log >&2
    exit 1
}
trap - EXIT
$cargo keep
say "all is well"
