#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# In the guest: what events of tasks cost, with each tracer in turn, each with its own reader
# at work beside. Lines as tasks.c prints them;
# "told PEER WHAT events lost" and "bytes PEER WHAT bytes-an-event" of what a tracer kept;
# "tool PEER WHAT microseconds at-its-end count" of its processes' CPU time meanwhile, and when
# it ends, for that many pieces of work; and "failed task PEER WHAT text" for what did not work.
#
# Inputs:  LIVES, SWITCHES, ROUNDS, TASKS_DUMPED, PEERS and WHATS (environment; all by default).
TASKS=/payload/bench/tasks
PEERS=${PEERS:-none nsprobe nsprobe-top module module-cpu none perf lttng}
ROUNDS=${ROUNDS:-5}
CGROUP=/sys/fs/cgroup/bench-tool
PATH=/payload:$PATH
export HOME=/root
insmod /payload/nsprobe.ko || exit
sysctl -q kernel.perf_event_paranoid=-1
mkdir -p "$CGROUP"

# The events of PEER for what is measured.
events_of() { # what prefix
    case $1 in
    lives) names='sched_process_fork sched_process_exec sched_process_exit' ;;
    switches) names=sched_switch ;;
    esac
    for name in $names; do printf '%s%s,' "$2" "$name"; done | sed 's/,$//'
}

# Runs a command in the background, in the control group whose CPU time is looked at.
begin_tool() { # command...
    sh -c "echo 0 >$CGROUP/cgroup.procs && exec \"\$@\"" sh "$@" >/tmp/peer.err 2>&1 &
    tracer=$!
}

used() { sed -n 's/usage_usec //p' "$CGROUP/cpu.stat"; }

# Until a line is in what the tool says.
wait_for() { # text
    for _ in $(seq 600); do
        grep -q "$1" /tmp/peer.err && return 0
        kill -0 "$tracer" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

begin() { # peer what
    rm -rf /tmp/perf.data /tmp/lttng /tmp/tasks.nsprobe
    switches=
    [ "$2" != switches ] || switches=--switches
    case $1 in
    nsprobe)
        # shellcheck disable=SC2086 # none, or one word
        begin_tool nsprobe record -o /tmp/tasks.nsprobe $switches "$TASKS:never_called"
        wait_for tracing
        ;;
    nsprobe-top)
        begin_tool nsprobe top --batch
        wait_for CPU
        ;;
    perf)
        rm -f /tmp/ctl /tmp/ack
        mkfifo /tmp/ctl /tmp/ack
        begin_tool perf record -q -a -m 4M -D -1 --control=fifo:/tmp/ctl,/tmp/ack \
            -e "$(events_of "$2" sched:)" -o /tmp/perf.data
        # It takes seconds until it records.
        # shellcheck disable=SC2016 # expanded by the inner shell
        timeout 60 sh -c 'echo enable >/tmp/ctl; read -r answer </tmp/ack; [ "$answer" = ack ]'
        ;;
    lttng)
        {
            sh -c "echo 0 >$CGROUP/cgroup.procs && exec lttng-sessiond --daemonize" &&
                lttng create bench --output=/tmp/lttng &&
                lttng enable-channel --kernel --subbuf-size=4M --num-subbuf=8 big &&
                lttng enable-event --kernel --channel=big "$(events_of "$2" '')" &&
                lttng start
        } >/tmp/peer.err 2>&1
        ;;
    esac
}

# Ends PEER; says what its trace has.
finish() { # peer what
    case $1 in
    none | module*) ;;
    lttng)
        lttng destroy bench >/dev/null 2>&1
        daemon=$(cat /var/run/lttng/lttng-sessiond.pid)
        kill "$daemon"
        while kill -0 "$daemon" 2>/dev/null; do sleep 0.1; done
        ;;
    *)
        kill -INT "$tracer" 2>/dev/null
        wait "$tracer"
        ;;
    esac
}

kept() { # peer what
    case $1 in
    nsprobe)
        nsprobe info --json /tmp/tasks.nsprobe >/tmp/info
        bytes=$(stat -c %s /tmp/tasks.nsprobe)
        # Of each kind of events: "seen":N,"recorded":N,"filtered":N,"lost":N.
        grep -o '"seen":[0-9]*,"recorded":[0-9]*,"filtered":[0-9]*,"lost":[0-9]*' /tmp/info |
            tr ':,' ' ' >/tmp/kinds
        events=$(awk '{ n += $4 } END { print n + 0 }' /tmp/kinds)
        lost=$(awk '{ n += $8 } END { print n + 0 }' /tmp/kinds)
        ;;
    perf)
        perf report --stats -i /tmp/perf.data >/tmp/stats 2>/dev/null
        bytes=$(stat -c %s /tmp/perf.data)
        events=$(awk '/SAMPLE events:/ { print $3; exit }' /tmp/stats)
        lost=$(awk '/LOST_SAMPLES events:/ { n = $3 } END { print n + 0 }' /tmp/stats)
        ;;
    lttng)
        bytes=$(cat /tmp/lttng/kernel/big_* | wc -c)
        events=$(babeltrace2 /tmp/lttng 2>/tmp/text.said | wc -l)
        lost=$(sed -n 's/.*discarded \([0-9]*\) event.*/\1/p' /tmp/text.said | awk '{ n += $1 } END { print n + 0 }')
        ;;
    *) return ;;
    esac
    echo "told $1 $2 ${events:-0} ${lost:-0}"
    [ "${events:-0}" = 0 ] || echo "bytes $1 $2 $((bytes / events))"
}

for what in ${WHATS:-lives switches dump}; do
    case $what in
    lives) count=${LIVES:-300} ;;
    switches) count=${SWITCHES:-20000} ;;
    dump)
        "$TASKS" dump "${TASKS_DUMPED:-10000}" "$ROUNDS"
        continue
        ;;
    esac
    for peer in $PEERS; do
        if begin "$peer" "$what"; then
            before=$(used)
            "$TASKS" cost "$peer" "$what" "$count" "$ROUNDS"
            behind=$(used)
            finish "$peer" "$what"
            case $peer in none | module*) ;; *)
                echo "tool $peer $what $((behind - before)) $(($(used) - behind)) $((count * ROUNDS + count / 10 + 2))" ;;
            esac
            kept "$peer" "$what"
        else
            echo "failed task $peer $what $(tail -n 1 /tmp/peer.err)"
            finish "$peer" "$what"
        fi
    done
done
echo "done tasks"
