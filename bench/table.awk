# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes bench/RESULTS.md of what the guest's runs printed.
#
# With median.awk. Input: versions.txt, icount.txt, tcg.txt and what sessions gave, in this order; Outputs: Markdown.
# A figure is the median of the rounds, less the same call without a probe.

FILENAME != file { file = FILENAME; run = file ~ /icount/ ? "icount" : "tcg" }
file ~ /versions/ { versions = versions ", " $1 " " $2; next }
{ sub(/\r$/, "") }
$1 == "cost" { add(run SUBSEP $2 SUBSEP $3 SUBSEP $4, $5) }
$1 == "one" { add("attach" SUBSEP $2, $3); add("session" SUBSEP $2, $4); add("peak" SUBSEP $2, $5) }
$1 == "many" { attach[$2, $3] = $4; detach[$2, $3] = $6 }
$1 == "undefine" { detach[$2, $3] += $4 / 1e9 }
$1 == "burst" { burst[$2] = $3; wall[$2] = $4 }
$1 == "kept" { kept[$2] = $3; said = $2 ":"; $1 = $2 = $3 = ""; said_of[++kept_rows] = said $0 }
$1 == "rows" { rows_lines[++rows_files] = sprintf("| %s | %.1f | %.2f | %.2f | %.1f | %.1f |", $2, $3 / 1e6, $4 / 1e6, $5 / 1e6, $6, $7) }
$1 == "failed" { peer = $3; verb = $2; $1 = $2 = ""; failure[verb, peer] = $0; failures[++failed] = verb $0 }

function net(run, peer, row, name,    value) {
    value = median(run SUBSEP peer SUBSEP row SUBSEP name)
    if (value == "") return ""
    spread = value > 0 ? (high - low) * 100 / value : 0
    if (run == "icount" && spread > worst) { worst = spread; worst_of = peer " " row " " name }
    return value - median(run SUBSEP "none" SUBSEP "none" SUBSEP name)
}

function ratio(run, peer, row, name,    value, base) {
    value = net(run, peer, row, name)
    base = row == "hist" ? net(run, "bare-session", "bare-session", name) : net(run, "bare", "bare", name)
    # The bare consumer stands beside the filter and is no part of its cost.
    return value == "" || !base ? "" : sprintf("%.2f", value / base)
}

function costs(run, unit,    r, p, f, line, value) {
    printf "\n| row | tracer |"
    for (f = 1; f <= functions; f++) printf " `%s` | of bare |", function_names[f]
    printf "\n| --- | --- |"
    for (f = 1; f <= functions; f++) printf " ---: | ---: |"
    print ""
    baseline(run, "bare"); baseline(run, "bare-session")
    for (r = 1; r <= rows; r++)
        for (p = 1; p <= peers; p++) {
            if (median(run SUBSEP peer_names[p] SUBSEP row_names[r] SUBSEP "push") == "") continue
            line = "| " row_names[r] " | " peer_names[p] " |"
            for (f = 1; f <= functions; f++) {
                value = net(run, peer_names[p], row_names[r], function_names[f])
                line = line sprintf(" %.0f | %s |", value, ratio(run, peer_names[p], row_names[r], function_names[f]))
            }
            print line
        }
}

function baseline(run, name,    f) {
    printf "| | %s consumer |", name == "bare" ? "bare" : "bare session"
    for (f = 1; f <= functions; f++) printf " %.0f | 1.00 |", net(run, name, name, function_names[f])
    print ""
}

END {
    functions = split("push endbr64 mov nop10", function_names)
    rows = split("count record stack unwind hist predicate filter", row_names)
    peers = split("nsprobe nsprobe-exact bpftrace bcc perf tracefs systemtap lttng", peer_names)
    print "<!-- Written by UPDATE=1 make bench; bench/README.md says how to read it. -->"
    print "# What nsprobe and its peers cost\n"
    print "Stock kernel " KVER ", QEMU TCG; " substr(versions, 3) "."
    print "\n## Instructions a call (`-icount`, one CPU), in the traced thread\n"
    print "A figure is the median, less the call without a probe; the filter's rows hold the bare consumer, too."
    costs("icount")
    printf "\nThe widest spread of the rounds: %.1f %% (%s).\n", worst, worst_of
    if (count["tcg" SUBSEP "none" SUBSEP "none" SUBSEP "push"]) {
        print "\n## Nanoseconds a call (TCG, two CPUs): only ratios mean something"
        costs("tcg")
    }
    print "\n## Whole sessions (TCG, two CPUs)\n"
    print "| tracer | one probe: attached after, s | start to end, s | peak, MB | attach 1 / 100 / 1,000 / 10,000, s | and detach, s | 350,000 calls: records kept |"
    print "| --- | ---: | ---: | ---: | --- | --- | ---: |"
    for (p = 1; p <= peers; p++) {
        name = peer_names[p]
        if (!count["session" SUBSEP name] && !((name, 1) in attach)) continue
        printf "| %s | %.2f | %.2f | %.1f | %s | %s | %s |\n", name, median("attach" SUBSEP name),
            median("session" SUBSEP name), median("peak" SUBSEP name) / 1024,
            four(attach, name), four(detach, name), name in kept ? kept[name] : "—"
    }
    if (kept_rows) print "\nWhat was said of the rest of the burst (in the order above; empty: nothing):\n"
    for (i = 1; i <= kept_rows; i++) print "- `" said_of[i] "`"
    if (rows_files) {
        print "\n## Unwind rows of a file (nsprobe, on the host itself)\n"
        print "| file | MB | of it on frames, MB | as rows, MB | compiled, ms | from the cache, ms |"
        print "| --- | ---: | ---: | ---: | ---: | ---: |"
    }
    for (i = 1; i <= rows_files; i++) print rows_lines[i]
    if (failed) print "\n## What did not work, and the tools' last words\n"
    for (i = 1; i <= failed; i++) { gsub(/`/, "'", failures[i]); print "- `" failures[i] "`" }
}

function four(times, name,    text) {
    text = cell(times, name, 1) " / " cell(times, name, 100) " / " cell(times, name, 1000)
    return text " / " cell(times, name, 10000)
}
function cell(times, name, number) { return (name, number) in times ? sprintf("%.2f", times[name, number]) : "—" }
