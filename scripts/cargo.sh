#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs cargo: the host's when it is new enough and has a linker, else that of Debian's backports
# in a root of its own.
#
# Inputs:  cargo's words; rust-version of Cargo.toml; CACHE, MIRROR;
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
    # Crates of others are compiled once for all clones. What clones have left there goes when it
    # is too much, unless one compiles.
    shared=$CACHE/cargo/build
    mkdir -p "$shared"
    exec 7>"$shared.lock"
    if [ "$(du -sm "$shared" | cut -f1)" -gt 30000 ] && flock -n 7; then rm -rf "$shared"; fi
    flock -s 7
    # Before 1.91 cargo knows no such folder, and builds all in the clone.
    CARGO_BUILD_BUILD_DIR=$shared exec cargo "$@"
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
