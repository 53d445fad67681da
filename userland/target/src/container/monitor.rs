// SPDX-License-Identifier: MIT OR Apache-2.0
//! What started a container's first process and watches over it: it says in its arguments
//! which container that is. Only what runs in our own pid namespace is asked; anybody who
//! can name a program so can run it as his own user only.

use super::Runtime;
use crate::Process;

/// How far above the first process nspawn is: it has a helper between.
const GENERATIONS: usize = 2;

/// A process that watches over a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Monitor {
    pub(super) runtime: Runtime,
    /// The id or name of the container.
    pub(super) name: String,
    /// Others that it goes by.
    pub(super) aliases: Vec<String>,
    /// As whom it runs, unless as root.
    pub(super) user: Option<u32>,
}

impl Monitor {
    /// That of a container whose first process this is.
    pub(super) fn of(process: &Process) -> Option<Monitor> {
        let ours = Process::open(std::process::id())
            .ok()?
            .pid_namespace()
            .ok()?;
        let mut pid = process.parent().ok()?;
        for _ in 0..GENERATIONS {
            let parent = Process::open(pid).ok()?;
            if parent.pid_namespace().ok()? != ours {
                return None;
            }
            let arguments = parent.read("cmdline").ok()?;
            let arguments = String::from_utf8_lossy(&arguments).into_owned();
            if let Some(monitor) = parse(&parent.comm().ok()?, &arguments) {
                let user = Some(parent.effective_uid().ok()?).filter(|user| *user != 0);
                return Some(Monitor { user, ..monitor });
            }
            pid = parent.parent().ok()?;
        }
        None
    }
}

/// What a program's name and arguments (each with a NUL behind it) tell.
fn parse(comm: &str, arguments: &str) -> Option<Monitor> {
    let words: Vec<&str> = arguments.split('\0').collect();
    let (runtime, name) = match comm {
        // containers/conmon, `src/cli.c`: the container's id.
        "conmon" => (Runtime::Podman, option(&words, &["-c", "--cid"])?),
        "systemd-nspawn" => (Runtime::Nspawn, machine(&words)?),
        // containerd, `pkg/shim/shim.go`; the kernel keeps 15 bytes of the name.
        "containerd-shim" => (Runtime::Containerd, option(&words, &["-id", "--id"])?),
        _ => return lxc(arguments),
    };
    Some(Monitor {
        runtime,
        name: name.to_owned(),
        aliases: Vec::new(),
        user: None,
    })
}

/// The value of an option, as `--name value` or `--name=value`.
fn option<'a>(words: &[&'a str], names: &[&str]) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        for name in names {
            match word.strip_prefix(name) {
                Some("") => return words.next().copied(),
                Some(rest) if rest.starts_with('=') => return rest.get(1..),
                _ => (),
            }
        }
    }
    None
}

/// The machine's name, which nspawn takes from the directory or the image when it is not
/// given one (`systemd-nspawn(1)`).
fn machine<'a>(words: &[&'a str]) -> Option<&'a str> {
    let short = |letter: &str| {
        let joined = words
            .iter()
            .find(|word| word.len() > 2 && word.starts_with(letter));
        joined.and_then(|word| word.get(2..))
    };
    let given = option(words, &["-M", "--machine"]).or_else(|| short("-M"));
    given.or_else(|| {
        let path = option(words, &["-D", "--directory", "-i", "--image"]);
        let path = path.or_else(|| short("-D")).or_else(|| short("-i"))?;
        let name = path.trim_end_matches('/').rsplit('/').next()?;
        let name = name.strip_suffix(".raw").unwrap_or(name);
        Some(name).filter(|name| !name.is_empty())
    })
}

/// `[lxc monitor] PATH NAME`, in place of the arguments (lxc, `src/lxc/lxccontainer.c`,
/// `set_proc_title`).
fn lxc(arguments: &str) -> Option<Monitor> {
    let rest = arguments
        .trim_end_matches('\0')
        .strip_prefix("[lxc monitor] ")?;
    let (path, name) = rest.rsplit_once(' ')?;
    let within = |part: &str| path.split('/').any(|other| other == part);
    let runtime = match (within("incus"), within("lxd")) {
        (true, _) => Runtime::Incus,
        (_, true) => Runtime::Lxd,
        _ => Runtime::Lxc,
    };
    // PROJECT_NAME, unless the project is the default one; no name has a `_`.
    let in_project = name.rsplit_once('_').filter(|_| runtime != Runtime::Lxc);
    let (name, aliases) = match in_project {
        Some((_, short)) => (short, vec![name.to_owned()]),
        None => (name, Vec::new()),
    };
    Some(Monitor {
        runtime,
        name: name.to_owned(),
        aliases,
        user: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::scratch::Scratch;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    fn told(comm: &str, words: &[&str]) -> Option<(Runtime, String)> {
        let arguments: String = words.iter().map(|word| format!("{word}\0")).collect();
        parse(comm, &arguments).map(|monitor| (monitor.runtime, monitor.name))
    }

    #[test]
    fn a_living_monitor_is_found_above_its_container() {
        let scratch = Scratch::new("monitor");
        scratch.write("script", "sleep 60 & echo $!; wait");
        let program = scratch.path().join("conmon");
        std::fs::copy("/bin/sh", &program).unwrap();
        let mut conmon = Command::new(&program);
        conmon
            .arg(scratch.path().join("script"))
            .args(["-c", "01f3"]);
        let mut conmon = conmon.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let output = conmon.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let child = Process::open(line.trim().parse().unwrap()).unwrap();
        let monitor = Monitor::of(&child);
        let _ = Command::new("kill").arg(child.pid().to_string()).status();
        let _ = (conmon.kill(), conmon.wait());
        let monitor = monitor.unwrap();
        assert_eq!(
            (monitor.runtime, monitor.name.as_str()),
            (Runtime::Podman, "01f3")
        );
        let us = nix::unistd::geteuid().as_raw();
        assert_eq!(monitor.user, Some(us).filter(|user| *user != 0));
        // Nobody watches over us.
        assert_eq!(
            Monitor::of(&Process::open(std::process::id()).unwrap()),
            None
        );
    }

    #[test]
    fn monitors_say_whom_they_watch() {
        let conmon = [
            "/usr/bin/conmon",
            "--api-version",
            "1",
            "-c",
            "01f3",
            "-u",
            "01f3",
        ];
        assert_eq!(
            told("conmon", &conmon),
            Some((Runtime::Podman, "01f3".into()))
        );
        let shim = [
            "/usr/bin/containerd-shim-runc-v2",
            "-namespace",
            "test",
            "-id",
            "cbox",
        ];
        let cbox = Some((Runtime::Containerd, "cbox".into()));
        assert_eq!(told("containerd-shim", &shim), cbox);
        for (words, name) in [
            (
                &["systemd-nspawn", "-q", "-M", "mach", "-D", "/x"][..],
                "mach",
            ),
            (&["systemd-nspawn", "--machine=mach"], "mach"),
            (&["systemd-nspawn", "-D", "/var/lib/machines/deb/"], "deb"),
            (&["systemd-nspawn", "--image=/srv/deb.raw", "-b"], "deb"),
        ] {
            let nspawn = Some((Runtime::Nspawn, name.to_owned()));
            assert_eq!(told("systemd-nspawn", words), nspawn, "{words:?}");
        }
        assert_eq!(told("bash", &["bash", "-c", "x"]), None);
        assert_eq!(told("systemd-nspawn", &["systemd-nspawn"]), None);
    }

    #[test]
    fn the_monitor_of_lxc_tells_whose_it_is() {
        let title = |text: &str| parse("lxc-start", &format!("{text}\0\0\0")).unwrap();
        let nest = title("[lxc monitor] /var/lib/lxc nest");
        assert_eq!((nest.runtime, nest.name.as_str()), (Runtime::Lxc, "nest"));
        let web = title("[lxc monitor] /var/lib/incus/containers shop_web");
        assert_eq!((web.runtime, web.name.as_str()), (Runtime::Incus, "web"));
        assert_eq!(web.aliases, ["shop_web"]);
        let snap = title("[lxc monitor] /var/snap/lxd/common/lxd/containers db");
        assert_eq!((snap.runtime, snap.name.as_str()), (Runtime::Lxd, "db"));
    }
}
