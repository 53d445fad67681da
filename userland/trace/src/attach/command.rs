// SPDX-License-Identifier: MIT OR Apache-2.0
//! A command that we start in order to trace it from its first instruction on.
//!
//! Our own program is started once more; it stops itself, and when the probes
//! are in place it is continued and becomes the command (same pid). Should we
//! die before that, it is killed.

use anyhow::{anyhow, bail, Context};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{kill, raise, SigSet, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// The arguments of our own program that ask for it.
const ARGUMENTS: [&str; 2] = ["exec-stopped", "--"];
/// The variable by which libraries are mapped before all others.
const PRELOAD: &str = "LD_PRELOAD";

/// A command that exists.
#[derive(Debug)]
pub struct Program {
    /// The file that is executed.
    pub(crate) path: PathBuf,
    words: Vec<OsString>,
}

impl Program {
    /// The program that `words` start: the first of them is a path, or a name
    /// in `$PATH`.
    pub(crate) fn find(words: &[OsString]) -> anyhow::Result<Program> {
        let name = words.first().context("the command is empty")?;
        let shown = Path::new(name).display();
        let path = if name.as_bytes().contains(&b'/') {
            PathBuf::from(name)
        } else {
            find_in_path(Path::new(name))
                .ok_or_else(|| anyhow!("no command `{shown}` in any directory of $PATH"))?
        };
        let metadata = path
            .metadata()
            .with_context(|| format!("cannot start `{shown}`"))?;
        if !metadata.is_file() {
            bail!("cannot start `{shown}`: it is not a file");
        }
        if metadata.permissions().mode() & 0o111 == 0 {
            bail!("cannot start `{shown}`: it is not executable");
        }
        Ok(Program {
            path,
            words: words.to_vec(),
        })
    }

    /// The libraries that the loader is asked to map first (`LD_PRELOAD`), by their paths or names:
    /// by our own environment, or by an assignment among the words of `env`.
    pub(crate) fn preloaded(&self) -> Vec<String> {
        let own = env::var_os(PRELOAD);
        let is_env = self.path.file_name().is_some_and(|name| name == "env");
        let words = self.words.iter().filter(|_| is_env);
        let assigned = words.filter_map(|word| {
            let word = word.to_str()?;
            word.strip_prefix(PRELOAD)?.strip_prefix('=')
        });
        let lists = own.iter().filter_map(|list| list.to_str()).chain(assigned);
        let names = lists.flat_map(|list| list.split([':', ' ']));
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Starts the program as far as right before its first instruction.
    pub(crate) fn start_stopped(&self) -> anyhow::Result<Stopped> {
        let child = Command::new("/proc/self/exe")
            .args(ARGUMENTS)
            .arg(&self.path)
            .args(&self.words)
            .spawn()
            .context("cannot start a process for the command")?;
        let pid = Pid::from_raw(child.id() as i32);
        match waitpid(pid, Some(WaitPidFlag::WUNTRACED))? {
            WaitStatus::Stopped(..) => Ok(Stopped(Started { pid, ended: None })),
            other => bail!("the command's process ended before it began: {other:?}"),
        }
    }
}

/// The executable file of that name in `$PATH`.
pub(crate) fn find_in_path(name: &Path) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| {
            file.metadata()
                .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
}

/// The stopped process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Stopped(Started);

impl Stopped {
    /// Its pid, before and after.
    pub(crate) fn pid(&self) -> u32 {
        self.0.pid()
    }

    pub(crate) fn release(self) -> anyhow::Result<Started> {
        kill(self.0.pid, Signal::SIGCONT).context("cannot continue the command's process")?;
        Ok(self.0)
    }
}

/// The running command; killed when dropped, unless it ended.
#[derive(Debug)]
pub(crate) struct Started {
    pid: Pid,
    ended: Option<WaitStatus>,
}

impl Started {
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw() as u32
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            // It may just have ended; it is not reaped before `ended` is set, so
            // the number is still its own.
            let _ = kill(self.pid, signal);
        }
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<WaitStatus> {
        if self.ended.is_none() {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..))) => {
                    self.ended = Some(status);
                }
                _ => return None,
            }
        }
        self.ended
    }

    /// Ends it: politely, and two seconds later for certain.
    pub(crate) fn terminate(&mut self) {
        self.signal(Signal::SIGTERM);
        let limit = Instant::now() + Duration::from_secs(2);
        while self.ended().is_none() {
            if Instant::now() > limit {
                self.kill_now();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill_now(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::SIGKILL);
            self.ended = waitpid(self.pid, None).ok();
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.kill_now();
    }
}

/// Why a command failed, if it did.
pub(crate) fn failure(status: WaitStatus) -> Option<String> {
    match status {
        WaitStatus::Exited(_, 0) => None,
        WaitStatus::Exited(_, code) => Some(format!("the command exited with code {code}")),
        WaitStatus::Signaled(_, signal, _) => Some(format!("the command was killed by {signal}")),
        other => Some(format!("the command ended in an unknown way: {other:?}")),
    }
}

/// The path, and the arguments from the zeroth on, of the command that this process was started
/// for; none when it was not.
pub(crate) fn asked_for() -> Option<Vec<OsString>> {
    let mut words = env::args_os().skip(1);
    let is_asked = [words.next()?, words.next()?] == ARGUMENTS;
    is_asked.then(|| words.collect())
}

/// Code of the new process: stop, then exec the command.
pub(crate) fn exec_stopped(command: &[OsString]) -> anyhow::Result<ExitCode> {
    let [path, name, arguments @ ..] = command else {
        bail!("{} needs a path and a name", ARGUMENTS.join(" "));
    };
    set_pdeathsig(Signal::SIGKILL)?;
    raise(Signal::SIGSTOP)?;
    set_pdeathsig(None)?;
    SigSet::empty().thread_set_mask()?;
    let error = Command::new(path).arg0(name).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start `{}`", Path::new(path).display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(words: &[&str]) -> anyhow::Result<Program> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Program::find(&words)
    }

    #[test]
    fn commands_are_found_before_anything_is_started() {
        assert!(find(&["sh", "-c", "true"]).unwrap().path.is_absolute());
        for bad in ["no-such-command-here", "/etc/passwd", "/tmp", "./none"] {
            let error = format!("{:#}", find(&[bad]).unwrap_err());
            assert!(error.contains(bad), "{error}");
        }
    }

    #[test]
    fn failures_are_told_and_successes_are_not() {
        let pid = Pid::from_raw(1);
        assert_eq!(failure(WaitStatus::Exited(pid, 0)), None);
        assert!(failure(WaitStatus::Exited(pid, 3))
            .unwrap()
            .contains("code 3"));
        let killed = WaitStatus::Signaled(pid, Signal::SIGSEGV, false);
        assert!(failure(killed).unwrap().contains("SIGSEGV"));
    }
}
