# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh
# What is measured, ready to run in the peers' guest; sourced by run.sh, stacks.sh and tasks.sh,
# after scripts/lib.sh.
#
# Inputs:  CALLS and ROUNDS, ONLY_PEERS, ONLY_ROWS, SMOKE, UPDATE (environment); what
#          `make payload` made.
# Outputs: the function guest; the folders $peers, $payload and $results, with about.txt, which
#          says from which commit; KEEP=1 measures no boot again whose lines are there, from
#          the same commit with as many calls and rounds.
if [ -n "${UPDATE:-}" ] && [ -n "${SMOKE:-}${ONLY_PEERS:-}${ONLY_ROWS:-}${PARTS:-}" ]; then
    die "UPDATE=1 writes whole tables: not with SMOKE, ONLY_PEERS, ONLY_ROWS or PARTS"
fi
peers=$(scripts/peers.sh)
# What is measured is what users install.
payload=$(PROFILE=release scripts/payload.sh)
bench/build.sh "$payload/bench"

runner=build/cargo/x86_64-unknown-linux-gnu/debug/nsprobe-qemu-run
# Quick, in one round: whether every cell is there.
if [ -n "${SMOKE:-}" ]; then
    CALLS=${CALLS:-50} ROUNDS=${ROUNDS:-1}
    export COUNTS=1 MANY_ROUNDS=1 BURST=2000 WORK_CALLS=200 CROWD=100 STACK_BURST=500 LIBRARIES=20
fi
ROUNDS=${ROUNDS:-3}
NEED=2
[ "$ROUNDS" != 1 ] || NEED=1
results=$PROJECT/build/bench${SMOKE:+-smoke}
mkdir -p "$results"
cp "$peers/versions" "$results/versions.txt"

# The tables are no part of what is measured: those that an earlier step has written, or
# committed, make no other commit of it.
commit=$(git log -1 --format=%h -- . ':!bench/*.md' 2>/dev/null) || commit=unknown
git diff --quiet HEAD -- . ':!bench/*.md' 2>/dev/null || commit=$commit-dirty
[ -z "${UPDATE:-}" ] || [ -z "${KEEP:-}" ] || [ "${commit%-dirty}" = "$commit" ] ||
    die "KEEP=1 takes lines of the same commit: the tree has changes that are in none"
# The first line of what a boot has printed: its lines are kept only for the same.
made="made $commit ${CALLS:-3000} calls, $ROUNDS rounds${ONLY_PEERS:+, of $ONLY_PEERS}${ONLY_ROWS:+, of $ONLY_ROWS}"
cat >"$results/about.txt" <<END
commit $commit
date $(date -u +%Y-%m-%d)
kernel $(cat "$peers/kver")
calls ${CALLS:-3000}
rounds $ROUNDS
END

# Whether the results' NAME.txt has all lines of a boot that need not be measured again.
kept() { # name
    [ -n "${KEEP:-}" ] && [ "$(head -n 1 "$results/$1.txt" 2>/dev/null)" = "$made" ] &&
        grep -q '^done ' "$results/$1.txt"
}

# Whether there are lines of a boot that was to measure the same, and did not come to its end.
begun() { # name
    [ -n "${KEEP:-}" ] && [ "$(head -n 1 "$results/$1.txt" 2>/dev/null)" = "$made" ]
}

# Takes away the lines that are not kept.
forget() { # name...
    for name in "$@"; do begun "$name" || rm -f "$results/$name.txt"; done
}

# The cells PEER/ROW of costs that need not be measured again: those whose tool has told what it
# saw. Lines of others, which were cut off, are taken away, and those that each boot measures.
cells_of() { # name
    awk '$1 == "told" && NF == 5 { print $2 "/" $3 }' "$results/$1.txt" >"$results/told"
    awk 'FILENAME == ARGV[1] { told[$1]; next }
        $1 !~ /^(cost|stack|module|due|told)$/ || $2 "/" $3 in told { print }' \
        "$results/told" "$results/$1.txt" >"$results/whole"
    mv "$results/whole" "$results/$1.txt"
    tr '\n' ' ' <"$results/told"
    rm "$results/told"
}

# Runs a part of guest/measure.sh; its lines are kept in the results' NAME.txt. A guest that
# dies is booted once more: TCG does not always survive that the kernel patches its own text.
guest() { # name accelerator what
    name=$1 accel=$2 what=$3
    ! kept "$name" || return 0
    begun "$name" || echo "$made" >"$results/$name.txt"
    for boot in 1 2; do
        cells=
        # Instructions are the same in each boot.
        case $accel-$what in
        icount-*costs) cells=$(cells_of "$name") ;;
        *) echo "$made" >"$results/$name.txt" ;;
        esac
        ACCEL=$accel "$runner" --guest "$peers" --payload "$payload" --silence 1200 --timeout 7200 exec -- \
            env CALLS="${CALLS:-3000}" ROUNDS="$ROUNDS" ${ONLY_PEERS:+"ONLY_PEERS=$ONLY_PEERS"} \
            ${ONLY_ROWS:+"ONLY_ROWS=$ONLY_ROWS"} ${COUNTS:+"COUNTS=$COUNTS"} \
            ${MANY_ROUNDS:+"MANY_ROUNDS=$MANY_ROUNDS"} ${BURST:+"BURST=$BURST"} \
            ${WORK_CALLS:+"WORK_CALLS=$WORK_CALLS"} ${CROWD:+"CROWD=$CROWD"} \
            ${STACK_BURST:+"STACK_BURST=$STACK_BURST"} ${LIBRARIES:+"LIBRARIES=$LIBRARIES"} \
            CELLS="$cells" WHAT="$what" /payload/bench/measure.sh | tee -a "$results/$name.txt" >&2
        ! grep -q "^done $what" "$results/$name.txt" || return 0
        say "the guest died while it measured $what (boot $boot of 2)"
    done
}

# Makes a table, or a part of one, of the lines in files.
tabulate() { # program file...
    program=$1
    shift
    set -- "$PROJECT/bench/absent.txt" "$results/about.txt" "$results/versions.txt" "$@"
    awk -v NEED="$NEED" -v SMOKE="${SMOKE:-}" -v ONLY_PEERS="${ONLY_PEERS:-}" -v ONLY_ROWS="${ONLY_ROWS:-}" \
        -v COUNTS="${COUNTS:-1 100 1000 10000}" -v BURST="${BURST:-350000}" -v CROWD="${CROWD:-1000}" \
        -f "$PROJECT/bench/median.awk" -f "$PROJECT/bench/cells.awk" -f "$PROJECT/bench/$program.awk" "$@" \
        >"$results/$program.md" || broken=1
    sed "s|$PROJECT/||g" "$results/$program.md"
}
broken=

# The end of a run: a smoke run fails for each cell that is neither there nor known to be
# impossible.
finish() { [ -z "$broken" ] || die "cells are missing: see above, and the lines in $results"; }
