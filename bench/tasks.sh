#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures what events of tasks cost with nsprobe and its peers, in the peers' guest: in
# instructions (QEMU's -icount, one CPU), all in one boot.
#
# Inputs:  LIVES, SWITCHES and ROUNDS (environment); what `make payload` made. UPDATE=1 writes
#          bench/TASKS.md, too. SMOKE=1: as in run.sh.
# Outputs: the table on stdout; the guest's lines in build/bench/tasks.txt.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
ROUNDS=${ROUNDS:-${SMOKE:-5}}
# shellcheck source=bench/boot.sh
. bench/boot.sh
[ -z "${SMOKE:-}" ] || LIVES=20 SWITCHES=200 TASKS_DUMPED=100
if ! kept tasks; then
    echo "$made" >"$results/tasks.txt"
    ACCEL=icount "$runner" --guest "$peers" --payload "$payload" exec -- \
        env LIVES="${LIVES:-300}" SWITCHES="${SWITCHES:-20000}" ROUNDS="$ROUNDS" \
        TASKS_DUMPED="${TASKS_DUMPED:-10000}" /payload/bench/tasks.sh | tee -a "$results/tasks.txt" >&2
fi
tabulate tasks "$results/tasks.txt"
finish
[ -z "${UPDATE:-}" ] || sed "s|$PROJECT/||g" "$results/tasks.md" >bench/TASKS.md
