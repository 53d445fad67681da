# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh
# What records cost all who have to do with them, what a call costs when threads meet at its
# probe, and when its probe is one of many. Sourced by measure.sh.

WORK_PEERS='nsprobe nsprobe-record bpftrace bcc perf perf-script tracefs trace-cmd trace-cmd-report systemtap lttng lttng-text'
WORK_ROWS='record stack'
# Calls of one round: bcc prints a record in some 200,000 instructions.
WORK_CALLS=${WORK_CALLS:-20000}
THREADS='1 16'
# Of all threads in one round: as few as buffers have room for.
THREAD_CALLS=${THREAD_CALLS:-3200}
CROWD=${CROWD:-1000}
CROWD_PEERS='nsprobe bpftrace systemtap'
THREAD_PEERS='nsprobe bpftrace perf'
THREAD_ROWS='count record'

# Prints the shell command of PEER for ROW: the tracer with one probe, up to text that one can
# read or to a file.
work_command() { # peer row
    at=$UNDER:begins_with_push
    case $1-$2 in
    nsprobe-record-*) echo "exec nsprobe record --force -o /tmp/work.nsprobe $(stack_option "$2") $at" ;;
    nsprobe-*) echo "exec nsprobe trace $(stack_option "$2") $at" ;;
    bpftrace-record) bpftrace_work "\"\"" ;;
    bpftrace-stack) bpftrace_work ustack ;;
    bcc-record) bcc trace -t "$at" ;;
    bcc-stack) bcc trace -t -U "$at" ;;
    perf-record | perf-script-record) echo "exec perf record -q -a -e bench:push -o /tmp/perf.data" ;;
    perf-stack | perf-script-stack) echo "exec perf record -q -a -g --user-callchains -e bench:push -o /tmp/perf.data" ;;
    tracefs-*) echo "exec /payload/bench/pipe.sh $2" ;;
    trace-cmd-record | trace-cmd-report-record)
        echo "exec trace-cmd record -q -e bench:push -o /tmp/work.dat"
        ;;
    systemtap-record) systemtap one ;;
    lttng-record | lttng-text-record) echo "FUNCTIONS=begins_with_push exec /payload/bench/lttng.sh record" ;;
    esac
}

stack_option() { [ "$1" != stack ] || echo --stack; }

bpftrace_work() { # stack
    printf '%s\n' "exec bpftrace -e 'uprobe:$UNDER:begins_with_push {
        printf(\"%d %d %llu %s %s\n\", pid, tid, nsecs, $1, comm); }'"
}

# What makes text of what was stored.
work_after() { # peer
    case $1 in
    perf-script) echo "exec perf script -i /tmp/perf.data" ;;
    trace-cmd-report) echo "exec trace-cmd report -i /tmp/work.dat" ;;
    lttng-text) echo "exec babeltrace2 /tmp/lttng" ;;
    esac
}

# Records that came through, of what is stored or printed; and what the tool says that it lost.
work_told() { # peer row
    case $1 in
    nsprobe-record)
        nsprobe script /tmp/work.nsprobe >/tmp/work.text 2>/dev/null
        echo "$(grep -c ':begins_with_push$' /tmp/work.text) $(of_sentence 'lost (ring full)')"
        ;;
    perf-script) reported perf "$2" ;;
    lttng-text) reported lttng "$2" ;;
    tracefs) echo "$(grep -c ' push: (' "$OUT") $(sed -n 's/.*\[LOST \([0-9]*\) EVENTS\].*/\1/p' "$OUT" | sum)" ;;
    trace-cmd*)
        trace-cmd report -i /tmp/work.dat >/tmp/work.text 2>/dev/null
        echo "$(grep -c " push: " /tmp/work.text) $(sed -n 's/.*\[\([0-9]*\) EVENTS DROPPED\].*/\1/p' /tmp/work.text | sum)"
        ;;
    bcc) echo "$(grep -c 'begins_with_push *$' "$OUT") $(reported bcc record | cut -d' ' -f2)" ;;
    *) reported "$1" "$2" ;;
    esac
}

works() {
    CALLS=$WORK_CALLS
    export CALLS AFTER
    for _ in $(seq "$ROUNDS"); do
        AFTER='' measure work none record record none
        for row in $WORK_ROWS; do
            for peer in $WORK_PEERS; do
                # Not what stands after the tool's name; trace-cmd has a dash of its own.
                wanted "${peer%%-[!c]*}" || continue
                command=$(work_command "$peer" "$row")
                [ -n "$command" ] || continue
                AFTER=$(work_after "$peer")
                rm -f /tmp/work.dat /tmp/work.nsprobe
                case $peer in perf* | trace*) define_events ;; esac
                measure work "$peer" "$row" "$row" "$command" &&
                    echo "told $peer work-$row $(work_told "$peer" "$row")"
                remove_events
            done
        done
    done
    unset AFTER
}

# One of many probes is hit. perf and bcc take minutes to take a thousand away again.
crowds() {
    measure crowd bare "$CROWD" 1 bare
    [ "$CROWD" = 1 ] || measure crowd bare "$CROWD" "$CROWD" bare
    measure crowd none "$CROWD" 1 none
    for peer in $CROWD_PEERS; do
        wanted "$peer" || continue
        for count in 1 $CROWD; do
            TOLD_AS=crowd-$count measure_told crowd "$peer" count "$count" "$(many_probes "$peer" "$count")"
        done
    done
}

# Threads on all CPUs, in a guest whose CPUs run side by side.
threads() {
    CALLS=$THREAD_CALLS
    export CALLS
    for count in $THREADS; do
        for case in none bare; do measure threads "$case" "$case" "$case" "$count" "$case"; done
        for peer in $THREAD_PEERS; do
            wanted "$peer" || continue
            for row in $THREAD_ROWS; do
                [ "$peer" != perf ] || define_events
                TOLD_AS=threads-$row-$count measure_told threads "$peer" "$row" "$row" "$count" \
                    "$(command_of "$peer" "$row" | sed 's/begins_with_\*/begins_with_push/')"
                remove_events
            done
        done
    done
}
