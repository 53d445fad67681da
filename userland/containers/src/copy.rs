// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files whose file system need not answer: how to recognize them, and copies of them.
//!
//! A server of FUSE, or of a network, may answer when a file is opened and never again: a thread
//! that reads such a file, or only closes it, waits for ever. So it is read, and closed, by the
//! thread that opened it; no other thread waits for that longer than the opener's limit.

use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::statfs::{self, FsType};
use std::fs::File;
use std::io::{self, Read, Seek, Write};

/// Largest file that is copied, in bytes.
const BYTES_MAX: u64 = 512 << 20;

/// File systems in which the kernel itself answers (`include/uapi/linux/magic.h`).
const LOCAL: [FsType; 10] = [
    statfs::EXT4_SUPER_MAGIC,
    statfs::XFS_SUPER_MAGIC,
    statfs::BTRFS_SUPER_MAGIC,
    statfs::TMPFS_MAGIC,
    statfs::OVERLAYFS_SUPER_MAGIC,
    FsType(0x7371_7368), // SquashFS
    FsType(0xe0f5_e1e2), // EROFS
    FsType(0xf2f5_2010), // F2FS
    FsType(0x2fc1_2fc1), // ZFS
    FsType(0xca45_1a4e), // bcachefs
];

/// These by name, with other file systems on disks that rarely hold programs, and those that
/// show what the kernel knows.
const LOCAL_NAMES: [&str; 46] = [
    "bcachefs",
    "binfmt_misc",
    "bpf",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "cramfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "fusectl",
    "hugetlbfs",
    "iso9660",
    "jfs",
    "minix",
    "mqueue",
    "msdos",
    "nilfs2",
    "nsfs",
    "ntfs3",
    "overlay",
    "proc",
    "pstore",
    "ramfs",
    "resctrl",
    "romfs",
    "rootfs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "udf",
    "vfat",
    "xfs",
    "zfs",
];

/// The first kind of file system in a mount table (`proc_pid_mountinfo(5)`) in which not the
/// kernel itself answers.
pub(crate) fn need_not_answer(mounts: &str) -> Option<String> {
    let kinds = mounts.lines().filter_map(|line| {
        let (_, behind) = line.split_once(" - ")?;
        behind.split(' ').next()
    });
    let mut others = kinds.filter(|kind| !LOCAL_NAMES.contains(kind));
    others.next().map(str::to_owned)
}

/// The file itself when it is in a local file system, or else a copy in memory.
pub(crate) fn answering(file: File, bytes: u64) -> io::Result<File> {
    let file_system = statfs::fstatfs(&file)?.filesystem_type();
    if LOCAL.contains(&file_system) {
        return Ok(file);
    }
    if bytes > BYTES_MAX {
        return Err(io::Error::other(format!(
            "its file system is remote, and the file is bigger than the {BYTES_MAX} bytes that \
             are copied"
        )));
    }
    in_memory(file, bytes)
}

/// The file itself, or a copy in memory when it is in FUSE: as a rule nobody but the user who
/// has mounted that may look at its files, open or not. One too large to be copied stays what
/// it is.
pub(crate) fn for_another_user(file: File) -> io::Result<File> {
    if statfs::fstatfs(&file)?.filesystem_type() != statfs::FUSE_SUPER_MAGIC {
        return Ok(file);
    }
    match file.metadata()?.len() {
        bytes if bytes > BYTES_MAX => Ok(file),
        bytes => in_memory(file, bytes),
    }
}

fn in_memory(file: File, bytes: u64) -> io::Result<File> {
    let mut copy = File::from(memfd_create(c"nsprobe", MFdFlags::MFD_CLOEXEC)?);
    let mut from = file.take(bytes);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let length = from.read(&mut buffer)?;
        match buffer.get(..length) {
            None | Some([]) => break,
            Some(piece) => copy.write_all(piece)?,
        }
    }
    copy.rewind()?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::{for_another_user, in_memory, need_not_answer};
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn copies_are_whole_and_local_files_stay_what_they_are() {
        let path = std::env::current_exe().expect("our own path");
        let open = || File::open(&path).expect("our own program");
        let inode = |file: &File| file.metadata().expect("it is open").ino();
        let length = open().metadata().expect("it is open").len();
        let same = for_another_user(open()).expect("it is local");
        assert_eq!(inode(&same), inode(&open()));
        let mut copy = in_memory(open(), length).expect("there is memory");
        let mut bytes = Vec::new();
        copy.read_to_end(&mut bytes).expect("it is in memory");
        assert!(bytes == std::fs::read(&path).expect("our own program"));
        assert_ne!(inode(&copy), inode(&open()));
    }

    #[test]
    fn a_server_is_told_from_the_kernel() {
        let local = "30 1 0:26 / / rw - overlay overlay rw,lowerdir=/a - b\n\
                     31 30 0:5 / /proc rw shared:2 - proc proc rw\n\
                     33 30 0:7 / /sys/kernel/tracing rw - tracefs none rw\n\
                     34 30 8:1 / /boot/efi rw - vfat /dev/sda1 rw\n";
        assert_eq!(need_not_answer(local), None);
        assert_eq!(need_not_answer(""), None);
        for (line, kind) in [
            ("32 30 0:9 / /mnt rw - fuse.sshfs host: rw", "fuse.sshfs"),
            (
                "32 30 0:9 / /mnt/a\\040-\\040proc rw - fuse proc rw",
                "fuse",
            ),
            ("32 30 0:9 / /home rw master:3 - nfs4 host:/ rw", "nfs4"),
            ("32 30 0:9 / /auto rw - autofs systemd-1 rw", "autofs"),
        ] {
            let mounts = format!("{local}{line}\n");
            assert_eq!(need_not_answer(&mounts).as_deref(), Some(kind));
        }
    }
}
