#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Installs what make has built, and builds nothing.
#
# Inputs:  "program" or "module", both by default; PREFIX, DESTDIR; build/kmod/{nsprobe.ko,kver},
#          the built nsprobe of PROFILE, "release" by default.
# Outputs: PREFIX/bin/nsprobe, its man pages, the documents that these name, and completions of
#          bash, zsh and fish; the module under /lib/modules when this host runs the kernel that
#          it was built for, else the words to get there.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
destination=${DESTDIR:-}
prefix=$destination${PREFIX:-/usr/local}
program=build/cargo/x86_64-unknown-linux-gnu/${PROFILE:-release}/nsprobe

built() { [ -e "$1" ] || die "$1 is not there: run make kmod userland first, as yourself"; }

program() {
    built "$program"
    install -D "$program" "$prefix/bin/nsprobe"
    mkdir -p "$prefix/share/man/man1"
    "$prefix/bin/nsprobe" man "$prefix/share/man/man1"
    install -D -m 644 -t "$prefix/share/doc/nsprobe" docs/*.md
    for completions in bash:bash-completion/completions/nsprobe \
        zsh:zsh/site-functions/_nsprobe fish:fish/vendor_completions.d/nsprobe.fish; do
        file=$prefix/share/${completions#*:}
        mkdir -p "${file%/*}"
        "$prefix/bin/nsprobe" completions "${completions%%:*}" >"$file"
    done
    say "installed $prefix/bin/nsprobe"
}

module() {
    built build/kmod/nsprobe.ko
    kernel=$(cat build/kmod/kver)
    if [ -z "$destination" ] && [ "$(uname -r)" != "$kernel" ]; then
        say "this host runs $(uname -r) and the module is for $kernel: not installed"
        say "either build for this kernel, if it is one of Debian's 7.2 or 7.3:"
        say "  make kmod KVER=$(uname -r)"
        say "or run that kernel: apt-get install -t trixie-backports linux-image-$kernel"
        return
    fi
    install -D -m 644 build/kmod/nsprobe.ko "$destination/lib/modules/$kernel/updates/nsprobe.ko"
    [ -n "$destination" ] || depmod "$kernel"
    say "installed the module for $kernel; load it: modprobe nsprobe"
}

case ${1:-both} in
program | module) "$1" ;;
both) program && module ;;
*) die "install.sh installs program, module or both, not '$1'" ;;
esac
