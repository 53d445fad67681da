#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# A 32-bit program maps the file of a 64-bit one, and a probe in that file then makes the 64-bit
# program read something else: docs/upstream/first-mode.md.
#
# Inputs:  the offset in /payload/victims/reads_beside of its function.
# Outputs: "called 42", and, with the probe, "called" and what is read then.
set -eu
victims=/payload/victims tracing=/sys/kernel/tracing
mount -t tracefs tracefs $tracing 2>/dev/null || true
(sleep 1; echo 1; sleep 3; echo 1) | $victims/reads_beside &
reader=$!
sleep 1
sleep 5 | $victims/maps_in_32 $victims/reads_beside &
sleep 1
echo "p:faults/first $victims/reads_beside:$1" >$tracing/uprobe_events
echo 1 >$tracing/events/faults/first/enable
wait $reader
