#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# An LTTng session with user-space probes of the kernel tracer.
#
# Inputs:  ROW; FUNCTIONS (else those of the table); OTHER.
# Outputs: the trace in /tmp/lttng; SIGINT ends the session and its daemon.
row=$1
export HOME=/root LTTNG_UST_WITHOUT_BADDR_STATEDUMP=1
undo() {
    lttng destroy bench
    kill "$(cat /var/run/lttng/lttng-sessiond.pid)"
    exit 0
}
trap undo INT

lttng-sessiond --daemonize --no-kernel-notify 2>/dev/null || lttng-sessiond --daemonize || exit
rm -rf /tmp/lttng
lttng create bench --output=/tmp/lttng || exit
for function in ${FUNCTIONS:-begins_with_push begins_with_endbr begins_with_mov begins_with_nop}; do
    lttng enable-event --kernel --userspace-probe="/bench/under:$function" "$function" || exit
done
lttng add-context --kernel --type=vpid --type=vtid --type=procname || exit
[ "$row" != stack ] || lttng add-context --kernel --type=callstack-user || exit
[ "$row" != filter ] || lttng track --kernel --vpid="$OTHER" || exit
lttng start || exit
while :; do sleep 0.05; done
