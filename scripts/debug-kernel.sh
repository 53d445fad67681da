#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds a kernel that looks for bugs: the stock kernel's source and configuration, without
# the drivers that no guest has, with the kernel's own checks switched on.
#
# Inputs:  KVER, CACHE, MIRROR; first argument: what it checks,
#            lockdep   locks, contexts, RCU, works and timers; failures on purpose
#            kasan     each access to memory
#          second argument "cached": when the kernel is there, nothing is built but the
#          module, and after the guest's folder stands what it sees as /payload, a line
#          each: build/payload (see payload.sh) with the module built for this kernel.
# Outputs: the guest's folder on stdout: vmlinuz, initramfs.cpio, root.ext4, kver, and
#          objects, that modules are built against; root.ext4 is the stock guest's, as what
#          the stock kernel loads as a module is part of this one. There is no debug
#          information, so what needs the kernel's BTF (bpftrace) does not run here.
#
# The first run compiles some 2,400 files; an interrupted one is taken up where it stopped.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# What the guest loads as modules (scripts/image.sh) is built in.
BUILTIN='VIRTIO_BLK NET_9P NET_9P_VIRTIO 9P_FS EXT4_FS OVERLAY_FS BLK_DEV_LOOP VETH TUN RTC_DRV_CMOS'
# What is built in at Debian's, and no test needs.
WITHOUT='DRM SOUND USB_SUPPORT ATA SCSI MD WLAN NETFILTER FB XEN ACCESSIBILITY SPI HWMON
    WATCHDOG REGULATOR AGP PINCTRL GPIOLIB IOMMU_SUPPORT X86_PLATFORM_DEVICES STAGING
    DMADEVICES EDAC RAS MEMORY POWERCAP PWM SECURITY_SELINUX SECURITY_TOMOYO SECURITY_IPE IMA
    EVM CRYPTO_SELFTESTS SUSPEND HIBERNATION KEXEC KEXEC_FILE CRASH_DUMP VIDEO CXL_BUS
    X86_X32_ABI MPTCP WIRELESS NEW_LEDS VIRTUALIZATION HYPERV DAMON ETHERNET I2C CPU_FREQ
    NVMEM POWER_SUPPLY THERMAL INPUT_JOYSTICK INPUT_TOUCHSCREEN INPUT_TABLET INPUT_MOUSE
    INPUT_MISC HID_SUPPORT PCCARD DEBUG_INFO_BTF SCHED_CLASS_EXT GDB_SCRIPTS MODULE_SIG_ALL'
# The checks. Those after FAULT_INJECTION let calls fail on purpose.
CHEAP='DEBUG_LIST DEBUG_PLIST DEBUG_NOTIFIERS DEBUG_VM SCHED_STACK_END_CHECK WQ_WATCHDOG
    RUST_DEBUG_ASSERTIONS'
FAULTS='FAULT_INJECTION FAILSLAB FAIL_PAGE_ALLOC FAULT_INJECTION_USERCOPY
    FAULT_INJECTION_DEBUG_FS FAULT_INJECTION_STACKTRACE_FILTER FUNCTION_ERROR_INJECTION
    FAIL_FUNCTION'
LOCKDEP="$CHEAP $FAULTS PROVE_LOCKING PROVE_RCU DEBUG_SPINLOCK DEBUG_ATOMIC_SLEEP DEBUG_PREEMPT
    DEBUG_IRQFLAGS RCU_EQS_DEBUG DEBUG_OBJECTS DEBUG_OBJECTS_FREE DEBUG_OBJECTS_TIMERS
    DEBUG_OBJECTS_WORK DEBUG_OBJECTS_RCU_HEAD DEBUG_OBJECTS_PERCPU_COUNTER"
KASAN="$CHEAP $FAULTS KASAN KASAN_GENERIC KASAN_INLINE KASAN_VMALLOC"
# shellcheck disable=SC2089 # the quotes are the configuration's own
# Room for what a run with containers needs; the rest is for the build.
VALUES='LOCKDEP_BITS=17 LOCKDEP_CHAINS_BITS=18 LOCKDEP_STACK_TRACE_BITS=20
    LOCKDEP_STACK_TRACE_HASH_BITS=16 MODULE_SIG_KEY="certs/signing_key.pem"'
# Rust and KASAN go together under clang only; it comes in a root of its own.
CLANG=clang,lld,llvm,make,rustc,rust-src,bindgen,rustfmt,bc,flex,bison,libelf-dev,libssl-dev
CLANG=$CLANG,openssl,kmod,xz-utils,python3-minimal,libc6-dev

variant=${1:-lockdep}
case $variant in
lockdep) checks=$LOCKDEP ;;
kasan) checks=$KASAN ;;
*) die "no such kernel: $variant (lockdep, kasan)" ;;
esac
sdk=$("$PROJECT/scripts/sdk.sh")
release=$(cat "$sdk/kver")
config=$sdk/root/usr/src/linux-headers-$release/.config
folder=$CACHE/debug-kernel
source=$folder/source-$release
name=$release-$variant
key=$name-$(echo "1 $BUILTIN $WITHOUT $checks $VALUES $CLANG" | cat - "$config" | digest)
kernel=$folder/$key
objects=$kernel.objects

root=$sdk/root
set_compiler() {
    case $variant in
    kasan) root=$folder/clang-$(echo "1 $CLANG" | digest) compiler=LLVM=1 ;;
    *) compiler=CC=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$config") ;;
    esac
}
set_compiler

# Beside others on the machine, which are waited for.
in_source() {
    logged nice -n 15 "$PROJECT/scripts/enter.sh" "$root" "$folder" "$source" \
        make "O=$objects" "$compiler" "KERNELRELEASE=$name" "$@"
}

unpack() {
    [ ! -e "$source" ] || return 0
    say "unpacking the kernel's source"
    as_root rm -rf "$source.new"
    mkdir "$source.new"
    logged as_root tar -C "$source.new" --strip-components=1 --no-same-owner \
        -xf "$(echo "$sdk"/root/usr/src/linux-source-*.tar.xz)"
    mv "$source.new" "$source"
}

make_clang() {
    [ ! -e "$root" ] || return 0
    need_tools mmdebstrap:mmdebstrap
    say "Debian 13 with clang (about 1 minute)"
    as_root rm -rf "$root.new"
    logged debootstrap_root "$root.new" minbase "$CLANG" trixie
    mv "$root.new" "$root"
}

# Debian's, without modules, and with each symbol as it is asked for here.
configure() {
    echo DEBUG_INFO_NONE=y >"$objects/wanted"
    # shellcheck disable=SC2086,SC2090 # lists of words
    {
        printf '%s=y\n' $BUILTIN $checks
        printf '%s=n\n' $WITHOUT
        printf '%s\n' $VALUES
        # The root of the compiler has no zstd.
        echo KERNEL_GZIP=y
        echo KERNEL_ZSTD=n
    } >>"$objects/wanted"
    sed -e 's/^\(CONFIG_[A-Za-z0-9_]*\)=m$/# \1 is not set/' "$config" |
        grep -Ev '^(# )?CONFIG_DEBUG_INFO[_= ]' |
        awk -v wanted="$objects/wanted" '
            BEGIN {
                while ((getline line <wanted) > 0) {
                    split(line, part, "=")
                    all["CONFIG_" part[1]] = line
                }
            }
            { name = $1 == "#" ? $2 : $1; sub(/=.*/, "", name) }
            !(name in all)
            END { for (name in all) print "CONFIG_" all[name] }
        ' >"$objects/.config"
    in_source olddefconfig
    # shellcheck disable=SC2086 # lists of words
    for symbol in $BUILTIN $checks RUST; do
        grep -q "^CONFIG_$symbol=y" "$objects/.config" ||
            die "the kernel of $variant would be without $symbol: see $objects/.config"
    done
}

# What finds the stock guest's disk finds nothing to load, and puts this kernel's list of
# what it has in place of the stock kernel's modules.
make_initramfs() {
    image=$1 new=$2
    tree=$new/initramfs
    modules=$tree/kernel/lib/modules/$name
    mkdir -p "$tree/bin" "$tree/modules" "$modules"
    : >"$tree/modules/order"
    cp "$sdk/root/bin/busybox" "$tree/bin/"
    cp "$objects/modules.builtin" "$objects/modules.builtin.modinfo" "$modules/"
    : >"$modules/modules.order"
    logged "$PROJECT/scripts/enter.sh" "$sdk/root" "$new" "$new" \
        depmod -b "$tree/kernel" "$name"
    awk '
        /^exec switch_root/ {
            print "mount -t tmpfs modules /root/usr/lib/modules"
            print "cp -a /kernel/lib/modules/. /root/usr/lib/modules"
            done = 1
        }
        { print }
        END { exit !done }
    ' "$PROJECT/qemu-test/image/initramfs.sh" >"$tree/init" ||
        die "qemu-test/image/initramfs.sh does not end as debug-kernel.sh expects it"
    chmod 755 "$tree/init"
    mkdir "$tree/dev" "$tree/proc" "$tree/sys" "$tree/root"
    (cd "$tree" && find . | cpio --quiet -o -H newc -R 0:0) >"$new/initramfs.cpio"
    rm -rf "$tree"
}

make_kernel() {
    need_tools flock:util-linux cpio:cpio
    need_space "$folder" 6
    unpack
    [ "$variant" != kasan ] || make_clang
    mkdir -p "$objects"
    say "configuring $name"
    configure
    say "building $name (some 2,400 files)"
    in_source -j"$(nproc)" bzImage modules
}

# The folder appears by a rename when all of it is there; the objects stay where they are.
make_guest() {
    image=$("$PROJECT/scripts/image.sh")
    new=$kernel.new
    rm -rf "$new"
    mkdir "$new"
    cp "$objects/arch/x86/boot/bzImage" "$new/vmlinuz"
    make_initramfs "$image" "$new"
    ln -s "$image/root.ext4" "$new/root.ext4"
    ln -s "$objects" "$new/objects"
    echo "$name" >"$new/kver"
    rm -rf "$kernel"
    mv "$new" "$kernel"
}

# A newer image of the guest than the one that the folder points to?
is_current() { [ -e "$kernel/root.ext4" ] && [ "$(readlink "$kernel/root.ext4")" = "$("$PROJECT/scripts/image.sh")/root.ext4" ]; }

make_payload() {
    DEBUG_KERNEL=$kernel DEBUG_ROOT=$root DEBUG_SOURCE=$source DEBUG_COMPILER=$compiler \
        "$PROJECT/scripts/kmod.sh"
    payload=$PROJECT/build/payload-$variant
    rm -rf "$payload.new"
    cp -a "$("$PROJECT/scripts/payload.sh")" "$payload.new"
    # New files: those of the payload may be hard links.
    for file in nsprobe.ko kver; do
        rm -f "$payload.new/$file"
        cp "$PROJECT/build/kmod-$variant/$file" "$payload.new/$file"
    done
    rm -rf "$payload"
    mv "$payload.new" "$payload"
    echo "$payload"
}

LOG=$kernel.log
if [ "${2:-}" = cached ]; then
    [ -e "$kernel" ] || exit 0
    lock "$kernel.lock"
    is_current || make_guest
    echo "$kernel"
    make_payload
    exit 0
fi
lock "$kernel.lock"
is_current || {
    [ -e "$kernel" ] || make_kernel
    make_guest
    say "ready: $kernel"
}
echo "$kernel"
