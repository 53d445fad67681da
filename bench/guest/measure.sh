#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# In the guest: what each tracer's rows cost. Lines as under.c and stacks.c print them;
# "told PEER ROW events lost" of what the tool itself reported; and
# "failed VERB PEER ROW text" for what did not work.
#
# Inputs:  PEERS and ROWS to measure (environment; all by default);
#          CELLS: PEER/ROW of costs that an earlier boot has measured;
#          CALLS, ROUNDS and, of sessions.sh, COUNTS, MANY_ROUNDS, BURST;
#          WHAT: costs, one, many, burst, works, crowds, threads, stack_costs, stack_bytes,
#          stack_libraries.
# shellcheck source=bench/guest/commands.sh
. /payload/bench/commands.sh
# shellcheck source=bench/guest/reported.sh
. /payload/bench/reported.sh
PEERS=${ONLY_PEERS:-$PEERS}
ROWS=${ONLY_ROWS:-$ROWS}
PATH=/payload:$PATH
export OUT=/tmp/tool.out DEBUGINFOD_URLS=

prepare() {
    mkdir -p /bench && cp /payload/bench/under /payload/bench/stacks-* /payload/bench/cost-* /bench/
    insmod /payload/nsprobe.ko && insmod /payload/bench/bare.ko || exit
    mount -t configfs none /sys/kernel/config 2>/dev/null
    sysctl -q kernel.perf_event_paranoid=-1 kernel.kptr_restrict=0
    # bcc opens some descriptors for each probe.
    # shellcheck disable=SC3045 # dash and busybox have it
    ulimit -n 65536
}

# Runs a subject; when that fails, says so with the tool's last words, and the kernel's.
measure() { # verb peer row arguments...
    verb=$1 peer=$2 row=$3
    shift 3
    rm -rf /tmp/perf.data /tmp/lttng
    : >"$OUT"
    dmesg -C
    "${SUBJECT_PROGRAM:-$UNDER}" "$verb" "$peer" "$@" 2>/tmp/under.err && return
    words=$(grep -v '^[[:space:]]*$' "$OUT" | tail -n 2 | tr '\n' ' ' | cut -c1-300)
    kernel=$(dmesg -t | grep -v nsprobe | tail -n 1 | cut -c1-150)
    echo "failed $verb $peer $row $(head -n 1 /tmp/under.err); $words${kernel:+ (the kernel: $kernel)}"
    return 1
}

# The same, and what the tool reported in the end.
measure_told() { # verb peer row-of-reported arguments...
    counted_as=$3
    measure "$@" && echo "told $2 ${TOLD_AS:-$counted_as} $(reported "$2" "$counted_as")"
}

# Whether an earlier boot has measured a cell of costs.
is_measured() { # peer row
    case " ${CELLS:-} " in *" $1/$2 "*) ;; *) return 1 ;; esac
}

costs() {
    for case in none bare bare-session; do measure cost $case $case $case "$case"; done
    for peer in $PEERS; do
        for row in $ROWS; do
            command=$(command_of "$peer" "$row")
            [ -n "$command" ] || continue
            ! is_measured "$peer" "$row" || continue
            case $peer in perf | tracefs) define_events ;; esac
            measure_told cost "$peer" "$row" "$row" "$command"
            remove_events
        done
    done
}

prepare

# shellcheck source=bench/guest/sessions.sh
. /payload/bench/sessions.sh
# shellcheck source=bench/guest/works.sh
. /payload/bench/works.sh
# shellcheck source=bench/guest/stacks.sh
. /payload/bench/stacks.sh
for what in ${WHAT:-costs}; do
    $what
    # A host that reads this knows that nothing is missing at its end.
    echo "done $what"
done
