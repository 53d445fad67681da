#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures what whole stacks cost with nsprobe and its peers, in the peers' guest.
#
# Inputs:  CALLS and ROUNDS, ONLY_PEERS (environment); what `make payload` made.
#          UPDATE=1 writes bench/STACKS.md, too.
# Outputs: the tables on stdout; the guest's lines in build/bench/stack*.txt.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
# The session's table of stacks holds those of all rounds.
CALLS=${CALLS:-1000}
# shellcheck source=bench/boot.sh
. bench/boot.sh

say "instructions (QEMU's -icount, one CPU)"
guest stack-costs icount stack_costs
# As in run.sh: the CPUs take turns.
say "bytes and events at full speed (two CPUs)"
guest stack-bytes turns stack_bytes
say "a process with many libraries (two CPUs)"
guest stack-libraries turns stack_libraries

table() {
    (cd "$results" && awk -v KVER="$KVER" -f "$PROJECT/bench/median.awk" -f "$PROJECT/bench/stacks.awk" \
        versions.txt stack-costs.txt stack-bytes.txt stack-libraries.txt) | sed "s|$PROJECT/||g"
}
table
[ -z "${UPDATE:-}" ] || table >bench/STACKS.md
