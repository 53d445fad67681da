# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes bench/TASKS.md of what the guest's run printed.
#
# With median.awk and cells.awk. Input: theirs, then what guest/tasks.sh had printed. Output:
# Markdown. Costs are medians of the rounds, less the same work without a tracer.

$1 == "task" {
    add($2 SUBSEP $3, $4)
    if ($5 > 0) bytes[$2, $3] = $5
    if ($2 ~ /^module/) lost_of["tasks" SUBSEP $2 SUBSEP $3] += $6
}
$1 == "bytes" { bytes[$2, $3] = $4 }
$1 == "tool" { own[$2, $3] = $4 * 1e3 / $6; ending[$2, $3] = $5 / 1e3 }
$1 == "dump" { dumped = $2; add("dump", $3); dump_bytes = $4 }

# Two sets of rounds of which neither is above the other tell nothing apart.
function task_row(label, peer, what,    base, least, most, cost, text) {
    base = figure("none" SUBSEP what); least = low; most = high
    cost = figure(peer SUBSEP what)
    if (cost == "" || base == "") {
        print "| " label " | " missing("tasks", "tasks", "task", peer, what) " |"
        return
    }
    text = sprintf("%.0f (%.0f–%.0f)", cost - base, low - base, high - base)
    if (low <= most) text = text ", not told from nothing"
    begin_row(); note(peer SUBSEP what)
    printf "| %s | %s | %.2f | %d | %s | %s | %s | %s |\n", label, struck(text, is_short("tasks", peer, what)), widest, count[peer SUBSEP what],
        (peer, what) in bytes ? sprintf("%.0f", bytes[peer, what]) : "—",
        (peer, what) in own ? sprintf("%.0f", own[peer, what]) : "—",
        (peer, what) in own ? sprintf("%.1f", ending[peer, what]) : "—",
        peer ~ /^module/ ? thousands(lost_of["tasks" SUBSEP peer SUBSEP what]) : verdict("tasks", "tasks", peer, what)
}

function task_table(title, what, unit,    base) {
    base = figure("none" SUBSEP what)
    printf "\n## %s (without a tracer: %.0f, %.0f–%.0f)\n\n", title, base, low, high
    print "| tracer | more (least–most) | spread, % of the whole | rounds | bytes an event | in the tracer's own processes, for each | at its end, ms in all | lost |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    task_row("nsprobe record" unit, "nsprobe", what)
    task_row("nsprobe top --batch (CPU times)", "nsprobe-top", what)
    task_row("nsprobe's module alone, nothing reads", "module", what)
    task_row("nsprobe's module alone, CPU times", "module-cpu", what)
    task_row("perf record -a, with its own records of mappings and names", "perf", what)
    task_row("LTTng", "lttng", what)
}

function more(peer, what,    value) {
    value = figure(peer SUBSEP what)
    if (value == "" || is_short("tasks", peer, what)) return ""
    return value - figure("none" SUBSEP what)
}

function goals(what, title,    ours, perf, lttng, best, name) {
    ours = more("nsprobe", what); perf = more("perf", what); lttng = more("lttng", what)
    if (ours == "") return
    best = perf; name = "perf"
    if (best == "" || (lttng != "" && lttng < best)) { best = lttng; name = "LTTng" }
    if (best != "") goal(sprintf("%s, at most the best peer's (%s, %.0f): %.0f", title, name, best, ours), ours <= best)
    if (perf != "") goal(sprintf("%s, at most half of perf's (%.0f): %.0f", title, perf, ours), ours <= perf / 2)
}

END {
    head("What events of tasks cost", "make bench-tasks")
    print "\nWith `-icount` (a nanosecond is an instruction), one CPU. More: CPU time of all processes that take"
    print "part, as their own accounts have it: what tracepoints and waking a reader add to it. Every tracer's"
    print "reader is at work beside, on the same CPU; what its processes take meanwhile, and when they end, are"
    print "columns of their own."
    task_table("A fork, program start and end", "lives", ": lives, names and moves of tasks")
    task_table("A context switch", "switches", " --switches: these beside lives, names and moves")
    value = figure("dump")
    printf "\n## A dump of %s threads\n\n", thousands(dumped)
    if (value == "") print "not measured: there are fewer than " need() " good rounds"
    else printf "%s ms, %d rounds, %.0f bytes a thread.\n", with_ends("dump", "%.1f", 1e-6), count["dump"], dump_bytes
    print "\nThe goals:\n"
    goals("lives", "a fork, program start and end"); goals("switches", "a context switch")
    if (value != "") goal(sprintf("a dump of 10,000 threads in under 100 ms: %.1f", value / 1e6), value < 1e8 && dumped >= 10000)
    leave()
}
