# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh
# What stacks cost: instructions a hit, bytes an event, memory of unwind rows. Sourced by
# measure.sh. Lines as stacks.c prints them; those of cost.c begin with "module BUILD".

STACKS=/bench/stacks
# By frame pointers, and by what .eh_frame says: the subject's builds.
STACK_ROWS='fp rows'
STACK_PEERS='nsprobe bpftrace bpftrace-build-id perf tracefs systemtap lttng bcc'
BYTES_PEERS='nsprobe bpftrace perf'
STACK_BURST=${STACK_BURST:-35700}
LIBRARIES=${LIBRARIES:-200}

# Prints the shell command of PEER for the subject's build ROW; nothing when it has none.
stack_command() { # peer row
    at="$STACKS-$2:deep_probed"
    case $1-$2 in
    nsprobe-fp) echo "exec nsprobe trace --stack --frame-pointers '$at'" ;;
    nsprobe-rows) echo "exec nsprobe trace --stack '$at'" ;;
    bpftrace-fp) bpftrace_stack 'ustack(raw)' "$at" ;;
    bpftrace-build-id-fp) bpftrace_stack 'ustack(build_id)' "$at" ;;
    bpftrace-rows) bpftrace_stack 'dw_ustack(raw)' "$at" "--dwarf-pid \$SUBJECT" \
        'config = { unstable_dw_ustack=enable }' ;;
    bcc-fp) bcc stackcount -U "'$at'" ;;
    systemtap-rows) systemtap unwind ;;
    lttng-fp) echo "BINARY=$STACKS-fp FUNCTIONS=deep_probed exec /payload/bench/lttng.sh stack" ;;
    perf-fp) echo "exec perf record -q -a -g --user-callchains -e 'bench:deep_$2' -o /tmp/perf.data" ;;
    perf-rows) echo "exec perf record -q -a --call-graph dwarf -e 'bench:deep_$2' -o /tmp/perf.data" ;;
    tracefs-fp) echo "exec /payload/bench/tracefs.sh stack" ;;
    esac
}

bpftrace_stack() { # function place options config
    printf '%s\n' "exec bpftrace $3 -e '$4 uprobe:$2 { printf(\"hit %s\n\", $1); }'"
}

define_deep_event() { # row
    offset=$(nm "$STACKS-$1" | awk '$3 == "deep_probed" { print $1 }')
    echo "p:bench/deep_$1 $STACKS-$1:0x$offset" >"$TRACEFS/uprobe_events"
}

# A peer that was not asked for by ONLY_PEERS is left out.
wanted() { # peer
    case " ${ONLY_PEERS:-$1} " in *" $1 "*) ;; *) return 1 ;; esac
}

stack_costs() {
    for row in $STACK_ROWS; do
        SUBJECT_PROGRAM=$STACKS-$row
        for case in none bare; do measure cost $case "$row" "$row" "$case"; done
        table=
        [ "$row" != rows ] || table=/payload/bench/cost-rows.table
        /bench/cost-"$row" "$CALLS" "$ROUNDS" stacks ${table:+"$table"} | sed "s/^/module $row /"
        define_deep_event "$row"
        for peer in $STACK_PEERS; do
            command=$(wanted "$peer" && stack_command "$peer" "$row")
            [ -n "$command" ] || continue
            ! is_measured "$peer" "$row" || continue
            measure cost "$peer" "$row" "$row" "$command" &&
                echo "told $peer $row $(stacks_reported "$peer")"
        done
        remove_events
    done
}

# As in reported.sh, of the one function that is probed here.
stacks_reported() { # peer
    case $1 in
    nsprobe) echo "$(grep -c ':deep_probed$' "$OUT") $(of_sentence 'lost (ring full)')" ;;
    bpftrace*) echo "$(grep -c '^hit' "$OUT") $(reported bpftrace stack | cut -d' ' -f2)" ;;
    systemtap) echo "$(grep -c '^hit' "$OUT") $(reported systemtap stack | cut -d' ' -f2)" ;;
    lttng)
        reported lttng stack >/tmp/lttng.reported
        echo "$(grep -c deep_probed /tmp/lttng.text) $(cut -d' ' -f2 /tmp/lttng.reported)"
        ;;
    *) reported "$1" stack ;;
    esac
}

# Calls at full speed through stacks of 17 frames: what they filled, and what is left.
stack_bytes() {
    for row in $STACK_ROWS; do
        SUBJECT_PROGRAM=$STACKS-$row
        define_deep_event "$row"
        for peer in $BYTES_PEERS; do
            command=$(wanted "$peer" && stack_command "$peer" "$row")
            [ -n "$command" ] || continue
            for order in same new; do
                for _ in $(seq "$MANY_ROUNDS"); do
                    measure bytes "$peer" "$row" "$row" "$order" "$STACK_BURST" "$command" &&
                        stack_kept "$peer" "$row" "$order"
                done
            done
        done
        remove_events
    done
}

# How many events of a burst there are in the end, how many with a whole stack; the bytes
# of perf's file; how many found no room in BPF's buffer; what was said of the rest.
stack_kept() { # peer row order
    file=0 whole=- lost=0
    case $1 in
    nsprobe)
        kept=$(grep -c ":deep_probed$" "$OUT")
        whole=$(grep -c '^  #16 deep_outermost' "$OUT")
        ;;
    bpftrace)
        kept=$(grep -c '^hit' "$OUT")
        lost=$(sed -n 's/.*Total lost event count: //p' "$OUT")
        whole=$(awk '/^hit/ { whole += frames == 17; frames = 0 } /^[[:space:]]*(0x)?[0-9a-f]/ { frames++ }
            END { print whole + (frames == 17) }' "$OUT")
        ;;
    perf)
        kept=$(perf report -i /tmp/perf.data --stats 2>/dev/null | awk '/SAMPLE events/ { print $3; exit }')
        file=$(stat -c %s /tmp/perf.data)
        ;;
    esac
    said=$(grep -i -E 'lost|skipped|drop|hits =|cut' "$OUT" | tail -n 3 | tr '\n' ' ')
    [ "$1" != perf ] ||
        said=$(perf report -i /tmp/perf.data --stats 2>/dev/null | grep LOST_SAMPLES | tail -n 1 | tr -s ' ')
    echo "held $1 $2 $3 ${kept:-0} $whole $file ${lost:-0} ${said:-}"
}

# The start of a trace of a process with many libraries, without and with what the cache
# of unwind rows can give. The first run is for the page cache.
stack_libraries() {
    wanted nsprobe || return
    export SUBJECT_PROGRAM="$STACKS-rows" NSPROBE_CACHE=/tmp/rows
    round=0
    while [ "$round" -le "$ROUNDS" ]; do
        rm -rf "$NSPROBE_CACHE"
        for cache in empty filled; do
            [ "$round" -gt 0 ] || cache=first
            measure libraries "$cache" "$cache" "$LIBRARIES" \
                "exec nsprobe trace -v --stack -p \$SUBJECT '$STACKS-rows:deep_probed'"
            sed -n "s/.*unwind rows of/rows $cache/p" "$OUT"
            [ "$round" -gt 0 ] || break
        done
        round=$((round + 1))
    done
}
