// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers that nobody has seen before, each with a file system of its own over that of
//! the guest, and a program in it; gone as soon as it has ended.

use crate::victim;
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes such containers.
pub(crate) struct Fresh {
    folder: String,
    program: PathBuf,
    made: Cell<usize>,
}

impl Fresh {
    /// None yet; each will have a copy of the victim `no_frame_pointers`.
    pub(crate) fn new() -> Fresh {
        Fresh::of(&victim::path("no_frame_pointers"))
    }

    /// None yet; each will have a copy of this program.
    pub(crate) fn of(program: &Path) -> Fresh {
        let name = program.file_name().expect("a file").display();
        // Another file system than that of the guest: one layer must not be in the other.
        let folder = format!("/tmp/fresh-{}-{name}", std::process::id());
        fs::create_dir_all(format!("{folder}/layer")).expect("/tmp is writable");
        Fresh {
            folder,
            program: program.to_owned(),
            made: Cell::new(0),
        }
    }

    /// Each will have this file, too.
    pub(crate) fn with(self, file: &Path, at: &str) -> Fresh {
        let to = PathBuf::from(format!("{}/layer{at}", self.folder));
        fs::create_dir_all(to.parent().expect("below the layer")).expect("ours");
        fs::copy(file, to).expect("ours");
        self
    }

    /// Runs the program, which is `/fresh` in there, to its end.
    pub(crate) fn run(&self, arguments: &[&str]) {
        let (folder, number) = (&self.folder, self.made.get());
        let place = format!("{folder}/{number}");
        self.made.set(number + 1);
        let made = format!(
            "set -e; mkdir {place}; mount -t tmpfs none {place}; cd {place}; mkdir up work root
            cp {} up/fresh
            mount -t overlay -o lowerdir={folder}/layer:/,upperdir=up,workdir=work none root
            exec chroot root /fresh \"$@\"",
            self.program.display()
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
