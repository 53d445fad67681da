#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures nsprobe and its peers side by side in the peers' guest.
#
# Inputs:  CALLS and ROUNDS, ONLY_PEERS, ONLY_ROWS (environment); what
#          `make payload` made. UPDATE=1 writes bench/RESULTS.md, too.
# Outputs: the tables on stdout; the guest's lines in build/bench/*.txt.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
# shellcheck source=bench/boot.sh
. bench/boot.sh
bench/stap.sh "$peers" "$payload/bench"

say "instructions (QEMU's -icount, one CPU)"
guest icount icount costs
say "nanoseconds, and whole sessions (two CPUs)"
# SystemTap and LTTng patch the kernel's text all the time, which TCG does not survive with
# a thread for each CPU.
guest tcg turns costs
# Each in a guest of its own: a tool that does not end in time still holds its probes.
sessions='one many burst'
for what in $sessions; do guest "$what" turns "$what"; done

say "unwind rows (this host)"
bench/rows.sh "$peers" | tee "$results/rows.txt" >&2

table() {
    (cd "$results" && awk -v KVER="$KVER" -f "$PROJECT/bench/median.awk" -f "$PROJECT/bench/table.awk" \
        versions.txt icount.txt tcg.txt one.txt many.txt burst.txt rows.txt) | sed "s|$PROJECT/||g"
}
table
[ -z "${UPDATE:-}" ] || table >bench/RESULTS.md
