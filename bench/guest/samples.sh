#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# In the guest: what a sample of the CPU costs, with nsprobe and with perf, their readers' work
# included. Lines "sample PEER HZ ROUND-NANOSECONDS", and "stack PEER DEPTH" of what they saw.
#
# Inputs:  ROUNDS, MILLIONS (environment).
HZ=4999
PATH=/payload:$PATH
export HOME=/root NSPROBE_CACHE=/tmp/rows
mkdir -p "$NSPROBE_CACHE"
insmod /payload/nsprobe.ko || exit
# The module does not probe or name files of 9p.
mkdir -p /bench && cp /payload/bench/samples-fp /bench/ || exit
sysctl -q kernel.perf_event_paranoid=-1 kernel.perf_event_max_sample_rate=100000
mkfifo /tmp/go

# Ends when the program does.
command_of() { # peer pid
    case $1 in
    none) ;;
    nsprobe) echo "exec nsprobe profile -p $2 -F $HZ --stacks --top 1" ;;
    perf) echo "exec perf record -q -e cpu-clock -F $HZ -p $2 -o /tmp/perf.data" ;;
    perf-g) echo "exec perf record -q -g -e cpu-clock -F $HZ -p $2 -o /tmp/perf.data" ;;
    perf-dwarf) echo "exec perf record -q --call-graph dwarf -e cpu-clock -F $HZ -p $2 -o /tmp/perf.data" ;;
    esac
}

for peer in none nsprobe perf perf-g perf-dwarf none; do
    /bench/samples-fp "$ROUNDS" "$MILLIONS" </tmp/go >/tmp/rounds &
    program=$!
    exec 3>/tmp/go
    command=$(command_of "$peer" "$program")
    tracer=
    if [ -n "$command" ]; then
        sh -c "$command" >/tmp/told 2>&1 &
        tracer=$!
        # Longer than it takes to attach: what it does then is not measured.
        sleep 20
    fi
    echo >&3
    exec 3>&-
    wait "$program"
    [ -z "$tracer" ] || wait "$tracer"
    sed -n "s/^round /sample $peer $HZ /p" /tmp/rounds
    case $peer in
    nsprobe) echo "stack $peer $(grep -c '^  #' /tmp/told)" ;;
    perf-*) echo "stack $peer $(perf script -i /tmp/perf.data -F ip 2>/dev/null | awk 'NF { n++ } !NF { if (n > most) most = n; n = 0 } END { print most + 0 }')" ;;
    esac
done
rmmod nsprobe
echo "done samples"
