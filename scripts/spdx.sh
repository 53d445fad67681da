#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Checks that each file names its licence and that the licence's text is here.
#
# Inputs:  the files that git tracks or would track.
# Outputs: status 1 and the names of the files that do not.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"

# Prose, generated files and data cannot or need not say it.
EXEMPT='^LICENSES/|\.(md|png)$|^(fuzz/)?Cargo\.lock$|^fuzz/corpus/|(^|/)\.gitignore$|/(testdata|golden|proptest-regressions)/'

# Those that are there: what is removed stays tracked until the commit.
files=$(git ls-files --cached --others --exclude-standard | grep -vE "$EXEMPT" | while read -r file; do
    [ ! -f "$file" ] || echo "$file"
done)
# shellcheck disable=SC2086 # a list of files
wrong=$(awk '
    function judge(  word, count, words) {
        if (file == "") return
        if (licences == "") print file ": no SPDX-License-Identifier in the first lines"
        count = split(licences, words, " ")
        for (word = 1; word <= count; word++) {
            if (words[word] ~ /^(OR|AND|WITH|Linux-syscall-note)$/) continue
            if (!(words[word] in known)) known[words[word]] = \
                !system("test -e LICENSES/" words[word] ".txt")
            if (!known[words[word]]) print file ": no LICENSES/" words[word] ".txt"
        }
    }
    FNR == 1 { judge(); file = FILENAME; licences = "" }
    FNR <= 3 && sub(/.*SPDX-License-Identifier: */, "") {
        sub(/-->/, ""); gsub(/[()*\/]/, ""); licences = licences " " $0
    }
    END { judge() }' $files)
[ -z "$wrong" ] || { echo "$wrong" >&2; exit 1; }
