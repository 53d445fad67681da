#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures what events of tasks cost with nsprobe and its peers, in the peers' guest: in
# instructions (QEMU's -icount, one CPU), all in one boot.
#
# Inputs:  LIVES, SWITCHES and ROUNDS (environment); what `make payload` made. UPDATE=1 writes
#          bench/TASKS.md, too.
# Outputs: the table on stdout; the guest's lines in build/bench/tasks.txt.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
peers=$(scripts/peers.sh)
payload=$(scripts/payload.sh)
sdk=$(scripts/sdk.sh)
runner=build/cargo/x86_64-unknown-linux-gnu/release/nsprobe-qemu-run
results=$PROJECT/build/bench
mkdir -p "$results" "$payload/bench"
scripts/enter.sh "$sdk/root" "$PROJECT" "$PROJECT" gcc-14 -O2 -Wall -Wextra -pthread \
    -o "$payload/bench/tasks" bench/tasks.c
cp bench/guest/tasks.sh "$payload/bench/"
ACCEL=${ACCEL_TASKS:-icount} "$runner" --guest "$peers" --payload "$payload" exec -- \
    env LIVES="${LIVES:-300}" SWITCHES="${SWITCHES:-20000}" ROUNDS="${ROUNDS:-3}" \
    /payload/bench/tasks.sh | tee "$results/tasks.txt" >&2

table() {
    awk -v KVER="$KVER" -f bench/median.awk -f bench/tasks.awk "$peers/versions" "$results/tasks.txt"
}
table
[ -z "${UPDATE:-}" ] || table >bench/TASKS.md
