# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes bench/STACKS.md of what the guest's runs printed.
#
# With median.awk and cells.awk. Input: theirs, then what stacks.sh had printed. Output:
# Markdown. Costs are medians of the rounds, less the same calls without a probe.

$1 == "stack" { add("stack" SUBSEP $2 SUBSEP $3 SUBSEP $4 SUBSEP $5, $6) }
# One line has the median already, and the ends.
$1 == "module" && $3 == "push" { module($2, $4, $5, $6, $7, $8, $9) }
$1 == "bytes" { last = $2 SUBSEP $3 SUBSEP $4; events = calls = $5; ring = $7; stacks = $8 + 0 }
$1 == "held" {
    key = $2 SUBSEP $3 SUBSEP $4
    add("kept" SUBSEP key, $5)
    if ($6 != "-") add("whole" SUBSEP key, $6)
    written = calls - $8
    # In perf's file, or in the kernel's buffers; of the calls that found room there.
    if ($7 > 0) { if ($5 > 0) add("bytes" SUBSEP key, $7 / $5); where[key] = "perf.data" }
    else if (key == last && written > 0) {
        add("bytes" SUBSEP key, ring / written + stacks / calls)
        if (stacks) add("table" SUBSEP key, stacks / calls)
        where[key] = $2 == "nsprobe" ? "rings and table" : "BPF ring buffer"
    }
    $1 = $2 = $3 = $4 = $5 = $6 = $7 = $8 = ""
    sub(/^ +/, ""); gsub(/[`|]/, "'"); said[key] = $0
}
$1 == "libraries" && $2 != "first" {
    add("seconds" SUBSEP $2, $4); add("all" SUBSEP $2, $5); add("peak" SUBSEP $2, $7 / 1024)
    mapped = $3; unwind_bytes = $6
}
$1 == "rows" && $2 != "first" { cache = $2; $1 = $2 = ""; sub(/^ +/, ""); rows_said[cache] = $0 }

function module(row, consumer, frames, order, middle, least, most,    key) {
    key = "stack" SUBSEP "module-" consumer SUBSEP row SUBSEP frames SUBSEP order
    add(key, least); add(key, middle)
    # All rounds between them are as good as the median.
    for (i = 3; i < about["rounds"]; i++) add(key, middle)
    if (about["rounds"] > 2) add(key, most)
}

function key_of(peer, row, frames, order) { return "stack" SUBSEP peer SUBSEP row SUBSEP frames SUBSEP order }

# Of a case, in instructions; empty when there is none.
function net(peer, row, frames, order,    value, base) {
    value = figure(key_of(peer, row, frames, order))
    base = figure(key_of(peer ~ /^module/ ? "module-none" : "none", row, frames, order))
    return value == "" || base == "" ? "" : value - base
}

function cost_line(label, peer, row,    f, o, line, is_struck) {
    if (net(peer, row, 17, "same") == "") {
        print "| " builds[row] " | " label " | " missing("stack", "stack-costs", "cost", peer, row, peer ~ /^module/ ? "nsprobe" : peer) " |"
        return
    }
    begin_row()
    is_struck = is_short("stack-costs", peer, row)
    line = "| " builds[row] " | " label " |"
    for (f = 1; f <= 2; f++)
        for (o = 1; o <= 4; o++) {
            line = line " " struck(shown(net(peer, row, frames_of[f], orders[o]), "%.0f"), is_struck) " |"
            if (count[key_of(peer, row, frames_of[f], orders[o])]) note(key_of(peer, row, frames_of[f], orders[o]))
        }
    print line sprintf(" %.1f | %d | ", widest, least_rounds) \
        (peer ~ /^(module|bare)/ ? "—" : verdict("stack", "stack-costs", peer, row)) " |"
}

function costs(    r, row) {
    print "| stacks by | tracer | 17, same | register | turns | new | 64, same | register | turns | new | widest spread, % | rounds | lost |"
    print "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    for (r = 1; r <= 2; r++) {
        row = rows[r]
        cost_line("bare consumer, no stack", "bare", row)
        cost_line("nsprobe trace --stack (by id)", "nsprobe", row)
        cost_line("nsprobe's module alone, by id, nothing reads", "module-stack-id", row)
        cost_line("nsprobe's module alone, in the record, nothing reads", "module-stack", row)
        cost_line(row == "fp" ? "bpftrace `ustack(raw)`" : "bpftrace `dw_ustack(raw)`", "bpftrace", row)
        cost_line("bpftrace `ustack(build_id)`", "bpftrace-build-id", row)
        cost_line("bcc stackcount", "bcc", row)
        cost_line(row == "fp" ? "perf record -g" : "perf record --call-graph dwarf", "perf", row)
        cost_line("tracefs userstacktrace (8 frames, without the caller)", "tracefs", row)
        cost_line(row == "fp" ? "LTTng callstack-user" : "LTTng", "lttng", row)
        cost_line(row == "fp" ? "SystemTap" : "SystemTap ubacktrace", "systemtap", row)
    }
}

function cost_goal(row, most,    o, value) {
    for (o = 1; o <= 4; o++) {
        value = net("nsprobe", row, 17, orders[o])
        if (value != "") goal(sprintf("a stack of 17 frames by %s, %s, at most %s: %.0f", builds[row], orders[o], thousands(most), value), value <= most)
    }
}

# Where whole stacks cost nsprobe more than a peer whose figure counts.
function dearer(row, peer, label,    f, o, ours, theirs) {
    if (is_short("stack-costs", peer, row)) return
    for (f = 1; f <= 2; f++)
        for (o = 1; o <= 4; o++) {
            theirs = net(peer, row, frames_of[f], orders[o])
            ours = net("nsprobe", row, frames_of[f], orders[o])
            if (theirs == "" || ours == "" || ours <= theirs) continue
            printf "- %d frames by %s, %s: %.0f, **%.2f times** the %.0f of %s.\n", frames_of[f], builds[row],
                orders[o], ours, ours / theirs, theirs, label
            found++
        }
}

function bytes(    r, p, o, key) {
    print "| stacks by | tracer | stacks | kept of " thousands(events) " | with all 17 frames | bytes an event | of these in the stack table | measured in | rounds | what was said of the rest |"
    print "| --- | --- | --- | ---: | ---: | ---: | ---: | --- | ---: | --- |"
    for (r = 1; r <= 2; r++)
        for (p = 1; p <= 3; p++)
            for (o = 1; o <= 4; o += 3) {
                key = byte_peers[p] SUBSEP rows[r] SUBSEP orders[o]
                if (figure("kept" SUBSEP key) == "") {
                    print "| " builds[rows[r]] " | " byte_peers[p] " | " orders[o] " | " \
                        missing("bytes", "stack-bytes", "bytes", byte_peers[p], rows[r]) " |"
                    continue
                }
                printf "| %s | %s | %s | %s | %s | %s | %s | %s | %d | %s |\n", builds[rows[r]], byte_peers[p], orders[o],
                    with_ends("kept" SUBSEP key, "%d"), with_ends("whole" SUBSEP key, "%d"), with_ends("bytes" SUBSEP key, "%.0f"),
                    with_ends("table" SUBSEP key, "%.0f"), where[key] != "" ? where[key] : "—", count["kept" SUBSEP key],
                    (said[key] != "" ? "`" said[key] "`" : "nothing")
            }
}

function fewer(times, peer, row, order,    ours, theirs, value) {
    ours = figure("bytes" SUBSEP "nsprobe" SUBSEP "rows" SUBSEP order)
    theirs = figure("bytes" SUBSEP peer SUBSEP row SUBSEP order)
    if (!ours || !theirs) return
    value = theirs / ours
    goal(sprintf("at least %d times fewer bytes than %s, %s stacks: %.1f times", times,
        peer == "perf" ? "perf's dwarf stacks" : "bpftrace (stacks by " builds[row] ")", order, value), value >= times)
}

function byte_goals(order,    key, kept, whole) {
    key = "nsprobe" SUBSEP "rows" SUBSEP order
    fewer(10, "bpftrace", "fp", order)
    fewer(10, "bpftrace", "rows", order)
    fewer(100, "perf", "rows", order)
    kept = figure("kept" SUBSEP key); whole = figure("whole" SUBSEP key)
    if (kept != "") goal(sprintf("all events kept, %s stacks: %s of %s, %s of them whole", order, thousands(kept),
        thousands(events), thousands(whole)), kept >= events && whole >= events)
}

function libraries(    c, name) {
    print "| cache | it traces after, s | all rows are there after, s | nsprobe's peak, MB | rounds | what nsprobe says |"
    print "| --- | ---: | ---: | ---: | ---: | --- |"
    for (c = 1; c <= 2; c++) {
        name = c == 1 ? "empty" : "filled"
        if (figure("seconds" SUBSEP name) == "") {
            print "| " name " | " missing("libraries", "stack-libraries", "libraries", name, name, "nsprobe") " |"
            continue
        }
        printf "| %s | %s | %s | %s | %d | `%s` |\n", name, with_ends("seconds" SUBSEP name, "%.2f"),
            with_ends("all" SUBSEP name, "%.2f"), with_ends("peak" SUBSEP name, "%.0f"), count["seconds" SUBSEP name], rows_said[name]
    }
    printf "\n%d libraries were mapped; `unwind-bytes` of the session: %d (%.1f MB).\n", mapped, unwind_bytes,
        unwind_bytes / 1e6
}

END {
    split("fp rows", rows); split("same register turns new", orders); split("17 64", frames_of)
    split("nsprobe bpftrace perf", byte_peers)
    builds["fp"] = "frame pointers"; builds["rows"] = "`.eh_frame`"
    head("What whole stacks cost", "make bench-stacks")
    print "\n## Instructions a call (`-icount`, one CPU), in the traced thread\n"
    print "Medians, less the same calls without a probe. The columns: how many frames, and how the stacks of"
    print "calls, one after the other, differ; a dash: there are no such stacks in that build. Spread: from"
    print "the least to the greatest round, in percent of the median of the whole call, of the widest cell."
    print about["calls"] " calls a round, in parts of 25 with pauses in which the readers get through. A row whose"
    print "tool reported fewer events than there were is struck out.\n"
    costs()
    print "\nThe goals:\n"
    cost_goal("fp", 2000); cost_goal("rows", 3000)
    print "\nWhere nsprobe costs more than another tracer (perf's dwarf stacks are copied here and followed later,"
    print "by a process whose time is not in the figure):\n"
    dearer("fp", "bpftrace", "bpftrace `ustack(raw)`"); dearer("fp", "bpftrace-build-id", "bpftrace `ustack(build_id)`")
    dearer("fp", "bcc", "bcc"); dearer("fp", "perf", "perf -g"); dearer("fp", "tracefs", "tracefs"); dearer("fp", "lttng", "LTTng")
    dearer("rows", "bpftrace", "bpftrace `dw_ustack(raw)`"); dearer("rows", "perf", "perf dwarf"); dearer("rows", "systemtap", "SystemTap")
    if (!found) print "- nowhere."
    print "\n## Bytes and events of " thousands(events) " calls at full speed (`-icount`, one CPU), 17 frames\n"
    bytes()
    print "\nThe goals:\n"
    byte_goals("same"); byte_goals("new")
    print "\n## A process with " mapped " libraries (`-icount`, one CPU: a second is 10^9 instructions, and waits)\n"
    libraries()
    leave()
}
