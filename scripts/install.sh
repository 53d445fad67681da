#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Installs what make has built.
#
# Inputs:  PREFIX, DESTDIR; build/kmod/{nsprobe.ko,kver}, the built nsprobe.
# Outputs: PREFIX/bin/nsprobe, its man pages, the documents that these name, and completions of
#          bash, zsh and fish; the module under /lib/modules when this host runs the kernel that
#          it was built for, else the words to get there.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
destination=${DESTDIR:-}
built=$(cat build/kmod/kver)

prefix=$destination${PREFIX:-/usr/local}
install -D build/cargo/x86_64-unknown-linux-gnu/release/nsprobe "$prefix/bin/nsprobe"
mkdir -p "$prefix/share/man/man1"
"$prefix/bin/nsprobe" man "$prefix/share/man/man1"
install -D -m 644 -t "$prefix/share/doc/nsprobe" docs/*.md
for completions in bash:bash-completion/completions/nsprobe zsh:zsh/site-functions/_nsprobe \
    fish:fish/vendor_completions.d/nsprobe.fish; do
    file=$prefix/share/${completions#*:}
    mkdir -p "${file%/*}"
    "$prefix/bin/nsprobe" completions "${completions%%:*}" >"$file"
done
say "installed $prefix/bin/nsprobe"

if [ -z "$destination" ] && [ "$(uname -r)" != "$built" ]; then
    say "this host runs $(uname -r) and the module is for $built: not installed"
    say "either build for this kernel, if it is one of Debian's 7.2 or 7.3:"
    say "  make install KVER=$(uname -r)"
    say "or run that kernel: apt-get install -t trixie-backports linux-image-$built"
    exit
fi
install -D -m 644 build/kmod/nsprobe.ko "$destination/lib/modules/$built/updates/nsprobe.ko"
[ -n "$destination" ] || depmod "$built"
say "installed the module for $built; load it: modprobe nsprobe"
