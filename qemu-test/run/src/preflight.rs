// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must be so before a guest is booted, and the error that says what to do else.

use anyhow::{bail, Context, Result};
use nix::sys::statvfs::statvfs;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What a run may write where QEMU keeps what guests write to their disks, and in its folder.
const NEEDED_MIB: u64 = 2048;

/// The kernel of an image, or of a payload's module.
pub(crate) fn kernel(folder: &Path) -> std::io::Result<String> {
    let text = fs::read_to_string(folder.join("kver"))?;
    Ok(text.trim().to_owned())
}

/// The module must be built for the image's kernel.
pub(crate) fn same_kernel(image: &Path, payload: &Path) -> Result<()> {
    let kernel = kernel(image).with_context(|| {
        format!(
            "{}: no guest's image; scripts/image.sh makes one",
            image.display()
        )
    })?;
    // Without one there is no module, and what needs it says so.
    if let Ok(module) = self::kernel(payload) {
        if module != kernel {
            bail!(
                "the module is built for {module} and the image {} has {kernel}: \
                 make kmod image KVER={kernel}",
                image.display()
            );
        }
    }
    Ok(())
}

/// Room is looked for before the work, where it will be needed.
pub(crate) fn room(folder: &Path) -> Result<()> {
    // Where QEMU's `snapshot=on` writes.
    let disks = env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    for place in [folder, &disks] {
        let room = statvfs(place).with_context(|| place.display().to_string())?;
        let free = (room.blocks_available() * room.fragment_size()) >> 20;
        if free < NEEDED_MIB {
            bail!(
                "{} has {free} MiB free and {NEEDED_MIB} MiB are needed: make room, or name \
                 another folder for the guests' disks by TMPDIR",
                place.display()
            );
        }
    }
    Ok(())
}

/// The payload as it is now, for this run: a build beside it replaces files, and a guest would
/// see half of it.
pub(crate) fn keep(payload: &Path, folder: &Path) -> Result<PathBuf> {
    let kept = folder.join("payload");
    link_all(payload, &kept).with_context(|| format!("cannot copy {}", payload.display()))?;
    Ok(kept)
}

fn link_all(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            link_all(&entry.path(), &target)?;
        } else {
            link(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// A file as it is now. A name that is there no more was that of a file which a build beside
/// this has given its own name by now (scripts/payload.sh).
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    let linked = fs::hard_link(from, to);
    // Another file system takes no link.
    let kept = linked.or_else(|_| fs::copy(from, to).map(drop));
    match kept {
        Err(error) if error.kind() == ErrorKind::NotFound && !from.exists() => Ok(()),
        kept => kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("nsprobe-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("it is writable");
        folder
    }

    #[test]
    fn a_module_for_another_kernel_is_refused() {
        let (image, payload) = (folder("image"), folder("payload"));
        let error = same_kernel(&image, &payload).expect_err("there is no image");
        assert!(error.to_string().contains("scripts/image.sh"), "{error}");
        fs::write(image.join("kver"), "7.2.12\n").expect("it is writable");
        same_kernel(&image, &payload).expect("there is no module");
        fs::write(payload.join("kver"), "7.2.12\n").expect("it is writable");
        same_kernel(&image, &payload).expect("they are the same");
        fs::write(payload.join("kver"), "7.3.4\n").expect("it is writable");
        let error = same_kernel(&image, &payload).expect_err("they are not");
        assert!(
            error.to_string().contains("make kmod image KVER=7.2.12"),
            "{error}"
        );
        for folder in [image, payload] {
            fs::remove_dir_all(folder).expect("it is ours");
        }
    }

    #[test]
    fn a_name_that_a_build_has_changed_meanwhile_is_no_fault() {
        let folder = folder("vanishes");
        let (from, to) = (folder.join("nsprobe.1234"), folder.join("kept"));
        link(&from, &to).expect("it is there no more");
        fs::write(&from, "new").expect("it is writable");
        link(&from, &to).expect("it is there");
        assert!(to.exists());
        link(&from, &folder.join("no/such")).expect_err("there is no such folder");
        fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn a_runs_payload_does_not_change() {
        let (payload, run) = (folder("changes"), folder("run"));
        fs::create_dir_all(payload.join("victims")).expect("it is writable");
        fs::write(payload.join("victims/a"), "old").expect("it is writable");
        let kept = keep(&payload, &run).expect("there is room");
        // As scripts/payload.sh replaces files.
        fs::write(payload.join("new"), "new").expect("it is writable");
        fs::rename(payload.join("new"), payload.join("victims/a")).expect("it is ours");
        let text = fs::read_to_string(kept.join("victims/a")).expect("it is there");
        assert_eq!(text, "old");
        for folder in [payload, run] {
            fs::remove_dir_all(folder).expect("it is ours");
        }
    }
}
