#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Compares what LTTng's events look like, in a trace that it records in the peers' guest, with
# what userland/ctf/tests/golden says, which the tests hold `nsprobe export ctf` to.
#
# Outputs: a line for each event on stdout, and the differences; LTTng's metadata in
#          build/bench/lttng.metadata. Fails when there are some.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
peers=$(scripts/peers.sh)
payload=$(scripts/payload.sh)
results=$PROJECT/build/bench
mkdir -p "$results" "$payload/bench"
cp bench/guest/layouts.sh "$payload/bench/"
build/cargo/x86_64-unknown-linux-gnu/debug/nsprobe-qemu-run --guest "$peers" \
    --payload "$payload" exec -- /payload/bench/layouts.sh >"$results/lttng.metadata"
awk -f bench/layouts.awk "$results/lttng.metadata" >"$results/lttng.layouts"
# A line for each field with its event, of the events that both have.
flat() { awk '/^#/ { next } /^  / { print event, ++nth, $1, $2; next } { event = $1; nth = 0 }' "$1"; }
golden=userland/ctf/tests/golden/lttng-2.16.0.txt
flat "$golden" >"$results/golden"
flat "$results/lttng.layouts" >"$results/recorded"
differ=0
awk '!/^[# ]/' "$golden" >"$results/names"
while read -r name; do
    if ! grep -q "^$name\$" "$results/lttng.layouts"; then
        echo "LTTng has no $name on this kernel"
        continue
    fi
    for side in golden recorded; do
        awk -v name="$name" '$1 == name' "$results/$side" >"$results/$side.one"
    done
    if diff "$results/golden.one" "$results/recorded.one"; then
        echo "$name is the same"
    else
        differ=1
    fi
done <"$results/names"
exit "$differ"
