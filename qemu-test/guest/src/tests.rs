// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests: one file a promise, one function a test, one line of tags above each.
//!
//! ```text
//! test! { core, a_full_ring_is_counted, module, cpus = 2, seconds = 120 }
//! ```
//!
//! `core` runs in `make test`, `full` in `make test-full` alone. The others are fields of
//! [`Test`], and may be left away.

/// Registers a test. It has the name of its function, which takes no argument.
macro_rules! test {
    ($run:ident, $name:ident $(, $tag:ident $(= $value:tt)?)* $(,)?) => {
        inventory::submit! {
            crate::tests::Test {
                $($tag: test!(@ $($value)?),)*
                ..crate::tests::Test::new(test!(@ $run), stringify!($name), $name, file!(), line!())
            }
        }
    };
    (@) => { true };
    (@ core) => { true };
    (@ full) => { false };
    (@ FaultInjection) => { Some(crate::tests::Needs::FaultInjection) };
    (@ StockKernel) => { Some(crate::tests::Needs::StockKernel) };
    (@ $value:literal) => { $value };
}

mod abi;
mod agent;
mod agreement;
mod attach;
mod batches;
mod build_ids;
mod capacity;
mod capsule;
mod coexistence;
mod conservation;
mod containers;
mod copies;
mod counted_stacks;
mod cpu_times;
mod ctf_export;
mod cut_short;
mod every_record;
mod fault_injection;
mod fetching;
mod filters;
mod first_calls;
mod flight;
mod follow;
mod frozen;
mod garbage;
mod generated;
mod go;
pub(crate) mod harness;
mod hostile_names;
mod hostile_stacks;
mod inside;
mod late_stacks;
mod leaks;
mod lifetime;
mod limits;
mod loading;
mod machine;
mod mappings;
mod mounted_files;
mod moved_text;
mod mute_server;
mod names_after_exit;
mod names_debuginfod;
mod names_files;
mod names_mute;
mod names_runtimes;
mod naming;
mod off_cpu;
mod opened_files;
mod packages;
mod permissions;
mod profile;
mod program;
mod readers;
mod readme;
mod refusals;
mod returns;
mod rows;
mod runtimes;
mod semaphores;
mod shares;
mod short_of_memory;
mod sinks;
mod spans;
mod specs;
mod stack_ids;
mod stack_kinds;
mod stack_memory;
mod stacks;
mod static_probes;
mod stepped;
mod task_capsules;
mod task_dump;
mod task_options;
mod task_requests;
mod task_storm;
mod task_switches;
mod task_top;
mod task_views;
mod tasks;
mod unwind;
mod verify;
mod volume;
mod waits;
mod witness;
mod worker;
mod writes;

use std::process::ExitCode;

/// A test: what it promises is its name.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) run: fn(),
    /// It runs in `make test`.
    core: bool,
    /// It needs the module and the victims alone, and 512 MB: it runs where the kernel checks
    /// its memory.
    pub(crate) module: bool,
    /// CPUs that run at the same time.
    pub(crate) cpus: u32,
    /// How long it may take on an idle machine; [`Test::limit_s`] ends it.
    pub(crate) seconds: u64,
    pub(crate) needs: Option<Needs>,
    place: (&'static str, u32),
}

/// What only some kernels have.
#[derive(Clone, Copy)]
pub(crate) enum Needs {
    /// Debug kernels (`scripts/debug-kernel.sh`).
    FaultInjection,
    /// Debian's: descriptions of types, suspend, and no lockdep, which finds a circle of stock
    /// locks where a group's disk is limited.
    StockKernel,
}

impl Test {
    pub(crate) const fn new(
        core: bool,
        name: &'static str,
        run: fn(),
        file: &'static str,
        line: u32,
    ) -> Test {
        Test {
            name,
            run,
            core,
            module: false,
            cpus: 1,
            seconds: 60,
            needs: None,
            place: (file, line),
        }
    }

    /// Seconds until it counts as hanging: a busy machine takes twice as long.
    pub(crate) fn limit_s(&self) -> u64 {
        2 * self.seconds
    }

    /// `NAME LIMIT [TAG…]`, as the runner reads it; the limit is in seconds.
    fn line(&self) -> String {
        let tags = [
            (self.core, "core"),
            (self.module, "module"),
            (self.cpus > 1, "cpus=2"),
            (matches!(self.needs, Some(Needs::FaultInjection)), "faults"),
            (matches!(self.needs, Some(Needs::StockKernel)), "stock"),
        ];
        let tags = tags.iter().filter(|(has, _)| *has).map(|(_, tag)| *tag);
        let mut line = format!("{} {}", self.name, self.limit_s());
        tags.for_each(|tag| line += &format!(" {tag}"));
        line
    }
}

inventory::collect!(Test);

/// All tests, in the order of their files.
pub(crate) fn all() -> Vec<&'static Test> {
    let mut all: Vec<&Test> = inventory::iter::<Test>.into_iter().collect();
    all.sort_by_key(|test| test.place);
    all
}

/// All tests as the runner reads them, a line each.
pub(crate) fn list() -> Vec<String> {
    all().into_iter().map(Test::line).collect()
}

/// What helper processes of tests do: `--role NAME ARGUMENT…`.
pub(crate) fn play(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["reader", file, offset] => lifetime::read_for_ever(file, offset),
        ["attach-many", pid] => batches::attach_for_ever(pid),
        ["open"] => permissions::open(),
        ["open-in-user-namespace"] => permissions::open_in_user_namespace(),
        ["take-kernel-stack"] => permissions::take_kernel_stack(),
        [agreement::SILENT, words @ ..] => agreement::silent(words),
        _ => ExitCode::from(2),
    }
}
