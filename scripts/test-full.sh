#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs one part of all tests.
#
# Inputs:  K/12, which part; build/payload. Parts 7 and 8 need the kernels of make debug-kernel.
# Outputs: those of the part. 1 to 4: what runs on the stock kernel, at whole figures. 5 and 6:
#          the module's tests where memory is checked, at whole figures and with a kernel that
#          is preemptible everywhere. 7 and 8: the same with lockdep and KASAN. 9: what takes
#          long on the host. 10: fuzzing. 11 and 12: mutants.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
run=build/cargo/x86_64-unknown-linux-gnu/debug/nsprobe-qemu-run

case ${1:-} in
[1-8]/12)
    scripts/packages.sh tests >/dev/null
    exec "$run" test --shard "${1%/12}"
    ;;
9/12) exec scripts/check-full.sh ;;
10/12) exec scripts/fuzz.sh 40 ;;
11/12) exec scripts/mutants.sh --part 1/2 ;;
12/12) exec scripts/mutants.sh --part 2/2 ;;
*)
    say "name one of twelve parts: make test-full SHARD=1/12"
    exit 2
    ;;
esac
