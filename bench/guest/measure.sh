#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# In the guest: what each tracer's rows cost. Lines as under.c prints them, and
# "failed VERB PEER ROW text" for what did not work.
#
# Inputs:  PEERS and ROWS to measure (environment; all by default);
#          WHAT: costs, one, many, burst, stack_costs, stack_bytes, stack_libraries.
# shellcheck source=bench/guest/commands.sh
. /payload/bench/commands.sh
PEERS=${ONLY_PEERS:-$PEERS}
ROWS=${ONLY_ROWS:-$ROWS}
PATH=/payload:$PATH
export OUT=/tmp/tool.out DEBUGINFOD_URLS=

prepare() {
    mkdir -p /bench && cp /payload/bench/under /payload/bench/stacks-* /bench/
    insmod /payload/nsprobe.ko && insmod /payload/bench/bare.ko || exit
    mount -t configfs none /sys/kernel/config 2>/dev/null
    sysctl -q kernel.perf_event_paranoid=-1 kernel.kptr_restrict=0
}

# Runs a subject; when that fails, says so with the tool's last words.
measure() { # verb peer row arguments...
    verb=$1 peer=$2 row=$3
    shift 3
    "${SUBJECT_PROGRAM:-$UNDER}" "$verb" "$peer" "$@" 2>/tmp/under.err && return
    words=$(grep -v '^[[:space:]]*$' "$OUT" | tail -n 2 | tr '\n' ' ' | cut -c1-200)
    echo "failed $verb $peer $row $(head -n 1 /tmp/under.err); $words"
}

costs() {
    for case in none bare bare-session; do measure cost $case $case $case "$case"; done
    define_events
    for peer in $PEERS; do
        for row in $ROWS; do
            command=$(command_of "$peer" "$row")
            [ -z "$command" ] || measure cost "$peer" "$row" "$row" "$command"
        done
    done
    remove_events
}

prepare

# shellcheck source=bench/guest/sessions.sh
. /payload/bench/sessions.sh
# shellcheck source=bench/guest/stacks.sh
. /payload/bench/stacks.sh
for what in ${WHAT:-costs}; do $what; done
