#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# In the guest: what events of tasks cost, with each tracer in turn. Lines as tasks.c prints
# them, and "failed PEER WHAT text" for what did not work.
#
# Inputs:  LIVES, SWITCHES, ROUNDS, PEERS and WHATS (environment; all by default).
TASKS=/payload/bench/tasks
PEERS=${PEERS:-none nsprobe nsprobe-cpu none perf lttng}
export HOME=/root
insmod /payload/nsprobe.ko || exit
sysctl -q kernel.perf_event_paranoid=-1

# The events of PEER for what is measured.
events_of() { # what prefix
    case $1 in
    lives) names='sched_process_fork sched_process_exec sched_process_exit' ;;
    switches) names=sched_switch ;;
    esac
    for name in $names; do printf '%s%s,' "$2" "$name"; done | sed 's/,$//'
}

begin() { # peer what
    case $1 in
    perf)
        rm -f /tmp/ctl /tmp/ack
        mkfifo /tmp/ctl /tmp/ack
        perf record -q -a -m 4M -D -1 --control=fifo:/tmp/ctl,/tmp/ack \
            -e "$(events_of "$2" sched:)" -o /tmp/perf.data 2>/tmp/peer.err &
        tracer=$!
        # It takes seconds until it records.
        # shellcheck disable=SC2016 # expanded by the inner shell
        timeout 60 sh -c 'echo enable >/tmp/ctl; read -r answer </tmp/ack; [ "$answer" = ack ]'
        ;;
    lttng)
        lttng-sessiond --daemonize >/tmp/peer.err 2>&1 &&
            lttng create bench --output=/tmp/lttng >>/tmp/peer.err 2>&1 &&
            lttng enable-channel --kernel --subbuf-size=4M --num-subbuf=8 big >>/tmp/peer.err 2>&1 &&
            lttng enable-event --kernel --channel=big "$(events_of "$2" '')" >>/tmp/peer.err 2>&1 &&
            lttng start >>/tmp/peer.err 2>&1
        ;;
    esac
}

# Ends PEER; prints the bytes of its trace and the events in it.
finish() { # peer what
    case $1 in
    perf)
        kill -INT "$tracer" && wait "$tracer"
        samples=$(perf report --stats -i /tmp/perf.data 2>/dev/null | awk '/SAMPLE events:/ { print $3; exit }')
        echo "perf $2 kept $(stat -c %s /tmp/perf.data) ${samples:-0}"
        rm -f /tmp/perf.data
        ;;
    lttng)
        lttng destroy bench >/tmp/peer.err 2>&1
        kill "$(cat /var/run/lttng/lttng-sessiond.pid)"
        echo "lttng $2 kept $(cat /tmp/lttng/kernel/big_* | wc -c) $(babeltrace2 /tmp/lttng | wc -l)"
        rm -rf /tmp/lttng
        sleep 1
        ;;
    esac
}

for what in ${WHATS:-lives switches dump}; do
    case $what in
    lives) count=${LIVES:-300} ;;
    switches) count=${SWITCHES:-20000} ;;
    dump)
        "$TASKS" dump 10000 "${ROUNDS:-3}"
        continue
        ;;
    esac
    for peer in $PEERS; do
        if begin "$peer" "$what"; then
            "$TASKS" cost "$peer" "$what" "$count" "${ROUNDS:-3}"
            finish "$peer" "$what"
        else
            echo "failed $peer $what $(tail -n 1 /tmp/peer.err)"
        fi
    done
done
