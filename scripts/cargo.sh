#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs cargo: the host's when it is new enough and has a linker, else that of Debian's backports
# in a root of its own.
#
# Inputs:  cargo's words, or "keep", which keeps what other clones need not compile;
#          rust-version of Cargo.toml; CACHE, MIRROR;
#          NSPROBE_FORCE_CARGO_ROOT=1 takes the root in any case;
#          NSPROBE_CARGO_PACKAGES, with commas, that have to be in it;
#          NSPROBE_CARGO_BINDS, folders that have to be seen in it.
# Outputs: cargo's. The project and cargo's home have the same paths in both.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
PACKAGES=cargo/trixie-backports,rustc/trixie-backports
PACKAGES=$PACKAGES,rustfmt/trixie-backports,rust-clippy/trixie-backports
PACKAGES=$PACKAGES,gcc,libc6-dev,ca-certificates${NSPROBE_CARGO_PACKAGES:+,$NSPROBE_CARGO_PACKAGES}

wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$PROJECT/Cargo.toml")
found=$(cargo --version 2>/dev/null | cut -d' ' -f2) || true
older=$(printf '%s\n' "$wanted" "${found:-0}" | sort -V | head -n 1)
if [ "$older" = "$wanted" ] && command -v cc >/dev/null && [ -z "${NSPROBE_FORCE_CARGO_ROOT:-}" ]; then
    cd "$PROJECT"
    # Crates of others are compiled once for all clones. Those of the workspace are not kept:
    # cargo would know another clone's by their times alone.
    kept=$CACHE/cargo/crates-$({ cargo --version && cat Cargo.lock Cargo.toml; } | digest)
    if [ "$*" = keep ]; then
        lock "$CACHE/cargo/crates.lock"
        [ ! -e "$kept" ] || exit 0
        rm -rf "$CACHE"/cargo/crates-*
        mkdir -p "$kept.new"
        tar -C build/cargo --exclude='*nsprobe*' --exclude=incremental --exclude=examples \
            --exclude='all-*' -cf - . | tar -C "$kept.new" -xf -
        mv -T "$kept.new" "$kept"
        exit 0
    fi
    if [ -e "$kept" ] && [ ! -e build/cargo ]; then
        mkdir -p build
        # Another clone may remove it meanwhile: then all is compiled.
        if cp -a "$kept" "build/cargo.$$"; then mv -T "build/cargo.$$" build/cargo; fi
        rm -rf "build/cargo.$$"
    fi
    exec cargo "$@"
fi

root=$CACHE/cargo/root-$(echo "1 $PACKAGES" | digest)
LOG=$root.log
if [ ! -e "$root" ]; then
    lock "$root.lock"
    need_tools mmdebstrap:mmdebstrap unshare:util-linux newuidmap:uidmap
    need_space "$CACHE/cargo" 3
fi
if [ ! -e "$root" ]; then
    say "making a root with cargo of Debian's backports (here: ${found:-none}; needed: $wanted)"
    as_root rm -rf "$root.new"
    logged debootstrap_root "$root.new" minbase "$PACKAGES" trixie trixie-backports
    mv "$root.new" "$root"
fi
home=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$home"
export CARGO_HOME="$home"
exec "$PROJECT/scripts/enter.sh" "$root" "$PROJECT $home ${NSPROBE_CARGO_BINDS:-}" "$PROJECT" \
    cargo "$@"
