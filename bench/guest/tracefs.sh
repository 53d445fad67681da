#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The kernel's own tracer as it is: events written to its rings, nobody reads.
#
# Inputs:  ROW; the events "bench"; OTHER.
# Outputs: none; SIGINT ends it and takes back what it set.
cd /sys/kernel/tracing || exit
row=$1
undo() {
    echo 0 >events/bench/enable
    echo nouserstacktrace >trace_options
    echo >set_event_pid
    echo 0 >events/bench/filter
    [ "$row" != count ] || for event in events/bench/*/; do
        echo '!hist:keys=common_pid' >"$event/trigger"
    done
    exit 0
}
trap undo INT

case $row in
count) for event in events/bench/*/; do echo hist:keys=common_pid >"$event/trigger"; done ;;
stack) echo userstacktrace >trace_options ;;
predicate) echo 'a == 1' >events/bench/filter ;;
filter) echo "$OTHER" >set_event_pid ;;
esac
[ "$row" = count ] || echo 1 >events/bench/enable
while :; do sleep 0.05; done
