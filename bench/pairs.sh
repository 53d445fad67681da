#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures what a pair of malloc and free costs under `nsprobe leak` and under bcc's memleak, in
# instructions (QEMU's -icount, one CPU), in one boot.
#
# Inputs:  ROUNDS, PAIRS (environment); what `make payload` made. UPDATE=1 writes
#          bench/PAIRS.md, too. SMOKE=1: as in run.sh.
# Outputs: the table on stdout; the guest's lines in build/bench/pairs.txt.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
# shellcheck source=bench/boot.sh
. bench/boot.sh
ACCEL=icount "$runner" --guest "$peers" --payload "$payload" --silence 1200 --timeout 3600 exec -- \
    env ROUNDS="$ROUNDS" PAIRS="${PAIRS:-3000}" /payload/bench/pairs.sh |
    tee "$results/pairs.txt" >&2
grep -q '^done pairs' "$results/pairs.txt" || die "the guest died: see $results/pairs.txt"
awk -v commit="$commit" '
    # What else the machine does comes on top.
    $1 == "pair" && (!($2 in least) || $3 < least[$2]) { least[$2] = $3 }
    function net(peer) { return least[peer] - least["none"] }
    END {
        print "<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->"
        print "# What a pair of malloc and free costs\n"
        printf "Made by `bench/pairs.sh` from commit %s: instructions beyond those of a pair without a\n", commit
        print "tracer, of blocks of 100 bytes that are freed at once; the least of all rounds.\n"
        print "| tracer | instructions | of memleak | of bare consumers at its breakpoints |"
        print "| --- | ---: | ---: | ---: |"
        n = split("nsprobe nsprobe-sample memleak bare", peers, " ")
        names = "nsprobe leak,nsprobe leak --sample 512K,bcc memleak,bare consumers"
        split(names, name, ",")
        for (i = 1; i <= n; i++)
            printf "| `%s` | %d | %.2f | %.2f |\n", name[i], net(peers[i]), net(peers[i]) / net("memleak"), net(peers[i]) / net("bare")
    }' "$results/pairs.txt" >"$results/pairs.md"
cat "$results/pairs.md"
[ -z "${UPDATE:-}" ] || cp "$results/pairs.md" bench/PAIRS.md
