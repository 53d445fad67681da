#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures what whole stacks cost with nsprobe and its peers, in the peers' guest.
#
# Inputs:  CALLS and ROUNDS, ONLY_PEERS (environment); PARTS of it (all by default); what
#          `make payload` made. UPDATE=1 writes bench/STACKS.md, too. SMOKE=1: as in run.sh.
# Outputs: the tables on stdout; the guest's lines in build/bench/stack*.txt.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
# The session's table of stacks holds those of all rounds.
[ -n "${SMOKE:-}" ] || CALLS=${CALLS:-1000}
# shellcheck source=bench/boot.sh
. bench/boot.sh
bench/stap.sh "$peers" "$payload/bench" unwind

PARTS=${PARTS:-costs bytes libraries}
part() { case " $PARTS " in *" $1 "*) ;; *) return 1 ;; esac; }

forget stack-costs stack-bytes stack-libraries
say "instructions (QEMU's -icount, one CPU)"
! part costs || guest stack-costs icount stack_costs
say "bytes and events at full speed"
! part bytes || guest stack-bytes icount stack_bytes
say "a process with many libraries"
! part libraries || guest stack-libraries icount stack_libraries

for part in costs bytes libraries; do
    [ -e "$results/stack-$part.txt" ] || : >"$results/stack-$part.txt"
done
tabulate stacks "$results/stack-costs.txt" "$results/stack-bytes.txt" "$results/stack-libraries.txt"
finish
[ -z "${UPDATE:-}" ] || sed "s|$PROJECT/||g" "$results/stacks.md" >bench/STACKS.md
