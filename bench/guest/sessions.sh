# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh
# Whole sessions as a user has them: start, end, memory, many probes, bursts.
# Sourced by measure.sh.

one_probe() { # peer
    at=$UNDER:begins_with_push
    case $1 in
    nsprobe) echo "exec nsprobe trace $at" ;;
    bpftrace) printf '%s\n' "exec bpftrace -e 'uprobe:$at { printf(\"%d %d %llu %s\n\", pid, tid, nsecs, comm); }'" ;;
    bcc) echo "exec trace-bpfcc -t $at" ;;
    perf) echo "perf probe -q -x $UNDER begins_with_push &&
        exec perf record -q -a -e 'probe_under:*' -o /tmp/perf.data" ;;
    systemtap) [ ! -e /payload/bench/bench_one.ko ] || echo "exec staprun /payload/bench/bench_one.ko" ;;
    lttng) echo "FUNCTIONS=begins_with_push exec /payload/bench/lttng.sh record" ;;
    esac
}

many_probes() { # peer count
    case $2 in
    1) pattern=many_10000 ;;
    100) pattern='many_100*' ;;
    1000) pattern='many_10*' ;;
    10000) pattern='many_1*' ;;
    esac
    case $1-$2 in
    nsprobe-*) echo "exec nsprobe count --max-probes 10000 '$UNDER:$pattern'" ;;
    bpftrace-*) echo "BPFTRACE_MAX_PROBES=20000 exec bpftrace -e 'uprobe:$UNDER:$pattern { @ = count(); }'" ;;
    bcc-1 | bcc-100 | bcc-1000) echo "exec funccount-bpfcc '$UNDER:$pattern'" ;;
    perf-1 | perf-100 | perf-1000) echo "perf probe -q --max-probes=20000 -x $UNDER '$pattern' &&
        exec perf stat -a -e 'probe_under:*'" ;;
    systemtap-*) [ ! -e "/payload/bench/bench_many_$2.ko" ] ||
        echo "exec staprun /payload/bench/bench_many_$2.ko" ;;
    esac
}

# After perf, its events are still there.
forget_events() {
    [ ! -s "$TRACEFS/uprobe_events" ] || echo >"$TRACEFS/uprobe_events"
}

one() {
    for peer in $PEERS; do
        for round in 1 2 3; do
            command=$(one_probe "$peer")
            [ -z "$command" ] || measure one "$peer" "one-$round" "$command"
            forget_events
        done
    done
}

many() {
    for count in 1 100 1000 10000; do
        for peer in $PEERS; do
            command=$(many_probes "$peer" "$count")
            [ -z "$command" ] || measure many "$peer" "$count" "$count" "$command"
            begun=$(date +%s%N)
            forget_events
            [ "$peer" != perf ] ||
                echo "undefine perf $count $(($(date +%s%N) - begun))"
        done
    done
}

# How many of a burst's records there are in the end, and what was said of the rest.
burst() {
    for peer in $PEERS; do
        command=$(one_probe "$peer")
        [ -n "$command" ] || continue
        measure burst "$peer" 350000 350000 "$command"
        forget_events
        case $peer in
        perf) kept=$(perf script -i /tmp/perf.data 2>/dev/null | grep -c begins_with_push) ;;
        lttng) kept=$(babeltrace2 /tmp/lttng 2>/dev/null | grep -c begins_with_push) ;;
        nsprobe*) kept=$(grep -c ' under:begins_with_push$' "$OUT") ;;
        systemtap) kept=$(grep -c under "$OUT") ;;
        bpftrace) kept=$(grep -c ' under$' "$OUT") ;;
        *) kept=$(grep -c begins_with_push "$OUT") ;;
        esac
        said=$(grep -i -E 'lost|skipped|drop|discard|overrun|transport' "$OUT" | grep -v begins_with_push |
            tail -n 2 | tr '\n' ' ')
        [ "$peer" != perf ] ||
            said=$(perf report -i /tmp/perf.data --stats 2>/dev/null | grep -i lost | tr -s '\n ' ' ')
        echo "kept $peer $kept ${said:-}"
    done
}
