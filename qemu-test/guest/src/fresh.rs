// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers that nobody has seen before, each with a file system of its own over that of
//! the guest, and a program in it; gone as soon as it has ended.

use crate::victim;
use std::cell::Cell;
use std::fs;
use std::process::Command;

/// Makes such containers.
pub(crate) struct Fresh {
    folder: String,
    made: Cell<usize>,
}

impl Fresh {
    /// None yet.
    pub(crate) fn new() -> Fresh {
        let folder = format!("/var/tmp/fresh-{}", std::process::id());
        fs::create_dir(&folder).expect("/var/tmp is writable");
        let made = Cell::new(0);
        Fresh { folder, made }
    }

    /// Runs a copy of the victim `no_frame_pointers`, which is `/fresh` in there, to its end.
    pub(crate) fn run(&self, arguments: &[&str]) {
        let place = format!("{}/{}", self.folder, self.made.get());
        self.made.set(self.made.get() + 1);
        let made = format!(
            "set -e; mkdir {place}; mount -t tmpfs none {place}; cd {place}; mkdir up work root
            cp {} up/fresh; mount -t overlay -o lowerdir=/,upperdir=up,workdir=work none root
            exec chroot root /fresh \"$@\"",
            victim::path("no_frame_pointers").display()
        );
        let mut ran = Command::new("unshare");
        ran.args(["--mount", "--pid", "--fork", "sh", "-c", &made, "sh"]);
        let ran = ran.args(arguments).output().expect("it starts");
        assert!(ran.status.success(), "{ran:?}");
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
