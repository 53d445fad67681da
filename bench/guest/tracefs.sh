#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The kernel's own tracer as it is: events written to its rings, which nothing reads.
#
# Inputs:  ROW; the events "bench"; OTHER.
# Outputs: "reported EVENTS" at the end: what the histograms counted, or what was written to
#          the rings, also what newer events have overwritten there. SIGINT ends it and takes
#          back what it set.
cd /sys/kernel/tracing || exit
row=$1

written() {
    cat per_cpu/cpu*/stats | awk -v each="$1" '$1 == "entries:" || $1 == "overrun:" { n += $2 }
        END { print "reported", n / each }'
}

undo() {
    echo 0 >events/bench/enable
    case $row in
    count)
        cat events/bench/*/hist | awk '/Hits:/ { n += $2 } END { print "reported", n }'
        for event in events/bench/*/; do echo '!hist:keys=common_pid' >"$event/trigger"; done
        ;;
    # A stack is an event of its own.
    stack) written 2 ;;
    *) written 1 ;;
    esac
    echo nouserstacktrace >trace_options
    echo >set_event_pid
    echo 0 >events/bench/filter
    exit 0
}
trap undo INT

echo >trace
case $row in
count) for event in events/bench/*/; do echo hist:keys=common_pid >"$event/trigger"; done ;;
stack) echo userstacktrace >trace_options ;;
predicate) echo 'a == 1' >events/bench/filter ;;
filter) echo "$OTHER" >set_event_pid ;;
esac
[ "$row" = count ] || echo 1 >events/bench/enable
while :; do sleep 0.05; done
