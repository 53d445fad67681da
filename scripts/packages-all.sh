#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes the packages for every kernel of the archive that has Rust, one after the other.
#
# Inputs:  as scripts/packages.sh; first argument: which kernels, a pattern of grep (all).
# Outputs: build/packages, and a table: each kernel, whether the module was built for it, the
#          package's size, the seconds. What a kernel takes in the cache goes again, unless it was
#          there before. Exit 1 if one was not built; its log is build/packages/KVER.log.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
packages=$PROJECT/build/packages
rm -rf "$packages"
scripts/packages.sh program dkms
# The module of KVER comes last: build/kmod is then as make kmod leaves it.
kernels=$(scripts/kernel-version.sh all | cut -d' ' -f1 | grep -e "${1:-.}" |
    awk -v last="$KVER" '$1 == last { found = 1; next } { print } END { if (found) print last }')
[ -n "$kernels" ] || die "the archive has no kernel that matches '${1:-.}'"

build() { # release
    KVER=$1 scripts/kmod.sh && KVER=$1 scripts/packages.sh module
}

failed=0
printf '%-28s %-6s %8s %8s\n' kernel built KB seconds
for release in $kernels; do
    log=$packages/$release.log
    before=$(date +%s)
    known=$(ls -d "$CACHE/sdk/$release"-*/prepared 2>/dev/null || true)
    if package=$(build "$release" 2>"$log"); then
        built=yes size=$(($(stat -c %s "$package") / 1024))
        rm "$log"
    else
        built=no size=- failed=1
    fi
    printf '%-28s %-6s %8s %8d\n' "$release" "$built" "$size" "$(($(date +%s) - before))"
    if [ -z "$known" ]; then
        as_root rm -rf "$CACHE/sdk/$release"-*/ "build/kbuild-$release"
    fi
done
exit "$failed"
