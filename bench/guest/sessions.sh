# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh
# Whole sessions as a user has them: start, end, memory, many probes, bursts.
# Sourced by measure.sh.

# How many probes, for each of which there is a script in bench/stap.
COUNTS=${COUNTS:-1 100 1000 10000}
MANY_ROUNDS=${MANY_ROUNDS:-2}
BURST=${BURST:-350000}

one_probe() { # peer
    at=$UNDER:begins_with_push
    case $1 in
    nsprobe) echo "exec nsprobe trace $at" ;;
    nsprobe-exact) echo "exec nsprobe trace --exact $at" ;;
    bpftrace) printf '%s\n' "exec bpftrace -e 'uprobe:$at { printf(\"%d %d %llu %s\n\", pid, tid, nsecs, comm); }'" ;;
    bcc) bcc trace -t "$at" ;;
    perf) echo "perf probe -q -x $UNDER begins_with_push &&
        exec perf record -q -a -e 'probe_under:*' -o /tmp/perf.data" ;;
    systemtap) systemtap one ;;
    lttng) echo "FUNCTIONS=begins_with_push exec /payload/bench/lttng.sh record" ;;
    esac
}

# That many of the many functions.
many_pattern() { # count
    case $1 in
    1) echo many_10000 ;;
    100) echo 'many_100*' ;;
    1000) echo 'many_10*' ;;
    10000) echo 'many_1*' ;;
    esac
}

many_probes() { # peer count
    pattern=$(many_pattern "$2")
    case $1-$2 in
    nsprobe-exact-*) echo "exec nsprobe count --exact --max-probes 10000 '$UNDER:$pattern'" ;;
    nsprobe-*) echo "exec nsprobe count --max-probes 10000 '$UNDER:$pattern'" ;;
    bpftrace-*) echo "BPFTRACE_MAX_PROBES=20000 exec bpftrace -e 'uprobe:$UNDER:$pattern { @ = count(); }'" ;;
    bcc-1 | bcc-100 | bcc-1000) bcc funccount "'$UNDER:$pattern'" ;;
    perf-1 | perf-100 | perf-1000) echo "perf probe -q --max-probes=20000 -x $UNDER '$pattern' &&
        exec perf stat -a -e 'probe_under:*'" ;;
    systemtap-*) systemtap "many_$2" ;;
    esac
}

one() {
    for peer in $PEERS; do
        command=$(one_probe "$peer")
        [ -n "$command" ] || continue
        for _ in $(seq "$ROUNDS"); do
            measure one "$peer" - "$command"
            remove_events
        done
    done
}

# perf leaves its events there: a user takes them away.
many() {
    for count in $COUNTS; do
        for peer in $PEERS; do
            command=$(many_probes "$peer" "$count")
            [ -n "$command" ] || continue
            for _ in $(seq "$MANY_ROUNDS"); do
                rm -f /tmp/many.failed
                measure many "$peer" "$count" "$count" "$command" || : >/tmp/many.failed
                begun=$(date +%s%N)
                remove_events
                [ "$peer" != perf ] || [ -e /tmp/many.failed ] ||
                    echo "undefine perf $count $(($(date +%s%N) - begun))"
                # Another one would not go better.
                [ ! -e /tmp/many.failed ] || break
            done
        done
    done
}

# How many of a burst's records there are in the end, and what was said of the rest.
burst() {
    for peer in $PEERS; do
        command=$(one_probe "$peer")
        [ -n "$command" ] || continue
        for _ in $(seq "$MANY_ROUNDS"); do
            measure burst "$peer" - "$BURST" "$command" || break
            remove_events
            case $peer in
            perf) kept=$(perf script -i /tmp/perf.data 2>/dev/null | grep -c begins_with_push) ;;
            bpftrace) kept=$(grep -c ' under$' "$OUT") ;;
            *) kept=$(reported "$peer" record | cut -d' ' -f1) ;;
            esac
            said=$(grep -i -E 'lost|skipped|drop|discard|overrun|transport' "$OUT" | grep -v begins_with_push |
                tail -n 2 | tr '\n' ' ')
            [ "$peer" != perf ] ||
                said=$(perf report -i /tmp/perf.data --stats 2>/dev/null | grep -i lost | tr -s '\n ' ' ')
            [ "$peer" != lttng ] || said=$(grep -i discarded /tmp/lttng.said | tail -n 1)
            echo "kept $peer $kept ${said:-}"
        done
    done
}
