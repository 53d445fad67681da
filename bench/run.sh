#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures nsprobe and its peers side by side in the peers' guest.
#
# Inputs:  CALLS and ROUNDS, ONLY_PEERS, ONLY_ROWS (environment); PARTS of it (by default all
#          but nanoseconds, which the host's clock counts); what `make payload` made. UPDATE=1
#          writes bench/RESULTS.md, too. SMOKE=1: quickly, to see that each cell can be
#          measured; fails when one cannot, and bench/absent.txt does not say why.
# Outputs: the tables on stdout; the guest's lines in build/bench/*.txt.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
# shellcheck source=bench/boot.sh
. bench/boot.sh
PARTS=${PARTS:-costs one many burst works crowds threads rows}
part() { case " $PARTS " in *" $1 "*) ;; *) return 1 ;; esac; }

# SystemTap's scripts of a part.
scripts() { # part name...
    wanted=$1
    shift
    ! part "$wanted" || bench/stap.sh "$peers" "$payload/bench" "$@"
}
scripts costs count record stack hist predicate filter
for what in one burst works; do scripts $what one; done
for what in many crowds; do scripts $what many_1 many_100 many_1000 many_10000; done

files='icount tcg one many burst work crowd threads rows'
# shellcheck disable=SC2086 # a list of words
forget $files

say "instructions (QEMU's -icount, one CPU)"
! part costs || guest icount icount costs
# Each in a guest of its own: a tool that does not end in time still holds its probes.
say "whole sessions, the readers' time, many probes"
for what in one many burst; do ! part $what || guest $what icount $what; done
! part works || guest work icount works
! part crowds || guest crowd icount crowds
say "many threads (two CPUs side by side)"
! part threads || guest threads tcg threads
# SystemTap and LTTng patch the kernel's text all the time, which TCG does not survive with
# a thread for each CPU.
! part nanoseconds || guest tcg turns costs

say "unwind rows (this host)"
! part rows || kept rows || {
    echo "$made"
    bench/rows.sh "$peers" && echo "done rows"
} | tee "$results/rows.txt" >&2

for file in $files; do
    [ -e "$results/$file.txt" ] || : >"$results/$file.txt"
done
table() {
    tabulate table "$results/icount.txt" "$results/tcg.txt"
    tabulate sessions "$results/one.txt" "$results/many.txt" "$results/burst.txt" "$results/work.txt" \
        "$results/crowd.txt" "$results/threads.txt" "$results/rows.txt"
}
table
finish
[ -z "${UPDATE:-}" ] || cat "$results/table.md" "$results/sessions.md" | sed "s|$PROJECT/||g" >bench/RESULTS.md
