#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Checks that prepared kernel Rust crates have the names of the real kernel.
#
# Inputs:  SOURCE: a prepared kernel tree with the distribution's
#          Module.symvers and .config.
# Outputs: status 0 when both export the same Rust symbols; else a message.
#
# A mangled name carries a hash of compiler and flags. One other rustc than
# the distribution's and no module of ours would find a single symbol.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
source=$1
names=$(mktemp -d)
trap 'rm -rf "$names"' EXIT

sed -n 's/^EXPORT_SYMBOL_RUST_GPL(\(_R.*\|rust_helper_.*\));/\1/p' \
    "$source"/rust/exports_*_generated.h | sort -u >"$names/rebuilt"
awk -F'\t' '$2 ~ /^(_R|rust_helper_)/ && $3 == "vmlinux" { print $2 }' \
    "$source/Module.symvers" | sort -u >"$names/kernel"

comm -13 "$names/rebuilt" "$names/kernel" >"$names/lost"
comm -23 "$names/rebuilt" "$names/kernel" >"$names/new"
total=$(wc -l <"$names/kernel")
[ "$total" -gt 0 ] || die "$source/Module.symvers has no Rust symbols: not a kernel with CONFIG_RUST"
if [ -s "$names/lost" ] || [ -s "$names/new" ]; then
    say "Rust symbols differ: of the kernel's $total, $(wc -l <"$names/lost") are missing here; $(wc -l <"$names/new") are new. The first:"
    head -n 3 "$names/lost" "$names/new" >&2
    die "the kernel was built with: $(sed -n 's/^CONFIG_RUSTC_VERSION_TEXT=//p' "$source/.config")" \
        "this toolchain:            $(cat "$source/rustc-version" 2>/dev/null || rustc --version)" \
        "build with the kernel's own rustc (Debian 13's package rustc), then: make sdk"
fi
say "all $total Rust symbols of the kernel match"
