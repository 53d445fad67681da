# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh
# What the scripts share; sourced, never run.
#
# Inputs:  KVER, CACHE, MIRROR (environment; the defaults stand at the top of
#          the Makefile).
# Outputs: the variables and functions below. Progress goes to stderr, one
#          line a stage; stdout belongs to the script's result.

set -eu
# One language for every tool: messages are compared and logged.
export LC_ALL=C
# Under make, an inner make or cargo would look for the outer one's jobs.
unset MAKEFLAGS MFLAGS MAKELEVEL

PROJECT=$(cd "$(dirname "$0")/.." && pwd)
CACHE=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nsprobe}
KVER=${KVER:-$(sed -n 's/^KVER *?= *//p' "$PROJECT/Makefile")}
JOB=$(basename "$0" .sh)
STARTED=$(date +%s)
LOG=${LOG:-}

say() {
    printf '[%s %3d s] %s\n' "$JOB" "$(($(date +%s) - STARTED))" "$*" >&2
}

# The sysexits code says that the machine, not the project, is the trouble.
die() {
    for line in "$@"; do say "$line"; done
    exit 69
}

# A long step: its output goes to the log, whose end is shown when it fails.
logged() {
    printf '\n+ %s\n' "$*" >>"$LOG"
    "$@" >>"$LOG" 2>&1 </dev/null && return
    tail -n 20 "$LOG" >&2
    die "failed: $1 …" "the whole log: $LOG"
}

# The packages of those program:package pairs whose program is not here.
missing() {
    for pair in "$@"; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null ||
            printf ' %s' "${pair##*:}"
    done
}

# What is missing is installed by root. One script at a time: make runs several.
need_tools() { # program:package...
    [ -n "$(missing "$@")" ] || return 0
    [ "$(id -u)" = 0 ] || die "missing on this host; run:" \
        "  sudo apt-get install --no-install-recommends$(missing "$@")"
    (
        flock 8
        packages=$(missing "$@")
        [ -n "$packages" ] || exit 0
        say "installing$packages"
        logged apt-get update
        # shellcheck disable=SC2086 # a list of words
        logged env DEBIAN_FRONTEND=noninteractive apt-get install -y \
            --no-install-recommends -o DPkg::Lock::Timeout=300 $packages
    ) 8>"$CACHE/apt.lock"
}

# The tools of tests: here, and in the root of cargo's where one is used.
need_for_tests() { # program:package...
    need_tools "$@"
    NSPROBE_CARGO_PACKAGES=$(printf '%s\n' "$@" | cut -d: -f2 | sort -u | paste -sd,)
    export NSPROBE_CARGO_PACKAGES
}

# Room is looked for before the work, in the file system that will hold it.
need_space() { # folder, GiB
    mkdir -p "$1"
    free=$(df -Pk "$1" | awk 'NR == 2 { print int($4 / 1048576) }')
    [ "$free" -ge "$2" ] || die "$1 has $free GiB free and $2 are needed" \
        "make room, or name another cache folder: make CACHE=/some/where"
}

# Runs a command as root with mounts of its own, which vanish with it. A user
# who is not root becomes root in a user namespace with his subordinate ids.
as_root() {
    PATH="$PATH:/usr/sbin:/sbin"
    if [ "$(id -u)" = 0 ]; then
        unshare --mount "$@"
    else
        unshare --user --map-root-user --map-auto --mount "$@"
    fi
}

# One builder at a time for what the file stands for; the others wait here
# and then find the work done. The lock ends with the process.
lock() { # file
    mkdir -p "$(dirname "$1")"
    exec 9>"$1"
    flock -n 9 || { say "waiting for another build of the same"; flock 9; }
}

# Short name for a text: part of the cache's keys.
digest() { sha256sum | cut -c1-12; }

# The Debian mirror of the host's own apt, whatever format its sources have.
mirror() {
    [ -z "${MIRROR:-}" ] || { echo "$MIRROR"; return; }
    # shellcheck disable=SC2016 # apt's own placeholders
    uri=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
        awk '$2 == "main" && $1 ~ /\/debian\/?$/ { print $1; exit }')
    [ -n "$uri" ] || die "no Debian mirror in this host's apt sources; name one:" \
        "  make MIRROR=http://your.mirror/debian"
    echo "${uri%/}"
}

# How the host's apt reaches the network (proxies, retries, clock checks).
apt_network_options() {
    apt-config dump | grep -E '^Acquire::(http|https|Check-|Retries|ForceIPv)' || true
}

# Makes a Debian root folder. Runs under logged, where set -e does not hold.
debootstrap_root() { # target variant packages suite...
    target=$1 variant=$2 packages=$3 base=$4
    shift 3
    url=$(mirror)
    apt_network_options >"$target.apt"
    for suite in "$@"; do set -- "$@" "deb $url $suite main"; shift; done
    as_root mmdebstrap --mode=root --variant="$variant" --include="$packages" \
        --aptopt='Acquire::Languages "none"' --aptopt="$target.apt" \
        ${DPKG_EXCLUDE:+--dpkgopt="$DPKG_EXCLUDE"} \
        "$base" "$target" "$@" || return
    rm -f "$target.apt"
}

# Installs packages, each of which may be NAME=VERSION, in a root that debootstrap_root made, from
# the same suites. Runs under logged, too.
install_in_root() { # root package...
    root=$1
    shift
    # shellcheck disable=SC2016 # expanded by the inner shell
    apt_network_options | as_root sh -euc 'cat >"$1/etc/apt/apt.conf.d/90network"' sh "$root" || return
    # shellcheck disable=SC2016 # expanded by the inner shell
    "$PROJECT/scripts/enter.sh" "$root" "" / env DEBIAN_FRONTEND=noninteractive sh -euc '
        apt-get -o APT::Sandbox::User=root update
        apt-get -o APT::Sandbox::User=root install -y --no-install-recommends "$@"
        rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb
    ' sh "$@"
}
