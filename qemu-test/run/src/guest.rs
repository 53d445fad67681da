// SPDX-License-Identifier: MIT OR Apache-2.0
//! One boot of the guest: starts QEMU, passes its output on, judges the end.
//!
//! The guest has two channels: its terminal (QEMU's stdout) and the kernel's
//! console (a file that is read while it grows). It shares two folders with
//! the host: the payload, read-only, and `out`, where the command lies that
//! the guest's init runs.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::{oops, trouble};

/// What to boot and how long to wait.
#[derive(Clone)]
pub(crate) struct Guest {
    /// The project's folder.
    pub(crate) project: PathBuf,
    /// The image's folder, from `scripts/image.sh`.
    pub(crate) image: PathBuf,
    pub(crate) payload: PathBuf,
    /// Where the run's logs and the guest's files go.
    pub(crate) folder: PathBuf,
    /// "kvm", "tcg" or another word of scripts/qemu.sh.
    pub(crate) accel: String,
    /// CPUs and memory as QEMU takes them; none: what scripts/qemu.sh gives.
    pub(crate) cpus: Option<u32>,
    pub(crate) memory: Option<String>,
    /// More words for the kernel's command line.
    pub(crate) append: String,
    /// The run's whole time.
    pub(crate) timeout: Duration,
    /// The longest time without a sign of life.
    pub(crate) silence: Duration,
    /// Show the kernel's console on stderr.
    pub(crate) verbose: bool,
    /// Ends all guests that share it: the run cannot go on.
    pub(crate) stop: Arc<AtomicBool>,
    /// How fast the host's time stamp counter counts, in kHz.
    pub(crate) tsc_khz: u64,
}

/// Who reads the guest's terminal.
pub(crate) enum Terminal<'a> {
    /// The person at this one.
    Inherit,
    /// A function, piece by piece.
    Pipe(&'a mut dyn FnMut(&[u8])),
}

/// How a boot ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The command's exit status; none when the guest never told.
    pub(crate) status: Option<i32>,
    /// Sentences about what went wrong; empty after a good run.
    pub(crate) problems: Vec<String>,
    /// The console's first line of kernel trouble.
    pub(crate) trouble: Option<String>,
    /// Whether the command was started at all.
    pub(crate) running: bool,
}

/// After kernel trouble the guest may say the rest, for this long.
const LAST_WORDS: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(20);

/// How often a guest is booted whose kernel dies of QEMU's own doing (see `oops`) before
/// anything of ours has run: about one boot in 100 with several CPUs on a busy host.
const BOOTS: usize = 3;

impl Guest {
    /// One for unit tests, which boots nothing.
    #[cfg(test)]
    pub(crate) fn in_folder(folder: &Path) -> Guest {
        Guest {
            project: folder.to_owned(),
            image: folder.to_owned(),
            payload: folder.to_owned(),
            folder: folder.to_owned(),
            accel: "tcg".into(),
            cpus: None,
            memory: None,
            tsc_khz: 0,
            append: String::new(),
            timeout: Duration::MAX,
            silence: Duration::MAX,
            verbose: false,
            stop: Arc::default(),
        }
    }

    /// What it is, for a person.
    pub(crate) fn in_words(&self) -> String {
        let cpus = match self.cpus {
            Some(1) => String::from("1 CPU"),
            Some(cpus) => format!("{cpus} CPUs"),
            None => env::var("SMP").map_or_else(|_| "2 CPUs".into(), |smp| format!("{smp} CPUs")),
        };
        format!("{cpus}, {}", self.accel)
    }

    /// More words for the kernel's command line.
    pub(crate) fn append(&mut self, words: &str) {
        self.append.push(' ');
        self.append.push_str(words);
    }

    /// Boots, runs the shell script `command` in the guest, and powers off.
    pub(crate) fn run(&self, command: &str, mut terminal: Terminal<'_>) -> Result<Outcome> {
        for died_booting in 0.. {
            let outcome = self.boot(command, &mut terminal)?;
            let is_last = died_booting + 1 == BOOTS;
            if outcome.running || is_last || !self.died_of_qemu()? {
                return Ok(outcome);
            }
            let console = self.console();
            fs::rename(
                &console,
                console.with_extension(format!("boot-{died_booting}.log")),
            )?;
        }
        unreachable!("the last boot returns")
    }

    /// Whether the last boot's kernel died of QEMU's own doing.
    pub(crate) fn died_of_qemu(&self) -> Result<bool> {
        let console = fs::read(self.console())?;
        Ok(oops::is_qemus(&String::from_utf8_lossy(&console)))
    }

    /// The file with what the kernel has printed.
    pub(crate) fn console(&self) -> PathBuf {
        self.folder.join("kernel.log")
    }

    /// What users call this guest: the name of its folder.
    pub(crate) fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn boot(&self, command: &str, terminal: &mut Terminal<'_>) -> Result<Outcome> {
        let out = self.folder.join("out");
        fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
        fs::write(out.join("command"), command)?;
        let console = self.console();
        File::create(&console)?;

        let mut qemu = self.start(&console, &out, terminal)?;
        let mut watch = Watch::new(self, &console)?;
        let ended = match terminal {
            Terminal::Inherit => wait(&mut qemu, &mut watch),
            Terminal::Pipe(sink) => pump(&mut qemu, &mut watch, sink),
        };
        if ended.is_err() || !watch.outcome.problems.is_empty() {
            // It may be gone already; then there is nothing to stop.
            let _ = qemu.kill();
        }
        let exit = qemu.wait()?;
        ended?;
        watch.read_console()?;
        Ok(watch.finish(exit))
    }

    fn start(&self, console: &Path, out: &Path, terminal: &Terminal<'_>) -> Result<Child> {
        let mut command = Command::new(self.project.join("scripts/qemu.sh"));
        command
            .arg(&self.image)
            .arg(&self.accel)
            .arg(console)
            .arg(&self.append);
        command.env("TSC_KHZ", self.tsc_khz.to_string());
        if let Some(cpus) = self.cpus {
            command.env("SMP", cpus.to_string());
        }
        if let Some(memory) = &self.memory {
            command.env("MEMORY", memory);
        }
        let root = self.image.join("root.ext4");
        // snapshot: writes go to a temporary file; runs never see each other.
        command.arg("-drive").arg(format!(
            "file={},if=none,id=root,format=raw,snapshot=on",
            root.display()
        ));
        command.args(["-device", "virtio-blk-pci,drive=root"]);
        for (tag, path, options) in [
            ("payload", self.payload.as_path(), ",readonly=on"),
            ("out", out, ""),
        ] {
            command.arg("-virtfs").arg(format!(
                "local,path={},mount_tag={tag},security_model=none{options}",
                path.display()
            ));
        }
        if let Terminal::Pipe(_) = terminal {
            command.stdin(Stdio::null()).stdout(Stdio::piped());
        }
        command.spawn().context("cannot start scripts/qemu.sh")
    }
}

/// What is known of a running guest, and the clocks that end it.
struct Watch<'a> {
    guest: &'a Guest,
    console: File,
    /// The start of a console line whose end is not written yet.
    partial: Vec<u8>,
    started: Instant,
    last_sign: Instant,
    trouble_since: Option<Instant>,
    outcome: Outcome,
}

impl<'a> Watch<'a> {
    fn new(guest: &'a Guest, console: &Path) -> Result<Self> {
        Ok(Self {
            guest,
            console: File::open(console)?,
            partial: Vec::new(),
            started: Instant::now(),
            last_sign: Instant::now(),
            trouble_since: None,
            outcome: Outcome::default(),
        })
    }

    /// Looks at the console and the clocks; false when the guest must end.
    fn tick(&mut self) -> Result<bool> {
        self.read_console()?;
        let problem = if self.started.elapsed() > self.guest.timeout {
            format!("not done after {} s", self.guest.timeout.as_secs())
        } else if self.last_sign.elapsed() > self.guest.silence {
            format!("silent for {} s", self.guest.silence.as_secs())
        } else if self.guest.stop.load(Ordering::Relaxed) {
            "ended, as the run cannot go on".into()
        } else {
            return Ok(self
                .trouble_since
                .is_none_or(|since| since.elapsed() < LAST_WORDS));
        };
        self.outcome.problems.push(problem);
        Ok(false)
    }

    fn read_console(&mut self) -> Result<()> {
        let before = self.partial.len();
        self.console.read_to_end(&mut self.partial)?;
        if self.partial.len() > before {
            self.last_sign = Instant::now();
        }
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            self.console_line(String::from_utf8_lossy(&line).trim_end());
        }
        Ok(())
    }

    fn console_line(&mut self, line: &str) {
        if self.guest.verbose {
            eprintln!("{line}");
        }
        self.outcome.running |= trouble::running(line);
        if let Some(status) = trouble::verdict(line) {
            if self.outcome.status.replace(status).is_some() {
                self.outcome.problems.push("the guest ended twice".into());
            }
        }
        // One reason is enough: what follows is mostly its echo.
        if self.trouble_since.is_none() {
            if let Some(marker) = trouble::find(line) {
                self.trouble_since = Some(Instant::now());
                let problem = format!("{}: {line}", marker.reason);
                self.outcome.problems.push(problem);
                self.outcome.trouble = Some(line.to_owned());
            }
        }
    }

    fn finish(mut self, qemu: ExitStatus) -> Outcome {
        if self.outcome.problems.is_empty() {
            if !qemu.success() {
                let problem = format!("QEMU failed: {qemu}");
                self.outcome.problems.push(problem);
            } else if self.outcome.status.is_none() {
                let problem = "the guest ended without a verdict".into();
                self.outcome.problems.push(problem);
            }
        }
        self.outcome
    }
}

/// Until QEMU ends by itself or the watch ends it.
fn wait(qemu: &mut Child, watch: &mut Watch<'_>) -> Result<()> {
    while qemu.try_wait()?.is_none() {
        // A person at a shell may think for as long as they like.
        watch.last_sign = Instant::now();
        if !watch.tick()? {
            break;
        }
        thread::sleep(TICK);
    }
    Ok(())
}

/// The same, passing the terminal's output on.
fn pump(qemu: &mut Child, watch: &mut Watch<'_>, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
    let Some(mut output) = qemu.stdout.take() else {
        bail!("QEMU was started without a pipe");
    };
    let mut log = File::create(watch.guest.folder.join("terminal.log"))?;
    let (sender, pieces) = mpsc::channel();
    // Not joined: it ends with the pipe, that is with QEMU.
    thread::spawn(move || {
        let mut buffer = [0; 64 << 10];
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    loop {
        match pieces.recv_timeout(TICK) {
            Ok(piece) => {
                watch.last_sign = Instant::now();
                log.write_all(&piece)
                    .with_context(|| format!("{}: terminal.log", watch.guest.folder.display()))?;
                sink(&piece);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        if !watch.tick()? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_the_kernel_do_not_run_together() {
        let mut guest = Guest::in_folder(Path::new("/nowhere"));
        guest.append("preempt=full");
        guest.append("slab_debug=FZPU");
        assert!(guest.append.ends_with("preempt=full slab_debug=FZPU"));
    }
}
