# SPDX-License-Identifier: MIT OR Apache-2.0
# Reads the mutants of qemu-test/mutants; scripts/mutants.sh calls it.
#
# Inputs:  the files of mutants. Variables:
#            mode   "check", "list", "show", "apply" or "group"
#            root   the folder that the mutants' files are in
#            out    apply: the folder where the changed files go
#            id     show, apply: which mutant
#            names  check, group: a file with the tests, "FILE NAME SECONDS" a line
# Outputs: check: what is wrong, one a line, and status 1.
#          list:  ID, EXPECT, BOOT, TESTS, WHAT and SET of each, separated by tabs.
#          show:  the mutant as it is written.
#          apply: the changed files below OUT, and their names.
#          group: the names of the tests that the lines of the input stand for.

function fail(text) { printf "%s\n", text; failed = 1 }
function where() { return FILENAME ":" FNR }
function trimmed(text) { gsub(/^[ \t]+|[ \t\r]+$/, "", text); return text }

# A file of the project, by lines; SEEN has the places of each line.
function load(file,    line, path) {
    if (file in lines) return lines[file] > 0
    path = root "/" file
    lines[file] = 0
    while ((getline line < path) > 0) {
        lines[file]++
        text[file, lines[file]] = line
        line = trimmed(line)
        seen[file, line] = seen[file, line] " " lines[file]
    }
    close(path)
    return lines[file] > 0
}

# Where the old lines of hunk H are: the line's number when they are there exactly once.
# Else the reason is in WHY. Indentation does not count, so that a change of that alone
# leaves mutants as they are.
function place(h,    file, candidates, count, c, at, n, found, places) {
    file = hunk_file[h]
    if (!load(file)) { why = "there is no " file; return 0 }
    count = split(seen[file, trimmed(old[h, 1])], candidates, " ")
    for (c = 1; c <= count; c++) {
        at = candidates[c] + 0
        found = 1
        for (n = 2; n <= olds[h] && found; n++)
            found = trimmed(text[file, at + n - 1]) == trimmed(old[h, n])
        if (found) places[++places[0]] = at
    }
    if (places[0] == 1) return places[1]
    why = (places[0] ? places[0] " places of " file " have" : "no place of " file " has")
    why = why " the old lines that begin with: " trimmed(old[h, 1])
    return 0
}

function begin_hunk() { hunks++; hunk_file[hunks] = file; hunk_of[hunks] = m; olds[hunks] = news[hunks] = changes[hunks] = 0; in_hunk = 1 }

BEGIN {
    if (names != "") {
        while ((getline line < names) > 0) {
            tests++
            split(line, words, " ")
            test_file[tests] = words[1]
            test_name[tests] = words[2]
        }
        if (tests == 0) fail("no test was found in " names)
    }
}

mode == "group" {
    if (/^#/ || /^$/) next
    count = 0
    for (t = 1; t <= tests; t++)
        if (test_file[t] == $1 || test_name[t] == $1) { count++; print test_name[t] }
    if (count == 0) { printf "%s: no test and no file of tests is called %s\n", where(), $1 > "/dev/stderr"; failed = 1 }
    next
}

/^#/ || /^$/ { next }

/^id:/ {
    m++
    mutant[m] = trimmed(substr($0, 4))
    at[m] = where()
    if (mutant[m] !~ /^[a-z0-9-]+$/) fail(where() ": an id is made of small letters, digits and -")
    if (mutant[m] in number) fail(where() ": " mutant[m] " is there twice")
    number[mutant[m]] = m
    file = ""
    in_hunk = 0
    written[m] = $0
    next
}

m == 0 { fail(where() ": a mutant begins with id:"); exit }

{ written[m] = written[m] "\n" $0 }

/^file:/ { file = trimmed(substr($0, 6)); in_hunk = 0; next }
/^@@/ { in_hunk = 0; next }

/^[ +-]/ {
    if (file == "") { fail(where() ": file: comes before the change"); next }
    if (!in_hunk) begin_hunk()
    if (/^[ -]/) old[hunks, ++olds[hunks]] = substr($0, 2)
    if (/^[ +]/) new[hunks, ++news[hunks]] = substr($0, 2)
    if (/^[+-]/) changes[hunks]++
    next
}

/^[a-z]+:/ {
    key = $1
    sub(/:.*/, "", key)
    if (key !~ /^(what|breaks|tests|boot|expect|set)$/) fail(where() ": there is no field " key)
    if ((m, key) in field) fail(where() ": " key " is there twice")
    field[m, key] = trimmed(substr($0, length(key) + 2))
    next
}

{ fail(where() ": this is no part of a mutant: " $0) }

function check(    i, h, words, count, w, t, has) {
    for (i = 1; i <= m; i++) {
        if (field[i, "what"] == "") fail(at[i] ": " mutant[i] " does not say what is broken")
        if (field[i, "breaks"] == "") fail(at[i] ": " mutant[i] " does not say which promise it breaks")
        if (field[i, "expect"] !~ /^(survives)?$/) fail(at[i] ": expect: can be survives only")
        if (field[i, "set"] !~ /^(wide)?$/) fail(at[i] ": set: can be wide only")
        if (field[i, "what"] field[i, "breaks"] ~ /[|\t]/) fail(at[i] ": no | and no tab in the fields of " mutant[i])
        has = 0
        for (h = 1; h <= hunks; h++) {
            if (hunk_of[h] != i) continue
            has = 1
            if (changes[h] == 0) fail(at[i] ": " mutant[i] " changes nothing in " hunk_file[h])
            else if (olds[h] == 0) fail(at[i] ": " mutant[i] " has no old lines for " hunk_file[h])
            else if (!place(h)) fail(at[i] ": stale mutant " mutant[i] ": " why)
        }
        if (!has) fail(at[i] ": " mutant[i] " has no change")
        count = split(field[i, "tests"], words, " ")
        if (count == 0) fail(at[i] ": " mutant[i] " names no test that may catch it")
        for (w = 1; w <= count; w++) {
            has = 0
            for (t = 1; t <= tests && !has; t++) has = index(test_name[t], words[w]) > 0
            if (!has) fail(at[i] ": " mutant[i] ": no test's name has " words[w] " in it")
        }
    }
    if (m == 0) fail("there are no mutants")
}

# Writes the files that mutant I changes.
function apply(i,    h, n, f, files, line, path, drop, put) {
    for (h = 1; h <= hunks; h++) {
        if (hunk_of[h] != i) continue
        if (!(n = place(h))) { fail("stale mutant " mutant[i] ": " why); return }
        files[hunk_file[h]] = 1
        put[hunk_file[h], n] = h
        for (line = n; line < n + olds[h]; line++) {
            if ((hunk_file[h], line) in drop) { fail(mutant[i] ": two changes of one line"); return }
            drop[hunk_file[h], line] = 1
        }
    }
    for (f in files) {
        path = out "/" f
        printf "" > path
        for (line = 1; line <= lines[f]; line++) {
            if ((f, line) in put) {
                h = put[f, line]
                for (n = 1; n <= news[h]; n++) print new[h, n] > path
            }
            if (!((f, line) in drop)) print text[f, line] > path
        }
        close(path)
        print f
    }
}

function said(key) { return field[i, key] == "" ? "-" : field[i, key] }

END {
    if (mode == "check") check()
    if (mode == "list" && !failed)
        for (i = 1; i <= m; i++)
            printf "%s\t%s\t%s\t%s\t%s\t%s\n", mutant[i], said("expect"), said("boot"), said("tests"), field[i, "what"], said("set")
    if (mode == "show" && (id in number)) print written[number[id]]
    if (mode == "apply") {
        if (id in number) apply(number[id])
        else fail("there is no mutant " id)
    }
    exit failed
}
