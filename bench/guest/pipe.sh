#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The kernel's own tracer with a reader: its text, as it comes.
#
# Inputs:  ROW: record or stack; the events "bench".
# Outputs: the text; SIGINT ends it when all is printed, and takes back what it set.
cd /sys/kernel/tracing || exit
row=$1
undo() {
    echo 0 >events/bench/push/enable
    # What is in the pipe comes out before it waits again: the reader of this one's position
    # does not move any more.
    last=
    while at=$(grep pos: "/proc/$reader/fdinfo/1") && [ "$at" != "$last" ]; do
        last=$at
        sleep 0.2
    done
    kill "$reader"
    echo nouserstacktrace >trace_options
    echo nosym-userobj >trace_options
    exit 0
}
trap undo INT
echo >trace
[ "$row" != stack ] || { echo userstacktrace >trace_options; echo sym-userobj >trace_options; }
cat trace_pipe &
reader=$!
echo 1 >events/bench/push/enable
while :; do sleep 0.05; done
