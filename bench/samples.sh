#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures what a sample of the CPU costs with nsprobe and with perf, in instructions (QEMU's
# -icount, one CPU), in one boot: how much longer as many instructions of a program take, for
# each sample. The readers' work is in it.
#
# Inputs:  ROUNDS, MILLIONS (environment); what `make payload` made. UPDATE=1 writes
#          bench/SAMPLES.md, too. SMOKE=1: as in run.sh.
# Outputs: the table on stdout; the guest's lines in build/bench/samples.txt.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
ROUNDS=${ROUNDS:-${SMOKE:-5}}
# shellcheck source=bench/boot.sh
. bench/boot.sh
ACCEL=icount "$runner" --guest "$peers" --payload "$payload" --silence 1200 --timeout 3600 exec -- \
    env ROUNDS="$ROUNDS" MILLIONS="${MILLIONS:-1000}" /payload/bench/samples.sh |
    tee "$results/samples.txt" >&2
grep -q '^done samples' "$results/samples.txt" || die "the guest died: see $results/samples.txt"
awk -v commit="$commit" '
    # What else the machine does comes on top.
    function least(peer, i, found) {
        for (i = 1; i <= count[peer]; i++)
            if (!found || took[peer, i] < found) found = took[peer, i]
        return found
    }
    $1 == "sample" { took[$2, ++count[$2]] = $4; hz = $3 }
    $1 == "stack" { depth[$2] = $3 }
    END {
        print "<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->"
        print "# What a sample of the CPU costs\n"
        printf "Made by `bench/samples.sh` from commit %s. Instructions a sample at %d Hz, reader and all, of a\n", commit, hz
        print "program that is 12 calls deep and keeps frame pointers; the least of all rounds.\n"
        print "| tracer | instructions a sample | frames of the deepest stack |"
        print "| --- | ---: | ---: |"
        bare = least("none")
        n = split("nsprobe perf perf-g perf-dwarf", peers, " ")
        for (i = 1; i <= n; i++) {
            all = least(peers[i])
            printf "| %s | %d | %s |\n", peers[i], (all - bare) / (hz * all / 1e9), (peers[i] in depth) ? depth[peers[i]] : "—"
        }
    }' "$results/samples.txt" >"$results/samples.md"
cat "$results/samples.md"
[ -z "${UPDATE:-}" ] || cp "$results/samples.md" bench/SAMPLES.md
