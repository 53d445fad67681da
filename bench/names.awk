# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes bench/NAMES.md of what names.sh measured.
#
# With median.awk and cells.awk. Input: theirs, then names.txt. Output: Markdown. The first name
# and all names are of the same rounds; figures are medians of them.

$1 == "file" { number = $2; files = $2; name_of[$2] = $3; bytes_of[$2] = $4 }
$1 == "name" {
    key = number SUBSEP $2 SUBSEP $3 SUBSEP ($4 == 1 ? "first" : "all")
    add("clock" SUBSEP key, $5); add("used" SUBSEP key, $6 + $7); add("peak" SUBSEP key, $8 / 1024)
    asked_for[key] = $4
}
$1 == "child" { each[number, $2] = $4; places[number] = $3 }

function rate(f, peer, part,    key, all, first) {
    key = f SUBSEP peer SUBSEP part SUBSEP
    all = figure("used" SUBSEP key "all"); first = figure("used" SUBSEP key "first")
    if (all == "" || first == "") return ""
    # Less the start, which both have; the clock of accounts has hundredths.
    return all - first < 0.01 ? "" : (asked_for[key "all"] - 1) / (all - first)
}

function line(f, peer, part, label,    key) {
    key = f SUBSEP peer SUBSEP part SUBSEP
    if (figure("used" SUBSEP key "all") == "") {
        print "| " label " | " missing("names", "names", "name", peer, part, peer) " |"
        return
    }
    begin_row(); note("used" SUBSEP key "all")
    printf "| %s | %s | %s | %s | %s | %s | %.0f | %.1f | %d |\n", label, with_ends("clock" SUBSEP key "first", "%.2f"),
        with_ends("used" SUBSEP key "first", "%.2f"), with_ends("clock" SUBSEP key "all", "%.2f"),
        with_ends("used" SUBSEP key "all", "%.2f"), (rate(f, peer, part) == "" ? "—" : thousands(rate(f, peer, part))),
        figure("peak" SUBSEP key "all"), widest, count["used" SUBSEP key "all"]
}

function header() {
    print "| tool | first name: clock, s | processor, s | all: clock, s | processor, s | names a second, less the start | peak, MB | spread of the processor, % | rounds |"
    print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
}

function compare(f, part, peer, times, what,    ours, theirs) {
    ours = rate(f, "nsprobe", part); theirs = rate(f, peer, part)
    if (ours != "" && theirs != "")
        goal(sprintf("%s: %s a second, %.2f times %s", what, thousands(ours), ours / theirs, peer), ours / theirs >= times)
}

END {
    head("What names cost", "bench/names.sh")
    print "\nDistinct pseudo-random addresses of the functions of a file, each named once, on the build host"
    print "itself, which does other things, too: the processor's time says more than the clock. Peers are"
    print "those of the peers' root (versions above); blazecli is " (about["blazecli"] ? about["blazecli"] : "not there") ". A start with one"
    print "name, and a start with all, in the same rounds: median (least–greatest)."
    for (f = 1; f <= files; f++) {
        printf "\n## %s, %.0f MB: inlined functions, files and lines\n\n", name_of[f], bytes_of[f] / 1e6
        header()
        line(f, "nsprobe", "debug", "nsprobe symbolize"); line(f, "blazecli", "debug", "blazecli")
        line(f, "llvm-symbolizer", "debug", "llvm-symbolizer"); line(f, "addr2line", "debug", "addr2line")
        key = f SUBSEP "perf" SUBSEP "debug" SUBSEP "all"
        # The time of its helpers is in no account when it did not end in time: by the clock.
        perf = count["clock" SUBSEP key] && median("clock" SUBSEP key) > 0 ? asked_for[key] / median("clock" SUBSEP key) : ""
        perf_used = median("used" SUBSEP key) < median("clock" SUBSEP key) / 2 ? "not known" : sprintf("%.2f", median("used" SUBSEP key))
        if (perf != "") printf "| perf script, of places that were sampled, by the clock | — | — | %.2f | %s | %.1f | %.0f | — | 1 |\n", \
            median("clock" SUBSEP key), perf_used, perf, median("peak" SUBSEP key)
        else print "| perf script | " missing("names", "names", "name", "perf", "debug", "perf") " |"
        if ((f, "child") in each)
            printf "\n`trace` and `record` ask a child that has no privileges: %.2f µs of processor time a name of both processes, %.2f times the %.2f µs in one process, which `symbolize` is (%s places, one round).\n", \
                each[f, "child"], each[f, "child"] / each[f, "ourselves"], each[f, "ourselves"], thousands(places[f])
        print "\nBy symbols alone:\n"
        header()
        line(f, "nsprobe", "symbols", "nsprobe symbolize"); line(f, "blazecli", "symbols", "blazecli")
        line(f, "llvm-symbolizer", "symbols", "llvm-symbolizer")
        print "\nThe goals:\n"
        compare(f, "debug", "blazecli", 1, "as fast as blazecli, with inlined functions")
        compare(f, "symbols", "blazecli", 1, "as fast as blazecli, by symbols")
        ours = rate(f, "nsprobe", "debug")
        if (ours != "" && perf != "") goal(sprintf("20 times faster than perf script with inlined functions: %.0f times", ours / perf), ours / perf >= 20)
        value = figure("clock" SUBSEP f SUBSEP "nsprobe" SUBSEP "debug" SUBSEP "first")
        if (value != "" && bytes_of[f] >= 4e8) goal(sprintf("the first name within 2 s (of a file of 500 MB; this one: %.0f MB): %.2f s", bytes_of[f] / 1e6, value), value <= 2)
        ours = figure("peak" SUBSEP f SUBSEP "nsprobe" SUBSEP "debug" SUBSEP "all"); best = ""
        for (p = 1; p <= split("blazecli llvm-symbolizer addr2line", others); p++) {
            value = figure("peak" SUBSEP f SUBSEP others[p] SUBSEP "debug" SUBSEP "all")
            if (value != "" && (best == "" || value < best)) best = value
        }
        if (ours != "" && best != "") goal(sprintf("no more memory than the better peer (%.0f MB): %.0f MB", best, ours), ours <= best)
    }
    leave()
}
