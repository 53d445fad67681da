#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# How old the published figures are: for each table of bench/, how many commits that touch the
# module's sources (kmod/, common/) lie between the commit that it names and HEAD.
#
# Inputs:  bench/*.md; git.
# Outputs: one line on stdout. Old figures are no failure: the status is 0.
set -eu
cd "$(dirname "$0")/.."

age_of() { # table
    commit=$(sed -n 's/.*[Cc]ommit \([0-9a-f]\{7,40\}\).*/\1/p' "$1" 2>/dev/null | head -n 1)
    [ -n "$commit" ] || { echo "unknown (it names no commit)"; return; }
    git cat-file -e "$commit^{commit}" 2>/dev/null || { echo "unknown ($commit is not here)"; return; }
    count=$(git rev-list --count "$commit..HEAD" -- kmod common)
    dirty=
    ! grep -q "ommit $commit-dirty" "$1" || dirty=", from a changed tree"
    echo "$count commits ($commit$dirty)"
}

line=
for table in RESULTS STACKS TASKS NAMES; do
    line="$line${line:+, }$table.md $(age_of "bench/$table.md")"
done
echo "figures in bench/ behind kmod/ and common/: $line"
