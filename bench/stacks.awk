# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes bench/STACKS.md of what the guest's runs printed.
#
# With median.awk. Input: versions.txt, then what stacks.sh had printed. Output: Markdown.
# Costs are medians of the rounds, less the same calls without a probe.

FILENAME ~ /versions/ { versions = versions ", " $1 " " $2; next }
{ sub(/\r$/, "") }
$1 == "stack" { add("stack" SUBSEP $2 SUBSEP $3 SUBSEP $4 SUBSEP $5, $6) }
# One line has the median already, and the ends.
$1 == "module" && $3 == "push" {
    add("stack" SUBSEP "module-" $4 SUBSEP $2 SUBSEP $5 SUBSEP $6, $7)
    note_spread("module " $4 " " $2 " " $5 " " $6, $8, $9, $7)
}
$1 == "bytes" { run = $2 SUBSEP $3 SUBSEP $4; calls[run] = $5; ring[run] = $7; stacks[run] = $8 + 0; events = $5 }
$1 == "held" {
    held[++helds] = run = $2 SUBSEP $3 SUBSEP $4
    kept[run] = $5; whole[run] = $6; file[run] = $7 + 0
    written[run] = calls[run] - $8
    $1 = $2 = $3 = $4 = $5 = $6 = $7 = $8 = ""
    sub(/^ +/, ""); said[run] = $0
}
$1 == "libraries" && $2 != "first" {
    add("seconds" SUBSEP $2, $4); add("all" SUBSEP $2, $5); add("peak" SUBSEP $2, $7 / 1024)
    mapped = $3; unwind_bytes = $6
}
$1 == "rows" && $2 != "first" { cache = $2; $1 = $2 = ""; rows_said[cache] = $0 }
$1 == "failed" { $1 = ""; failures[++failed] = $0 }

function note_spread(what, low, high, middle,    spread) {
    spread = middle > 0 ? (high - low) * 100 / middle : 0
    if (spread > worst) { worst = spread; worst_of = what }
}

# Of a case, in instructions; empty when there is none.
function net(peer, row, frames, order,    key, value, base) {
    key = peer SUBSEP row SUBSEP frames SUBSEP order
    value = median("stack" SUBSEP key)
    if (value == "") return ""
    note_spread(peer " " row " " frames " " order, low, high, value)
    base = peer ~ /^module/ ? "module-none" : "none"
    return value - median("stack" SUBSEP base SUBSEP row SUBSEP frames SUBSEP order)
}

function figure(value) { return value == "" ? "—" : sprintf("%.0f", value) }

function cost_line(label, peer, row,    f, o, line) {
    if (net(peer, row, 17, "same") == "") return
    line = "| " builds[row] " | " label " |"
    for (f = 1; f <= 2; f++)
        for (o = 1; o <= 4; o++) line = line " " figure(net(peer, row, frames_of[f], orders[o])) " |"
    print line
}

function costs(    r, row) {
    print "| stacks by | tracer | 17, same | register | turns | new | 64, same | register | turns | new |"
    print "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (r = 1; r <= 2; r++) {
        row = rows[r]
        cost_line("bare consumer, no stack", "bare", row)
        cost_line("nsprobe trace --stack (by id)", "nsprobe", row)
        cost_line("nsprobe's module alone, by id", "module-stack-id", row)
        cost_line("nsprobe's module alone, in the record", "module-stack", row)
        cost_line(row == "fp" ? "bpftrace `ustack(raw)`" : "bpftrace `dw_ustack(raw)`", "bpftrace", row)
        cost_line("bpftrace `ustack(build_id)`", "bpftrace-build-id", row)
        cost_line("bcc stackcount", "bcc", row)
        cost_line(row == "fp" ? "perf record -g" : "perf record --call-graph dwarf", "perf", row)
        cost_line("tracefs userstacktrace (8 frames, without the caller)", "tracefs", row)
    }
}

function goal(row, most,    o, value) {
    printf "- A stack of 17 frames by %s, at most %d:", builds[row], most
    for (o = 1; o <= 4; o++) {
        value = net("nsprobe", row, 17, orders[o])
        if (value == "") continue
        printf " %s %.0f, **%s**%s", orders[o], value, value <= most ? "met" : "missed", o < 4 ? ";" : ".\n"
    }
}

# Where whole stacks cost nsprobe more than a peer.
function dearer(row, peer, label,    f, o, ours, theirs) {
    for (f = 1; f <= 2; f++)
        for (o = 1; o <= 4; o++) {
            theirs = net(peer, row, frames_of[f], orders[o])
            ours = net("nsprobe", row, frames_of[f], orders[o])
            if (theirs == "" || ours <= theirs) continue
            printf "- %d frames by %s, %s: %.0f, **%.2f times** the %.0f of %s.\n", frames_of[f], builds[row],
                orders[o], ours, ours / theirs, theirs, label
        }
}

# Bytes an event: of what is written for the calls, in the kernel's buffers or in the file.
function each(run) {
    if (file[run] > 0) return kept[run] > 0 ? file[run] / kept[run] : 0
    return written[run] ? ring[run] / written[run] + stacks[run] / calls[run] : 0
}

function bytes(    i, run, part) {
    print "| stacks by | tracer | stacks | kept of " events " | with all 17 frames | bytes an event | of these in the stack table | measured in |"
    print "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"
    for (i = 1; i <= helds; i++) {
        run = held[i]
        split(run, part, SUBSEP)
        if (!(run in calls)) continue
        printf "| %s | %s | %s | %d | %s | %.0f | %s | %s |\n", builds[part[2]], part[1], part[3], kept[run],
            whole[run], each(run), (stacks[run] ? sprintf("%.0f", stacks[run] / calls[run]) : "—"),
            (file[run] ? "perf.data" : part[1] == "nsprobe" ? "rings and table" : "BPF ring buffer")
    }
    print "\nWhat was said of the rest (empty: nothing):\n"
    for (i = 1; i <= helds; i++) {
        run = held[i]; name = run
        gsub(SUBSEP, " ", name)
        print "- `" name ": " said[run] "`"
    }
}

function fewer(times, peer, row, order,    ours, theirs, value) {
    ours = "nsprobe" SUBSEP "rows" SUBSEP order
    theirs = peer SUBSEP row SUBSEP order
    if (!(theirs in calls) || !each(theirs)) return
    value = each(theirs) / each(ours)
    printf "- At least %d times fewer bytes than %s, %s stacks: %.1f times, **%s**.\n", times,
        peer == "perf" ? "perf's dwarf stacks" : "bpftrace (stacks by " builds[row] ")", order, value,
        (value >= times ? "met" : "missed")
}

function byte_goals(order,    run) {
    run = "nsprobe" SUBSEP "rows" SUBSEP order
    if (!(run in calls)) return
    fewer(10, "bpftrace", "fp", order)
    fewer(10, "bpftrace", "rows", order)
    fewer(100, "perf", "rows", order)
    printf "- All events kept, %s stacks: %d of %d, %d of them whole, **%s**.\n", order, kept[run],
        calls[run], whole[run], whole[run] == calls[run] ? "met" : "missed"
}

function libraries(    c, name) {
    print "| cache | it traces after, s | (least–most) | all rows are there after, s | (least–most) | nsprobe's peak, MB | what nsprobe says |"
    print "| --- | ---: | --- | ---: | --- | ---: | --- |"
    for (c = 1; c <= 2; c++) {
        name = c == 1 ? "empty" : "filled"
        printf "| %s | %.2f |", name, median("seconds" SUBSEP name)
        printf " %.2f–%.2f | %.2f |", low, high, median("all" SUBSEP name)
        printf " %.2f–%.2f | %.0f | `%s` |\n", low, high, median("peak" SUBSEP name), rows_said[name]
    }
    printf "\n%d libraries were mapped; `unwind-bytes` of the session: %d (%.1f MB).\n", mapped, unwind_bytes,
        unwind_bytes / 1e6
}

END {
    split("fp rows", rows); split("same register turns new", orders); split("17 64", frames_of)
    builds["fp"] = "frame pointers"; builds["rows"] = "`.eh_frame`"
    print "<!-- Written by UPDATE=1 make bench-stacks; bench/README.md says how to read it. -->"
    print "# What whole stacks cost\n"
    print "Stock kernel " KVER ", QEMU TCG; " substr(versions, 3) "."
    print "\n## Instructions a call (`-icount`, one CPU), in the traced thread\n"
    print "Medians, less the same calls without a probe. The columns: how many frames, and how the stacks of"
    print "calls, one after the other, differ.\n"
    costs()
    printf "\nThe widest spread of the rounds: %.1f %% (%s). The goals:\n\n", worst, worst_of
    goal("fp", 2000); goal("rows", 3000)
    print "\nWhere nsprobe costs more than another tracer (perf's dwarf stacks are followed later, and most"
    print "of them are lost at full speed, see below):\n"
    dearer("fp", "bpftrace", "bpftrace `ustack(raw)`"); dearer("fp", "bpftrace-build-id", "bpftrace `ustack(build_id)`")
    dearer("fp", "bcc", "bcc"); dearer("fp", "perf", "perf -g")
    dearer("rows", "bpftrace", "bpftrace `dw_ustack(raw)`"); dearer("rows", "perf", "perf dwarf")
    print "\n## Bytes and events of " events " calls at full speed (TCG, two CPUs), 17 frames\n"
    bytes()
    print "\nThe goals:\n"
    byte_goals("same"); byte_goals("new")
    print "\n## A process with " mapped " libraries (TCG, two CPUs)\n"
    libraries()
    if (failed) print "\n## What did not work, and the tools' last words\n"
    for (i = 1; i <= failed; i++) { gsub(/`/, "'", failures[i]); print "- `" failures[i] "`" }
}
