// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots the guest and runs something in it: the tests, the demo, a shell or
//! one command.
//!
//! Exit status: of `exec` the command's own; else 0, 1 when a test failed.
//! Always 69 when the run itself could not be done.

mod carried;
mod guest;
mod ktap;
mod report;
mod trouble;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use clap::{Args, Parser, Subcommand};

use guest::{Guest, Terminal};

/// Boots the guest and runs something in it.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Args)]
struct Options {
    /// The image's folder [default: what scripts/image.sh makes]
    #[arg(long, global = true)]
    guest: Option<PathBuf>,
    /// What the guest sees as /payload [default: what scripts/payload.sh collects]
    #[arg(long, global = true)]
    payload: Option<PathBuf>,
    /// Checks memory much more closely and is slower for it
    #[arg(long, global = true)]
    sanitize: bool,
    /// More words for the kernel's command line
    #[arg(long, global = true, default_value = "")]
    append: String,
    /// Seconds until a run that does not end is ended
    #[arg(long, global = true, default_value_t = 4200)]
    timeout: u64,
    /// Seconds without any output until a run is ended: more than a test may take, which says
    /// nothing before its end
    #[arg(long, global = true, default_value_t = 600)]
    silence: u64,
    /// Shows the kernel's console as well, on stderr
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs the guest's tests
    Test {
        /// Runs the test of this name alone
        #[arg(long)]
        only: Option<String>,
    },
    /// Traces a program in a container, for show
    Demo,
    /// Opens a shell in the guest; its end powers the guest off
    Shell,
    /// Runs a command in the guest and ends with its exit status
    Exec {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

/// The run could not be done (`EX_UNAVAILABLE` of sysexits.h).
const UNAVAILABLE: u8 = 69;

/// For `--sanitize`: each allocation may be guarded, freed memory is filled,
/// and a task that hangs is told after 20 seconds.
const SANITIZE: &str = "kfence.sample_interval=1 slab_debug=FZPU page_poison=1 \
                        sysctl.kernel.hung_task_timeout_secs=20";

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("qemu-test: {error:#}");
            ExitCode::from(UNAVAILABLE)
        }
    }
}

fn run(cli: &Cli) -> Result<u8> {
    let guest = prepare(&cli.options)?;
    match &cli.verb {
        Verb::Test { only } => test(guest, only.as_deref()),
        Verb::Demo => exec(&guest, "exec /payload/demo"),
        Verb::Shell => shell(guest),
        Verb::Exec { command } => {
            let words: Vec<_> = command.iter().map(|word| quote(word)).collect();
            exec(&guest, &format!("exec {}", words.join(" ")))
        }
    }
}

fn prepare(options: &Options) -> Result<Guest> {
    let project = project()?;
    let script = |name: &str, arguments: &[&OsStr]| output(&project.join(name), arguments);
    let image = match &options.guest {
        Some(folder) => folder.clone(),
        None => script("scripts/image.sh", &[])?.into(),
    };
    let payload = match &options.payload {
        Some(folder) => folder.clone(),
        None => script("scripts/payload.sh", &[])?.into(),
    };
    if !payload.join("init").exists() {
        bail!(
            "{} has no init: scripts/payload.sh makes a payload",
            payload.display()
        );
    }
    let accel = script("scripts/accel.sh", &[image.as_os_str()])?;
    let sanitize = if options.sanitize { SANITIZE } else { "" };
    Ok(Guest {
        folder: run_folder(&project)?,
        append: format!("{sanitize} {}", options.append),
        timeout: Duration::from_secs(options.timeout),
        silence: Duration::from_secs(options.silence),
        verbose: options.verbose,
        project,
        image,
        payload,
        accel,
    })
}

/// The folder above this one that holds the scripts.
fn project() -> Result<PathBuf> {
    let here = env::current_dir()?;
    here.ancestors()
        .find(|folder| folder.join("scripts/qemu.sh").exists())
        .map(Path::to_owned)
        .context("run this inside of the project's folder")
}

/// What a script prints; its progress goes to our stderr.
fn output(script: &Path, arguments: &[&OsStr]) -> Result<String> {
    let output = Command::new(script)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| script.display().to_string())?;
    if !output.status.success() {
        bail!("{} failed", script.display());
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// A new folder for this run's logs, also known as `latest`.
fn run_folder(project: &Path) -> Result<PathBuf> {
    let time = output(Path::new("date"), &["+%Y%m%d-%H%M%S".as_ref()])?;
    let name = format!("{time}-{}", std::process::id());
    let parent = project.join("build/test");
    let folder = parent.join(&name);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let latest = parent.join("latest");
    // Runs side by side may race for the link; whose it is does not matter.
    let _ = fs::remove_file(&latest);
    let _ = std::os::unix::fs::symlink(&name, &latest);
    Ok(folder)
}

/// How often a run goes on after QEMU has lost a race; the last time with CPUs that take
/// turns, which cannot lose it.
const GOES_ON: usize = 6;

fn test(mut guest: Guest, only: Option<&str>) -> Result<u8> {
    let chosen = only.map(|name| format!(" --only {}", quote(name)));
    let command = format!(
        "exec /payload/nsprobe-guest-test{}",
        chosen.unwrap_or_default()
    );
    let end = Instant::now().checked_add(guest.timeout);
    let (first, mut outcome) = run_tests(&guest, &command)?;
    let mut parts = vec![first];
    for boot in 1..=GOES_ON {
        if guest.accel != "tcg" || !guest.died_of_patching(&outcome, boot)? {
            break;
        }
        if boot == GOES_ON {
            guest.accel = "turns".into();
        }
        // The time is that of the whole run.
        if let Some(end) = end {
            guest.timeout = end.saturating_duration_since(Instant::now());
        }
        let done: u64 = parts.iter().map(|part| part.verdicts).sum();
        eprintln!(
            "qemu-test: QEMU has lost a race while the kernel patched its own text; going on \
             behind the {done} tests that are done ({})",
            guest.accel
        );
        let (rest, ended) = run_tests(&guest, &format!("{command} --skip {done}"))?;
        parts.push(rest);
        outcome = ended;
    }
    let summary = ktap::Summary::of_parts(parts);
    Ok(report::finish(&guest, summary, &outcome))
}

fn run_tests(guest: &Guest, command: &str) -> Result<(ktap::Summary, guest::Outcome)> {
    let mut lines = report::Lines::default();
    eprintln!("booting the guest ({})", guest.accel);
    let mut outcome = guest.run(
        command,
        Terminal::Pipe(&mut |piece| {
            show(piece);
            lines.feed(piece);
        }),
    )?;
    outcome.problems.extend(carried::problems(guest)?);
    Ok((lines.finish(), outcome))
}

fn exec(guest: &Guest, command: &str) -> Result<u8> {
    let mut outcome = guest.run(command, Terminal::Pipe(&mut show))?;
    outcome.problems.extend(carried::problems(guest)?);
    let status = outcome.status.and_then(|status| u8::try_from(status).ok());
    match status {
        Some(status) if outcome.problems.is_empty() => Ok(status),
        _ => {
            report::problems(guest, &outcome);
            Ok(UNAVAILABLE)
        }
    }
}

fn shell(mut guest: Guest) -> Result<u8> {
    guest.append += " nsprobe.tty";
    guest.timeout = Duration::MAX;
    eprintln!("the payload is /payload; the guest ends with the shell (Ctrl-D)");
    let outcome = guest.run("stty sane; exec bash", Terminal::Inherit)?;
    if outcome.problems.is_empty() {
        return Ok(0);
    }
    report::problems(&guest, &outcome);
    Ok(UNAVAILABLE)
}

/// Passes the guest's output on. A reader who left does not end the run.
fn show(piece: &[u8]) {
    let mut stdout = io::stdout();
    let _ = stdout.write_all(piece).and_then(|()| stdout.flush());
}

/// A word as a shell reads it back.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        for word in ["a b", "it's", "$HOME `x` \\ \" *", "", "'"] {
            let output = Command::new("sh")
                .args(["-c", &format!("printf %s {}", quote(word))])
                .output()
                .expect("every host has sh");
            assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
    }

    #[test]
    fn command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
