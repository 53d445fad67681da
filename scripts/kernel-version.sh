#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Says which kernel of the archive to build for.
#
# Inputs:  KVER, the wanted release; MIRROR; first argument "all": every supported kernel.
# Outputs: one line "RELEASE VERSION SOURCE-PACKAGE IMAGE-PACKAGE". The archive
#          drops old kernels: without KVER, it is the newest supported one.
#          For all: a line for each, the oldest first.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# The kernels that the module's source knows, of the flavour that was asked for.
flavour=$(echo "$KVER" | sed -n 's/.*+deb13-\(\(cloud-\|rt-\)\{0,1\}amd64\)$/\1/p')
SUPPORTED="7\.[23]\.[0-9]*+deb13-${flavour:-amd64}"
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$KEYRING" ] || KEYRING=${KEYRING%.gpg}.pgp

# An apt of our own: the host's lists and sources stay as they are.
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
apt_network_options >"$state/apt.conf"
echo "deb [arch=amd64 signed-by=$KEYRING] $(mirror) trixie-backports main" >"$state/sources.list"
cat >>"$state/apt.conf" <<END
Dir::State "$state";
Dir::State::status "/dev/null";
Dir::Cache "$state/cache";
Dir::Etc::SourceList "$state/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Parts "/dev/null";
APT::Architecture "amd64";
APT::Sandbox::User "root";
Acquire::Languages "none";
END
export APT_CONFIG="$state/apt.conf"

if ! apt-get -q -o APT::Update::Error-Mode=any update >"$state/log" 2>&1; then
    cat "$state/log" >&2
    ! grep -q NO_PUBKEY "$state/log" || die \
        "this host's keyring lacks the key of Debian 13: update the package debian-archive-keyring"
    die "the mirror $(mirror) cannot be read: check the network, apt's proxy, or name one with MIRROR="
fi

has() { apt-cache madison "$1" | grep -qF " $2 "; }

# Prints the line for a release of which all parts are there in one version.
describe() { # release
    version=$(apt-cache show "linux-headers-$1" 2>/dev/null | sed -n 's/^Version: //p' | head -n 1)
    [ -n "$version" ] || return 1
    source=linux-source-$(echo "$1" | cut -d. -f1,2)
    has "$source" "$version" && has "linux-modules-$1" "$version" || return 1
    # The signed image comes some days after the rest; the kernel is the same.
    for image in "linux-binary-$1" "linux-binary-unsigned-$1"; do
        has "$image" "$version" || continue
        echo "$1 $version $source $image"
        return
    done
    return 1
}

# Those of the archive that match, in the order of their versions.
releases() { # pattern
    apt-cache pkgnames linux-headers- | sed -n "s/^linux-headers-\($1\)\$/\1/p" | sort -V
}

if [ "${1:-}" = all ]; then
    for release in $(releases '7\.[23]\.[0-9]*+deb13-\(cloud-\|rt-\)\{0,1\}amd64'); do
        describe "$release" || say "$release: not all of its packages are there in one version"
    done
    exit
fi
describe "$KVER" && exit
newest=
for release in $(releases "$SUPPORTED" | tac); do
    newest=$(describe "$release") && break
done
[ -n "$newest" ] || die "the archive has neither $KVER nor another supported kernel ($SUPPORTED)"
say "the archive has no $KVER (it drops old ones); going on with ${newest%% *}"
say "(keep it: make KVER=${newest%% *}, or set KVER in the Makefile)"
echo "$newest"
