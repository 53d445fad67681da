#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# An LTTng session with user-space probes of the kernel tracer.
#
# Inputs:  ROW; FUNCTIONS (else those of the table) of BINARY; OTHER.
# Outputs: the trace in /tmp/lttng. SIGINT, or a failure, ends the session and its daemon:
#          one that stays is in the way of the next.
row=$1
export HOME=/root LTTNG_UST_WITHOUT_BADDR_STATEDUMP=1
undo() {
    trap - INT EXIT
    # Its words must not stand after those of what failed.
    lttng destroy bench >/dev/null 2>&1
    daemon=$(cat /var/run/lttng/lttng-sessiond.pid)
    kill "$daemon"
    for _ in $(seq 200); do
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.05
    done
    exit "$1"
}
trap 'undo 0' INT
trap 'undo 1' EXIT

lttng-sessiond --daemonize || exit
rm -rf /tmp/lttng
lttng create bench --output=/tmp/lttng || exit
for function in ${FUNCTIONS:-begins_with_push begins_with_endbr begins_with_mov begins_with_nop}; do
    lttng enable-event --kernel --userspace-probe="${BINARY:-/bench/under}:$function" "$function" || exit
done
lttng add-context --kernel --type=vpid --type=vtid --type=procname || exit
[ "$row" != stack ] || lttng add-context --kernel --type=callstack-user || exit
[ "$row" != filter ] || lttng track --kernel --vpid="$OTHER" || exit
lttng start || exit
while :; do sleep 0.05; done
