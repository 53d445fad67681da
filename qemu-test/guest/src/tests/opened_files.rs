// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: of a container's files nsprobe opens the one that was asked for, and none of those
//! by which programs that enter a container have been led astray: what the dynamic linker, the
//! C library or a runtime would look for there.

use crate::command::{nsprobe, output};
use crate::container::Root;
use crate::module::Module;
use crate::runtimes::Bundle;
use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use nix::sys::stat::fstat;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const PROGRAM: &str = "/usr/local/bin/served";
const CONTAINER: &str = "baited";

/// What else lies in the container.
const BAITS: [&str; 11] = [
    "/etc/ld.so.preload",
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/localtime",
    "/usr/lib/locale/locale-archive",
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/lib/x86_64-linux-gnu/libnss_files.so.2",
    "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1",
    "/usr/lib/x86_64-linux-gnu/gconv/gconv-modules",
    "/usr/share/zoneinfo/Europe/Berlin",
];

/// Reports which of some files were opened, by any process and in any mount namespace.
struct Watch {
    group: Fanotify,
    /// Paths by device and inode.
    files: BTreeMap<(u64, u64), &'static str>,
}

impl Watch {
    /// From now on, of these paths in a root directory.
    fn over(root: &Path, paths: impl Iterator<Item = &'static str>) -> Watch {
        let flags = InitFlags::FAN_CLASS_NOTIF
            | InitFlags::FAN_CLOEXEC
            | InitFlags::FAN_NONBLOCK
            | InitFlags::FAN_UNLIMITED_QUEUE;
        let group = Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC);
        let group = group.expect("the kernel has fanotify");
        let mark = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        let marked = group.mark(mark, MaskFlags::FAN_OPEN, AT_FDCWD, Some(root));
        marked.expect("its file system can be watched");
        let id = |path: &str| {
            let found = fs::metadata(root.join(&path[1..])).expect("it was just made");
            (found.dev(), found.ino())
        };
        Watch {
            group,
            files: paths.map(|path| (id(path), path)).collect(),
        }
    }

    /// Those that were opened since they were last asked for.
    fn opened(&self) -> BTreeSet<&'static str> {
        let mut opened = BTreeSet::new();
        loop {
            let events = match self.group.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => return opened,
                Err(error) => panic!("fanotify: {error}"),
            };
            for event in events {
                let file = event.fd().expect("the queue has no end");
                let found = fstat(file).expect("it is open");
                opened.extend(self.files.get(&(found.st_dev, found.st_ino)));
            }
        }
    }
}

test! { core, nothing_of_a_container_is_opened_but_what_was_asked_for, seconds = 120 }
fn nothing_of_a_container_is_opened_but_what_was_asked_for() {
    let _module = Module::load();
    let root = Root::with("served", PROGRAM);
    for bait in BAITS {
        let path = root.folder.join(&bait[1..]);
        fs::create_dir_all(path.parent().expect("below the root")).expect("ours");
        fs::write(path, "/usr/lib/x86_64-linux-gnu/libnss_files.so.2\n").expect("ours");
    }
    let container = Bundle::run("crun", CONTAINER, &root.folder, PROGRAM);
    let pid = container.pid().to_string();
    let spec = format!("{PROGRAM}:real_function");
    let missing = "/usr/local/bin/serve:real_function";
    let watch = Watch::over(&root.folder, BAITS.into_iter().chain([PROGRAM]));
    let cases: [(&[&str], bool); 7] = [
        (
            &["trace", "--stack", "-n", "3", "-c", CONTAINER, &spec],
            true,
        ),
        (&["trace", "--stack", "-n", "1", "-p", &pid, &spec], true),
        (&["verify", "-c", CONTAINER, &spec], true),
        (&["list", "-c", CONTAINER, PROGRAM], true),
        (&["trace", "-c", CONTAINER, missing], false),
        (&["ps", "-c", CONTAINER], false),
        (&["containers"], false),
    ];
    for (words, opens) in cases {
        // With what makes a C library, or a panic, look for more files.
        let mut command = nsprobe(words);
        command
            .env("LC_ALL", "de_DE.ISO-8859-15")
            .env("TZ", "Europe/Berlin");
        let got = output(command.env("RUST_BACKTRACE", "full"));
        assert_eq!(got.code, i32::from(words.contains(&missing)), "{got:#?}");
        let wanted: &[&str] = if opens { &[PROGRAM] } else { &[] };
        assert_eq!(
            watch.opened(),
            BTreeSet::from_iter(wanted.iter().copied()),
            "{words:?}"
        );
    }
    // The watch sees what is opened in there.
    let read = fs::read(format!("/proc/{pid}/root{}", BAITS[0]));
    assert!(read.is_ok_and(|bytes| !bytes.is_empty()));
    assert_eq!(watch.opened(), BTreeSet::from([BAITS[0]]));
}
