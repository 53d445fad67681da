#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures what a hit costs, against the bare consumer, in the guest.
#
# Inputs:  CALLS and ROUNDS (environment); what `make payload image` made.
# Outputs: two tables on stdout: instructions (QEMU's -icount, one CPU: these
#          repeat) and nanoseconds (two CPUs; only ratios mean something).
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
payload=$(scripts/payload.sh)
sdk=$(scripts/sdk.sh)
release=$(cat "$sdk/kver")
objects=$PROJECT/build/bench-$release
mkdir -p "$objects" "$payload/bench"
scripts/enter.sh "$sdk/root" "$PROJECT" "$PROJECT" make -s -C /usr/src/nsprobe-kernel \
    M="$PROJECT/bench/bare" MO="$objects" CC=x86_64-linux-gnu-gcc-14 KERNELRELEASE="$release" modules >&2
scripts/enter.sh "$sdk/root" "$PROJECT" "$PROJECT" \
    gcc-14 -O2 -Wall -Wextra -o "$payload/bench/cost" bench/cost.c
cp "$objects/bare.ko" "$payload/bench/"

runner=build/cargo/x86_64-unknown-linux-gnu/release/nsprobe-qemu-run
measure() {
    "$runner" exec -- sh -c "insmod /payload/nsprobe.ko && insmod /payload/bench/bare.ko &&
        taskset 1 /payload/bench/cost ${CALLS:-10000} ${ROUNDS:-3}"
}
echo "# instructions a call"
ACCEL=icount measure
echo "# nanoseconds a call"
ACCEL=tcg measure
