// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots the guest and runs something in it: the tests, the demo, a shell or
//! one command.
//!
//! Exit status: of `exec` the command's own; else 0, 1 when a test failed, 2 when no test is
//! called so. Always 69 when the run itself could not be done.

mod carried;
mod catalogue;
mod clock;
mod controls;
mod guest;
mod host;
mod ktap;
mod oops;
mod plan;
mod preflight;
mod report;
mod results;
mod suite;
mod trouble;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use clap::{Args, Parser, Subcommand};

use guest::{Guest, Terminal};
use plan::Plan;

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
    #[arg(long, global = true, default_value_t = 3600)]
    timeout: u64,
    /// Seconds without any output until a run is ended [default: more than any test may take,
    /// which says nothing before its end]
    #[arg(long, global = true)]
    silence: Option<u64>,
    /// Shows the kernel's console as well, on stderr
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs the guest's tests
    Test(Selection),
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

#[derive(Args)]
struct Selection {
    /// Runs these tests alone, each in a guest of its kind
    #[arg(long, value_delimiter = ',', conflicts_with = "shard")]
    only: Vec<String>,
    /// Runs the core tests of one guest alone
    #[arg(long, value_parser = ["a", "b"], conflicts_with_all = ["only", "shard"])]
    core: Option<String>,
    /// Runs a shard of the full run's guests (1 to 8)
    #[arg(long)]
    shard: Option<usize>,
}

/// The run could not be done (`EX_UNAVAILABLE` of sysexits.h).
const UNAVAILABLE: u8 = 69;

/// For `--sanitize`: KFENCE guards 32 allocations a tick (once a tenth of its places are taken,
/// only those of stacks of which it guards none yet); freed memory is filled; and a task that
/// hangs is reported after a minute, with the stacks of all: what it waits for is held by one
/// that may not hang itself. (The host's disk may stand still for 20 seconds.)
const SANITIZE: &str = "nsprobe.kfence kfence.burst=31 kfence.skip_covered_thresh=10 \
                        slab_debug=FZPU page_poison=1 sysctl.kernel.hung_task_timeout_secs=60 \
                        sysctl.kernel.hung_task_sys_info=tasks";

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
    let victims: &[&OsStr] = match &cli.verb {
        Verb::Demo => &["decoy".as_ref()],
        _ => &[],
    };
    let guest = prepare(&cli.options, victims)?;
    // Its files are those of the build, as long as that does not change them.
    let kept = guest.payload.clone();
    let status = match &cli.verb {
        Verb::Test(selection) => test(&guest, selection),
        Verb::Demo => demo(&guest),
        Verb::Shell => shell(guest),
        Verb::Exec { command } => {
            let words: Vec<_> = command.iter().map(|word| quote(word)).collect();
            exec(&guest, &format!("exec {}", words.join(" ")))
        }
    };
    fs::remove_dir_all(&kept).with_context(|| kept.display().to_string())?;
    status
}

/// Of the victims these, or all.
fn prepare(options: &Options, victims: &[&OsStr]) -> Result<Guest> {
    let project = project()?;
    let script = |name: &str, arguments: &[&OsStr]| output(&project.join(name), arguments);
    let image = match &options.guest {
        Some(folder) => folder.clone(),
        None => script("scripts/image.sh", &[])?.into(),
    };
    let payload = match &options.payload {
        Some(folder) => folder.clone(),
        None => script("scripts/payload.sh", victims)?.into(),
    };
    if !payload.join("init").exists() {
        bail!(
            "{} has no init: scripts/payload.sh makes a payload",
            payload.display()
        );
    }
    preflight::same_kernel(&image, &payload)?;
    let accel = script("scripts/accel.sh", &[image.as_os_str()])?;
    let sanitize = if options.sanitize { SANITIZE } else { "" };
    let folder = run_folder(&project)?;
    preflight::room(&folder)?;
    let payload = preflight::keep(&payload, &folder)?;
    Ok(Guest {
        folder,
        append: format!("{sanitize} {}", options.append),
        cpus: None,
        memory: None,
        tsc_khz: clock::tsc_khz(),
        stop: Arc::default(),
        timeout: Duration::from_secs(options.timeout),
        silence: Duration::from_secs(options.silence.unwrap_or_else(|| silence_s(&payload))),
        verbose: options.verbose,
        project,
        image,
        payload,
        accel,
    })
}

/// What a guest may need beyond the limit of a test until it says so, in seconds: to end it,
/// and to look at what it left.
const BEYOND_S: u64 = 120;

/// How long a guest may be silent, which is as long as the longest of its tests may run.
fn silence_s(payload: &Path) -> u64 {
    // Without tests there is none to wait for.
    let tests = catalogue::read(payload).unwrap_or_default();
    catalogue::longest_s(&tests) + BEYOND_S
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

fn test(guest: &Guest, selection: &Selection) -> Result<u8> {
    match Plan::new(guest, selection)? {
        Ok(plan) => suite::run(&plan, guest),
        Err(error) => {
            eprintln!("qemu-test: {error:#}");
            Ok(USAGE)
        }
    }
}

/// Wrong usage, such as a test that is not there.
const USAGE: u8 = 2;

/// How often the demo begins anew when its kernel dies of QEMU's own doing (see `oops`).
const DEMOS: usize = 3;

fn demo(guest: &Guest) -> Result<u8> {
    let mut status = exec(guest, "exec /payload/demo")?;
    for _ in 1..DEMOS {
        if status != UNAVAILABLE || !guest.died_of_qemu()? {
            break;
        }
        eprintln!("qemu-test: QEMU has run stale text of the kernel, which killed it: once more");
        status = exec(guest, "exec /payload/demo")?;
    }
    if status == 0 {
        let picture = Path::new("build/demo/redis.svg");
        fs::create_dir_all("build/demo")?;
        fs::copy(guest.folder.join("out/redis.svg"), picture)?;
        println!("Its picture: {}", picture.display());
    }
    Ok(status)
}

fn exec(guest: &Guest, command: &str) -> Result<u8> {
    let mut outcome = guest.run(command, Terminal::Pipe(&mut show))?;
    outcome.problems.extend(carried::problems(guest, false)?);
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
    guest.append("nsprobe.tty");
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
