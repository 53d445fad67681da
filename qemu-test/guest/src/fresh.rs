// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers that did not exist before, each with a file system of its own over that of
//! the guest, and a program in it; gone as soon as it has ended.

use crate::victim;
use nix::mount::{mount, MsFlags};
use nix::sched::{unshare, CloneFlags};
use nix::unistd::{chdir, chroot};
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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
        let (_, ran) = self.run_after(|| (), arguments);
        assert!(ran.status.success(), "{ran:?}");
    }

    /// Runs it as the process of this number, unless another process takes the number first.
    /// Returns the number that it had.
    pub(crate) fn run_as(&self, pid: u32, arguments: &[&str]) -> u32 {
        let last = File::create("/proc/sys/kernel/ns_last_pid").expect("tests run as root");
        let before = (pid - 1).to_string();
        let set = || (&last).write_all(before.as_bytes()).expect("root");
        self.run_after(set, arguments).0
    }

    /// Runs it right after `before`, in the same place. Returns its number, and what it printed.
    fn run_after(&self, before: impl FnOnce() + Send, arguments: &[&str]) -> (u32, Output) {
        let number = self.made.get();
        self.made.set(number + 1);
        let place = PathBuf::from(format!("{}/{number}", self.folder));
        let layer = format!("{}/layer", self.folder);
        let program = &self.program;
        // The namespaces are those of a thread, and of what it starts; they end with both.
        let ran = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter(&place, &layer, program).expect("tests run as root");
                let mut fresh = Command::new("/fresh");
                // There is no /dev/null in there.
                fresh.args(arguments).stdin(Stdio::inherit());
                fresh.stdout(Stdio::piped()).stderr(Stdio::piped());
                before();
                let child = fresh.spawn()?;
                let pid = child.id();
                Ok((pid, child.wait_with_output()?))
            });
            thread.join().expect("the thread does not panic")
        });
        ran.unwrap_or_else(|error: io::Error| panic!("it does not start: {error}"))
    }
}

/// Puts the calling thread into a root of its own, an overlay over the guest's with the
/// program in it, and its children into a pid namespace of their own.
fn enter(place: &Path, layer: &str, program: &Path) -> std::io::Result<()> {
    let none: Option<&str> = None;
    fs::create_dir(place)?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID)?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some("none"), place, Some("tmpfs"), MsFlags::empty(), none)?;
    let [up, work, root] = ["up", "work", "root"].map(|name| place.join(name));
    for folder in [&up, &work, &root] {
        fs::create_dir(folder)?;
    }
    fs::copy(program, up.join("fresh"))?;
    let options = format!(
        "lowerdir={layer}:/,upperdir={},workdir={}",
        up.display(),
        work.display()
    );
    let overlay = Some("overlay");
    mount(
        Some("none"),
        &root,
        overlay,
        MsFlags::empty(),
        Some(options.as_str()),
    )?;
    chroot(&root)?;
    chdir("/")?;
    Ok(())
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
