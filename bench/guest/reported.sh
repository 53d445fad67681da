# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh
# How many events a tool reported in the end, and how many it said that it lost; sourced by
# measure.sh. A figure of a tool that reported fewer than there were is not one of its row.

# Prints "EVENTS LOST"; LOST is 0 also where the tool does not say. ROW is that of the table
# of costs, or "work".
reported() { # peer row
    events=0 lost=0
    case $1-$2 in
    nsprobe*-count | nsprobe*-filter | nsprobe*-predicate | nsprobe*-container) events=$(of_sentence counted) ;;
    nsprobe*-hist) events=$(sed -n 's/^.*: \([0-9]*\) calls, mean .*/\1/p' "$OUT" | sum) ;;
    nsprobe*) events=$(grep -c ':begins_with_[a-z0-9]*$' "$OUT") ;;
    bpftrace-count | bpftrace-filter | bpftrace-predicate | bpftrace-container) events=$(sed -n 's/^@: //p' "$OUT" | sum) ;;
    bpftrace-hist) events=$(sed -n 's/^\[.*)[[:space:]]*\([0-9][0-9]*\) |.*/\1/p' "$OUT" | sum) ;;
    bpftrace-*) events=$(grep -c 'under *$' "$OUT") ;;
    bcc-count | bcc-filter) events=$(sed -n 's/.*begins_with_[a-z0-9]*[^0-9]*[[:space:]]\([0-9][0-9]*\)$/\1/p' "$OUT" | sum) ;;
    bcc-hist) events=$(sed -n 's/.* -> [0-9]* *: *\([0-9][0-9]*\) .*/\1/p' "$OUT" | sum) ;;
    bcc-stack) events=$(grep -x '[[:space:]]*[0-9][0-9]*' "$OUT" | sum) ;;
    bcc-*) events=$(grep -c 'begins_with_[a-z0-9]* *$' "$OUT") ;;
    perf-count | perf-filter | perf-predicate)
        events=$(awk '$2 ~ /^bench:/ { gsub(",", "", $1); print $1 }' "$OUT" | sum)
        ;;
    perf-*)
        perf report -i /tmp/perf.data --stats >/tmp/perf.stats 2>/dev/null
        events=$(awk '/SAMPLE events:/ { print $3; exit }' /tmp/perf.stats)
        lost=$(awk '/LOST_SAMPLES events:/ { n = $3 } END { print n + 0 }' /tmp/perf.stats)
        ;;
    tracefs-*) events=$(sed -n 's/^reported //p' "$OUT") ;;
    systemtap-record | systemtap-stack) events=$(grep -c '^[0-9][0-9]* [0-9][0-9]* [0-9][0-9]* under' "$OUT") ;;
    systemtap-*) events=$(grep -x '[0-9][0-9]*' "$OUT" | tail -n 1) ;;
    lttng-*)
        babeltrace2 /tmp/lttng >/tmp/lttng.text 2>/tmp/lttng.said
        events=$(grep -c begins_with_ /tmp/lttng.text)
        lost=$(sed -n 's/.*discarded \([0-9]*\) event.*/\1/p' /tmp/lttng.said | sum)
        ;;
    esac
    case $1 in
    nsprobe*) lost=$(of_sentence 'lost (ring full)') ;;
    bpftrace) lost=$(sed -n 's/.*Total lost event count: //p' "$OUT" | sum) ;;
    bcc) lost=$(sed -n 's/.*[Ll]ost \([0-9]*\) samples.*/\1/p' "$OUT" | sum) ;;
    systemtap) lost=$(sed -n 's/.*There were \([0-9]*\) transport failures.*/\1/p; s/.*skipped probes: \([0-9]*\).*/\1/p' "$OUT" | sum) ;;
    esac
    echo "${events:-0} ${lost:-0}"
}

sum() { awk '{ n += $1 } END { printf "%d\n", n }'; }

# A number of the sentence that nsprobe ends with, about all probes together.
of_sentence() { # what
    grep -m 1 ' hits = ' "$OUT" | tr '+=' '\n' | sed -n "s/^ *\([0-9]*\) $1.*/\1/p" | sum
}
