# SPDX-License-Identifier: MIT OR Apache-2.0
# Cells of the tables: what was measured, whether it counts, and why there is nothing.
#
# With median.awk, in front of a table's own program. Variables: NEED: rounds that a cell
# needs (2); SMOKE: whether a cell without figures or a reason is a failure; ONLY_PEERS and
# ONLY_ROWS, as the run had them. Input, all tables': absent.txt, about.txt and versions.txt,
# then the guest's lines in files whose name without .txt is the run of their figures.

FILENAME != file { file = FILENAME; run = file; sub(/.*\//, "", run); sub(/\.txt$/, "", run) }
run == "absent" && (/^#/ || NF < 4) { next }
run == "absent" { $0 = "absent " $0 }
# A run says so, too, when it finds that something is not there.
$1 == "absent" {
    key = $2 SUBSEP $3 SUBSEP $4
    $1 = $2 = $3 = $4 = ""; sub(/^ +/, "")
    absent[key] = $0
    next
}
run == "about" { name = $1; $1 = ""; sub(/^ +/, ""); about[name] = $0; next }
run == "versions" { version_of[$1] = $2; versions = versions ", " $1 " " $2; next }
{ sub(/\r$/, "") }
# Where other processes take part, what is due is the least.
$1 == "due" { due[run, $2, $3] = $4; at_least[run, $2, $3] = $5 == "least"; next }
$1 == "told" { tell(run, $2, $3, $4, $5); next }
$1 == "failed" {
    verb = $2; peer = $3; row = $4
    $1 = $2 = $3 = $4 = ""; sub(/^ +/, ""); gsub(/[`|]/, "'")
    if (!((run, verb, peer, row) in failed)) failed[run, verb, peer, row] = $0
    next
}

# What a tool reported of the events of a row; of the worst round.
function tell(run, peer, row, events, lost,    key) {
    key = run SUBSEP peer SUBSEP row
    told[key] = 1
    lost_of[key] += lost
    if (events + 0 < due[key] + 0)
        short[key] = "it reported " thousands(events) " of " thousands(due[key]) " events"
    else if (events + 0 > due[key] + 0 && !at_least[key] && !(key in short))
        over[key] = "it reported " thousands(events) " events where there were " thousands(due[key])
}

function need() { return NEED ? NEED : 2 }

# A median that counts; empty when there are too few rounds.
function figure(key) { return count[key] >= need() ? median(key) : "" }

# The widest spread that was printed of a row is kept in 'widest', in percent.
function note(key,    middle) {
    middle = median(key)
    if (middle > 0 && (high - low) * 100 / middle > widest) widest = (high - low) * 100 / middle
    if (!least_rounds || count[key] < least_rounds) least_rounds = count[key]
}
function begin_row() { widest = 0; least_rounds = 0 }

function shown(value, format) { return value == "" ? "—" : sprintf(format, value) }
function struck(text, is_struck) { return is_struck && text != "—" ? "~~" text "~~" : text }

# The median with its ends, or a dash.
function with_ends(key, format, scale,    middle) {
    middle = figure(key)
    if (middle == "") return "—"
    if (!scale) scale = 1
    return sprintf(format " (" format "–" format ")", middle * scale, low * scale, high * scale)
}

function thousands(n,    text, out) {
    text = sprintf("%d", n)
    while (length(text) > 3) {
        out = "," substr(text, length(text) - 2) out
        text = substr(text, 1, length(text) - 3)
    }
    return text out
}

function asked(word, list) { return list == "" || index(" " list " ", " " word " ") }

function absent_reason(table, peer, row) {
    if ((table, peer, row) in absent) return absent[table, peer, row]
    return absent[table, peer, "*"]
}

# Why a cell has no figures, and whether that is a failure of the run.
function missing(table, run, verb, peer, row, asked_peer, asked_row,    reason) {
    reason = absent_reason(table, peer, row)
    if (reason == "" && (!asked(asked_peer ? asked_peer : peer, ONLY_PEERS) || (asked_row && !asked(asked_row, ONLY_ROWS))))
        return "not measured: not asked for"
    if ((run, verb, peer, row) in failed) {
        if (reason == "") complain(table " " peer " " row ": " failed[run, verb, peer, row])
        return "not measured: " (reason != "" ? reason : "`" failed[run, verb, peer, row] "`")
    }
    if (reason == "") { reason = "there are fewer than " need() " good rounds"; complain(table " " peer " " row ": " reason) }
    return "not measured: " reason
}

# A cell that was measured, though it stands in absent.txt.
function present(table, peer, row) {
    if (absent_reason(table, peer, row) != "") complain(table " " peer " " row ": it was measured, and stands in absent.txt")
}

function complain(text) {
    complaints++
    print "bench: " text | "cat >&2"
}

# Whether a row is struck out; why, for its last column.
function verdict(table, run, peer, row,    key) {
    key = run SUBSEP peer SUBSEP row
    present(table, peer, row)
    if (key in short) { complain(table " " peer " " row ": " short[key]); return "**struck out**: " short[key] }
    if (key in over) return over[key]
    if (!(key in told)) return "—"
    return lost_of[key] + 0 ? thousands(lost_of[key]) : "0"
}
function is_short(run, peer, row) { return (run SUBSEP peer SUBSEP row) in short }

function head(title, verb) {
    print "<!-- Written by UPDATE=1 " verb "; bench/README.md says how to read it. -->"
    print "# " title "\n"
    print "Made from commit " (about["commit"] ? about["commit"] : "unknown") " on " about["date"] \
        ". Stock kernel " about["kernel"] " in QEMU TCG; " substr(versions, 3) "."
    if (SMOKE) print "\n**A smoke run: its figures mean nothing.**"
}

function goal(text, is_met) { print "- " text ": **" (is_met ? "met" : "missed") "**." }

# The end of each table: a smoke run fails for what is not there.
function leave() {
    close("cat >&2")
    if (SMOKE && complaints) exit 1
}
