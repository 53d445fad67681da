# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes the second part of bench/RESULTS.md: whole sessions, the readers' own time, many
# threads and many probes, unwind rows of files.
#
# With median.awk and cells.awk. Variables: COUNTS: numbers of probes; BURST; CROWD. Output:
# Markdown.

$1 == "one" { add("attach" SUBSEP $2, $3); add("session" SUBSEP $2, $4); add("peak" SUBSEP $2, $5 / 1024) }
$1 == "many" {
    key = $2 SUBSEP $3
    add("many-attach" SUBSEP key, $4); add("many-detach" SUBSEP key, $6)
    if ($8) killed[key] = 1
}
# perf's events are still there when it has ended: it is asked to remove them, too.
$1 == "undefine" { key = "many-detach" SUBSEP $2 SUBSEP $3; samples[key, count[key]] += $4 / 1e9 }
$1 == "kept" {
    add("kept" SUBSEP $2, $3)
    peer = $2; $1 = $2 = $3 = ""; sub(/^ +/, ""); gsub(/[`|]/, "'")
    said[peer] = $0
}
$1 == "work" {
    key = $2 SUBSEP $3
    add("work-thread" SUBSEP key, $5 * 1e6 / $4)
    add("work-tool" SUBSEP key, $6 * 1e6 / $4)
    add("work-rest" SUBSEP key, ($7 - $5 - $6) * 1e6 / $4)
    add("work-all" SUBSEP key, $7 * 1e6 / $4)
    add("work-start" SUBSEP key, $8)
}
$1 == "crowd" { add("crowd" SUBSEP $2 SUBSEP $3, $4) }
$1 == "threads" { add("threads" SUBSEP $2 SUBSEP $3 SUBSEP $4, $5); add("clock" SUBSEP $2 SUBSEP $3 SUBSEP $4, $6) }
$1 == "rows" { row_lines[++files] = sprintf("| %s | %.1f | %.2f | %.2f | %.1f | %.1f |", $2, $3 / 1e6, $4 / 1e6, $5 / 1e6, $6, $7) }

function one_probe(    p, name) {
    print "\n## A session of one probe (`-icount`, one CPU)\n"
    print "Seconds of the guest, in which the CPU gets through 10^9 instructions and waits where a tracer"
    print "waits: the median (least–greatest).\n"
    print "| tracer | attached after, s | start to end, s | peak, MB | rounds |\n| --- | ---: | ---: | ---: | ---: |"
    for (p = 1; p <= peers; p++) {
        name = peer_names[p]
        if (figure("session" SUBSEP name) == "") {
            print "| " name " | " missing("one", "one", "one", name, "-") " |"
            continue
        }
        present("one", name, "-")
        printf "| %s | %s | %s | %s | %d |\n", name, with_ends("attach" SUBSEP name, "%.2f"),
            with_ends("session" SUBSEP name, "%.2f"), with_ends("peak" SUBSEP name, "%.1f"), count["session" SUBSEP name]
    }
}

function many_probes(    p, c, name, key) {
    print "\n## Many probes (`-icount`, one CPU)\n"
    print "From a tracer's start until all breakpoints are in; from SIGINT to its end (perf: and until its"
    print "events are gone). A tracer that has not ended 120 s after its SIGINT is killed.\n"
    print "| probes | tracer | attach, s | detach, s | rounds |\n| ---: | --- | ---: | ---: | ---: |"
    for (c = 1; c <= counts; c++)
        for (p = 1; p <= peers; p++) {
            name = peer_names[p]
            if (name == "tracefs") continue
            key = name SUBSEP number_of[c]
            if (figure("many-attach" SUBSEP key) == "") {
                print "| " number_of[c] " | " name " | " missing("many", "many", "many", name, number_of[c]) " |"
                continue
            }
            present("many", name, number_of[c])
            printf "| %d | %s | %s | %s | %d |\n", number_of[c], name, with_ends("many-attach" SUBSEP key, "%.2f"),
                (key in killed ? "killed" : with_ends("many-detach" SUBSEP key, "%.2f")), count["many-attach" SUBSEP key]
        }
}

function bursts(    p, name) {
    print "\n## " thousands(BURST) " calls back to back, default buffers (`-icount`, one CPU)\n"
    print "The reader gets the CPU only when the calling thread is off it.\n"
    print "| tracer | records kept | rounds | what was said of the rest, last round |\n| --- | ---: | ---: | --- |"
    for (p = 1; p <= peers; p++) {
        name = peer_names[p]
        if (figure("kept" SUBSEP name) == "") {
            print "| " name " | " missing("burst", "burst", "burst", name, "-") " |"
            continue
        }
        present("burst", name, "-")
        printf "| %s | %s | %d | %s |\n", name, with_ends("kept" SUBSEP name, "%d"), count["kept" SUBSEP name],
            (said[name] != "" ? "`" said[name] "`" : "nothing")
    }
}

function works(    r, w, name, key, told_as) {
    print "\n## CPU time of all, for a million records (`-icount`, one CPU)\n"
    print "Seconds of 10^9 instructions. Of the traced thread; of the tracer's processes with all that they start, from when it has attached"
    print "until it has ended and the text is there; of all other tasks, most of them the kernel's threads (the"
    print "rest of the machine's time; another clock counts it, so it may be a little below zero). Paced, so that nothing is lost. Start: its processes until it has attached, in seconds a session.\n"
    print "| row | tracer | thread, s | tracer's processes, s | rest, s | all, s | spread of all, % | rounds | start, s | lost |"
    print "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    work_row("", "none", "record", "no tracer")
    for (r = 1; r <= 2; r++)
        for (w = 1; w <= workers; w++) work_row(work_rows[r], worker_names[w], work_rows[r], worker_labels[w])
}

function work_row(title, name, row, label,    key, told_as, is_struck) {
    key = name SUBSEP row; told_as = "work-" row
    if (figure("work-all" SUBSEP key) == "") {
        print "| " title " | " label " | " missing("work", "work", "work", name, row, asked_of[name]) " |"
        return
    }
    is_struck = is_short("work", name, told_as)
    begin_row(); note("work-all" SUBSEP key)
    printf "| %s | %s | %s | %s | %s | %s | %.1f | %d | %s | %s |\n", title, label,
        struck(sprintf("%.2f", figure("work-thread" SUBSEP key)), is_struck), struck(sprintf("%.2f", figure("work-tool" SUBSEP key)), is_struck),
        struck(sprintf("%.2f", figure("work-rest" SUBSEP key)), is_struck), struck(sprintf("%.2f", figure("work-all" SUBSEP key)), is_struck),
        widest, count["work-all" SUBSEP key], sprintf("%.2f", figure("work-start" SUBSEP key)),
        (name == "none" ? "—" : verdict("work", "work", name, told_as))
}

function crowds(    p, name, one, all) {
    print "\n## One of " thousands(CROWD) " probes is hit (`-icount`, one CPU)\n"
    print "Instructions of a call of the one function, less those without a probe.\n"
    print "| tracer | alone | among " thousands(CROWD) " | spread of it, % | rounds | lost |\n| --- | ---: | ---: | ---: | ---: | --- |"
    for (p = 1; p <= crowders; p++) {
        name = crowd_names[p]
        one = figure("crowd" SUBSEP name SUBSEP 1); all = figure("crowd" SUBSEP name SUBSEP CROWD)
        if (one == "" || all == "") {
            print "| " name " | " missing("crowd", "crowd", "crowd", name, "count", name) " |"
            continue
        }
        begin_row(); note("crowd" SUBSEP name SUBSEP CROWD)
        printf "| %s | %.0f | %.0f | %.1f | %d | %s |\n", name, one - figure("crowd" SUBSEP "none" SUBSEP 1),
            all - figure("crowd" SUBSEP "none" SUBSEP 1), widest, least_rounds,
            (name == "bare" ? "—" : verdict("crowd", "crowd", name, "crowd-" CROWD))
    }
}

function many_threads(    p, r, name, row) {
    print "\n## Threads on one probe (TCG, two CPUs side by side)\n"
    print "Nanoseconds of CPU time a call: of one thread, and of 16 that call at once on the two CPUs. Only"
    print "ratios mean something.\n"
    print "| row | tracer | 1 thread | 16 threads | times | by the clock, 16 threads | rounds | lost |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    threads_row("none", "none"); threads_row("bare", "bare")
    for (r = 1; r <= 2; r++) for (p = 1; p <= threaders; p++) threads_row(thread_names[p], thread_rows[r])
}

function threads_row(name, row,    key, one, all, text) {
    key = name SUBSEP row SUBSEP
    one = figure("threads" SUBSEP key 1); all = figure("threads" SUBSEP key 16)
    if (one == "" || all == "") {
        print "| " row " | " name " | " missing("threads", "threads", "threads", name, row) " |"
        return
    }
    text = with_ends("threads" SUBSEP key 1, "%.0f") " | " with_ends("threads" SUBSEP key 16, "%.0f")
    printf "| %s | %s | %s | %.2f | %s | %d | %s |\n", row, name, text, all / one, with_ends("clock" SUBSEP key 16, "%.0f"),
        count["threads" SUBSEP key 16], (row ~ /none|bare/ ? "—" : verdict("threads", "threads", name, "threads-" row "-16"))
}

function goals(    p, name, value, least_lost, kept, other) {
    print "\n## The goals of sessions\n"
    value = figure("many-attach" SUBSEP "nsprobe" SUBSEP 10000)
    if (value != "") goal(sprintf("10,000 probes attached in under 1 s: %.2f", value), value < 1)
    value = figure("many-detach" SUBSEP "nsprobe" SUBSEP 10000)
    if (value != "") goal(sprintf("10,000 probes detached in under 1 s: %.2f", value), value < 1)
    value = figure("session" SUBSEP "nsprobe")
    if (value != "") goal(sprintf("a session of one probe in under 0.5 s: %.2f", value), value < 0.5)
    value = figure("peak" SUBSEP "nsprobe")
    if (value != "") goal(sprintf("a session of one probe in at most 15 MB: %.1f", value), value <= 15)
    kept = figure("kept" SUBSEP "nsprobe")
    for (p = 2; p <= peers; p++) {
        value = figure("kept" SUBSEP peer_names[p])
        if (value != "" && peer_names[p] !~ /^nsprobe/ && value > other) other = value
    }
    if (kept != "") goal(sprintf("of %s calls back to back no record lost, or fewer than any peer: %s kept (the best peer: %s)", \
        thousands(BURST), thousands(kept), thousands(other)), kept >= BURST || kept > other)
}

END {
    peers = split("nsprobe nsprobe-exact bpftrace bcc perf tracefs systemtap lttng", peer_names)
    counts = split(COUNTS, number_of)
    split("record stack", work_rows)
    workers = split("nsprobe nsprobe-record bpftrace bcc perf perf-script tracefs trace-cmd trace-cmd-report systemtap lttng lttng-text", worker_names)
    split("nsprobe trace|nsprobe record|bpftrace printf|bcc trace|perf record|perf record, perf script|tracefs trace_pipe|trace-cmd record|trace-cmd record, trace-cmd report|SystemTap printf|LTTng|LTTng, babeltrace2", worker_labels, "|")
    for (w = 1; w <= workers; w++) { asked_of[worker_names[w]] = worker_names[w]; sub(/-(record|script|report|text)$/, "", asked_of[worker_names[w]]) }
    crowders = split("bare nsprobe bpftrace systemtap perf bcc", crowd_names)
    threaders = split("nsprobe bpftrace perf", thread_names)
    split("count record", thread_rows)
    one_probe(); many_probes(); bursts(); works(); crowds(); many_threads(); goals()
    if (files) {
        print "\n## Unwind rows of a file (nsprobe, on the host itself; medians of 7 rounds)\n"
        print "| file | MB | of it on frames, MB | as rows, MB | compiled, ms | from the cache, ms |"
        print "| --- | ---: | ---: | ---: | ---: | ---: |"
    }
    for (i = 1; i <= files; i++) print row_lines[i]
    leave()
}
