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
EXEMPT='^LICENSES/|\.md$|^(fuzz/)?Cargo\.lock$|^fuzz/corpus/|(^|/)\.gitignore$|/(testdata|golden|proptest-regressions)/'

wrong=$(git ls-files --cached --others --exclude-standard | grep -vE "$EXEMPT" |
    while read -r file; do
        [ -e "$file" ] || continue
        licences=$(head -n 3 "$file" | sed -n 's/.*SPDX-License-Identifier: *//p')
        [ -n "$licences" ] || echo "$file: no SPDX-License-Identifier in the first lines"
        for word in $(echo "$licences" | tr -d '()*/' | sed 's/-->//'); do
            case $word in
            OR | AND | WITH | Linux-syscall-note) ;;
            *) [ -e "LICENSES/$word.txt" ] || echo "$file: no LICENSES/$word.txt" ;;
            esac
        done
    done)
[ -z "$wrong" ] || { echo "$wrong" >&2; exit 1; }
