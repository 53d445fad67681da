# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes the costs of bench/RESULTS.md of what the guest's runs printed; sessions.awk makes the
# rest.
#
# With median.awk and cells.awk. Output: Markdown. A figure is the median of the rounds, less
# the same call without a probe.

$1 == "cost" { add(run SUBSEP $2 SUBSEP $3 SUBSEP $4, $5) }

function key_of(run, peer, row, name) { return run SUBSEP peer SUBSEP row SUBSEP name }

function net(run, peer, row, name,    value, base) {
    value = figure(key_of(run, peer, row, name))
    base = figure(key_of(run, "none", "none", name))
    return value == "" || base == "" ? "" : value - base
}

# The bare consumer stands beside the filter and is no part of its cost.
function ratio(run, peer, row, name,    value, base) {
    value = net(run, peer, row, name)
    base = row == "hist" ? net(run, "bare-session", "bare-session", name) : net(run, "bare", "bare", name)
    return value == "" || !base ? "" : value / base
}

function cost_row(run, label, peer, row,    f, line, is_struck) {
    begin_row()
    is_struck = is_short(run, peer, row)
    for (f = 1; f <= functions; f++) {
        line = line struck(shown(net(run, peer, row, names[f]), "%.0f"), is_struck) " | "
        line = line struck(shown(ratio(run, peer, row, names[f]), "%.2f"), is_struck) " | "
        note(key_of(run, peer, row, names[f]))
    }
    return "| " label " | " line sprintf("%.1f | %d | ", widest, least_rounds)
}

function costs(run,    r, p, f, line) {
    printf "\n| row | tracer |"
    for (f = 1; f <= functions; f++) printf " `%s` | of bare |", names[f]
    printf " widest spread, %% | rounds | lost |\n| --- | --- |"
    for (f = 1; f <= functions; f++) printf " ---: | ---: |"
    print " ---: | ---: | --- |"
    print cost_row(run, "| bare consumer", "bare", "bare") "— |"
    print cost_row(run, "| bare session consumer", "bare-session", "bare-session") "— |"
    for (r = 1; r <= rows; r++)
        for (p = 1; p <= peers; p++) {
            line = "| " row_names[r] " | " peer_names[p] " |"
            if (net(run, peer_names[p], row_names[r], "push") == "")
                print line " " missing("cost", run, "cost", peer_names[p], row_names[r], peer_names[p], row_names[r]) " |"
            else
                print cost_row(run, row_names[r] " | " peer_names[p], peer_names[p], row_names[r]) \
                    verdict("cost", run, peer_names[p], row_names[r]) " |"
        }
}

# The cheapest peer of a row; its figure is in 'cheapest'.
function best_peer(row, name,    p, value, best) {
    cheapest = ""
    for (p = 1; p <= peers; p++) {
        value = net("icount", peer_names[p], row, name)
        if (peer_names[p] ~ /^nsprobe/ || value == "" || is_short("icount", peer_names[p], row)) continue
        if (cheapest == "" || value < cheapest) { cheapest = value; best = peer_names[p] }
    }
    return best
}

function most(row, limit, what,    value, best) {
    value = ratio("icount", "nsprobe", row, "push")
    if (value == "" || is_short("icount", "nsprobe", row)) return
    goal(sprintf("%s on `push`, at most %.2f of %s: %.2f", row, limit, what, value), value <= limit)
}

function goals(    r, f, best, value) {
    print "\nThe goals (instructions):\n"
    most("count", 1.08, "bare"); most("filter", 1.05, "bare"); most("record", 1.35, "bare")
    most("hist", 1.30, "the bare session consumer"); most("container", 1.10, "bare")
    for (r = 1; r <= rows; r++) {
        value = net("icount", "nsprobe", row_names[r], "push")
        best = best_peer(row_names[r], "push")
        if (value != "" && best != "")
            goal(sprintf("%s on `push`, not above the best peer (%s, %.0f): %.0f", row_names[r], best, cheapest, value), value <= cheapest)
    }
    # The filter's figure is mostly the bare consumer's, which has no placement.
    for (r = 1; row_names[r] != "filter"; r++)
        for (f = 2; f <= 3; f++) {
            value = net("icount", "nsprobe", row_names[r], names[f])
            best = best_peer(row_names[r], names[f])
            if (value > 0 && best != "")
                goal(sprintf("%s on `%s`, at least 1.5 times fewer than the best peer (%s, %.0f): %.0f, %.2f times", \
                    row_names[r], names[f], best, cheapest, value, cheapest / value), cheapest / value >= 1.5)
        }
}

END {
    functions = split("push endbr64 mov nop10", names)
    rows = split("count record stack hist predicate filter container", row_names)
    peers = split("nsprobe nsprobe-exact nsprobe-uretprobe bpftrace bcc perf tracefs systemtap lttng", peer_names)
    head("What nsprobe and its peers cost", "make bench")
    print "\n## Instructions a call (`-icount`, one CPU), in the traced thread\n"
    print "A figure is the median of the rounds, less the call without a probe; the filter's rows hold the"
    print "bare consumer, too. Spread: from the least to the greatest round, in percent of the median of the"
    print "whole call, of the function with the widest. " about["calls"] " calls a round, in parts of 25 with pauses in"
    print "which the readers get through; lost is what the tool itself says. A row whose tool reported fewer"
    print "events than there were is struck out. The stacks of a row are all the same, which is where nsprobe is"
    print "cheapest, and tracefs keeps 8 of their 16 frames: STACKS.md has other stacks, and unwind information."
    costs("icount")
    goals()
    if (count[key_of("tcg", "none", "none", "push")]) {
        print "\n## Nanoseconds a call (TCG, two CPUs that take turns in one thread of the host)\n"
        print "Only ratios mean something. A reader never runs beside the traced thread."
        costs("tcg")
    }
    leave()
}
