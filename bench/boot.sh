# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh
# What is measured, ready to run in the peers' guest; sourced by run.sh and stacks.sh,
# behind scripts/lib.sh.
#
# Inputs:  CALLS and ROUNDS, ONLY_PEERS, ONLY_ROWS (environment); what `make payload` made.
# Outputs: the function guest; the folders $peers, $payload and $results.
peers=$(scripts/peers.sh)
payload=$(scripts/payload.sh)
bench/build.sh "$payload/bench"

runner=build/cargo/x86_64-unknown-linux-gnu/release/nsprobe-qemu-run
results=$PROJECT/build/bench
mkdir -p "$results"
cp "$peers/versions" "$results/versions.txt"

# Runs parts of guest/measure.sh; its lines are kept in the results' NAME.txt.
guest() { # name accelerator what...
    name=$1 accel=$2
    shift 2
    ACCEL=$accel "$runner" --guest "$peers" --payload "$payload" exec -- \
        env CALLS="${CALLS:-3000}" ROUNDS="${ROUNDS:-3}" ${ONLY_PEERS:+"ONLY_PEERS=$ONLY_PEERS"} \
        ${ONLY_ROWS:+"ONLY_ROWS=$ONLY_ROWS"} WHAT="$*" /payload/bench/measure.sh |
        tee "$results/$name.txt" >&2
}
