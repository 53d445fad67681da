# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes bench/TASKS.md of what the guest's run printed.
#
# With median.awk. Input: the peers' versions, then what guest/tasks.sh had printed. Output:
# Markdown. Costs are medians of the rounds, less the same work without a tracer.

FILENAME ~ /versions/ { if ($1 ~ /^(linux-perf|lttng-)/) versions = versions ", " $1 " " $2; next }
{ sub(/\r$/, "") }
$1 == "failed" { $1 = ""; failures[++failed] = $0; next }
$3 == "kept" { if ($5) bytes[$1, $2] = sprintf("%.0f", $4 / $5); next }
$2 ~ /^dump-/ { dumped = substr($2, 6); add("dump", $4); dump_bytes = $5; next }
NF == 6 && $4 + 0 > 0 {
    add($1 SUBSEP $2, $4)
    if ($5 > 0) bytes[$1, $2] = sprintf("%.0f", $5)
    lost[$1, $2] += $6
}

function row(label, peer, what,    base, cost) {
    base = median("none" SUBSEP what)
    cost = median(peer SUBSEP what)
    if (cost == "" || base == "") return sprintf("| %s | — | — |", label)
    return sprintf("| %s | %.0f (%.0f–%.0f) | %s |", label, cost - base, low - base, high - base, \
        (peer, what) in bytes ? bytes[peer, what] : "—")
}

END {
    print "<!-- Written by UPDATE=1 make bench-tasks; bench/README.md says how to read it. -->"
    print "# What events of tasks cost\n"
    printf "Stock kernel %s, QEMU TCG with `-icount` (a nanosecond is an instruction), one CPU%s.\n\n", KVER, versions
    print "CPU time of all processes that take part, as their own accounts have it: what tracepoints"
    print "add to it. The tracers' own work in other processes is not in it.\n"
    printf "## A fork, program start and end (without a tracer: %.0f)\n\n", median("none" SUBSEP "lives")
    print "| tracer | more (least–most) | bytes an event |\n| --- | ---: | ---: |"
    print row("nsprobe, three events, in all namespaces", "nsprobe", "lives")
    print row("nsprobe, CPU times alone", "nsprobe-cpu", "lives")
    print row("perf record, three events", "perf", "lives")
    print row("LTTng, three events", "lttng", "lives")
    printf "\n## A context switch (without a tracer: %.0f)\n\n", median("none" SUBSEP "switches")
    print "| tracer | more (least–most) | bytes an event |\n| --- | ---: | ---: |"
    print row("nsprobe", "nsprobe", "switches")
    print row("nsprobe, CPU times alone", "nsprobe-cpu", "switches")
    print row("perf record", "perf", "switches")
    print row("LTTng", "lttng", "switches")
    printf "\n## A dump of %s threads\n\n%.1f ms (%.1f–%.1f), %.0f bytes a thread.\n", dumped, \
        median("dump") / 1e6, low / 1e6, high / 1e6, dump_bytes
    for (i = 1; i <= failed; i++) print (i == 1 ? "\nWhat did not work:\n\n" : "") "-" failures[i]
}
