// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of all tests: one file a promise, one function a test.

mod abi;
mod agreement;
mod attach;
mod batches;
mod capsule;
mod coexistence;
mod conservation;
mod containers;
mod counted_stacks;
mod cpu_times;
mod ctf_export;
mod fetching;
mod filters;
mod flight;
mod follow;
mod garbage;
mod generated;
pub(crate) mod harness;
mod hostile_stacks;
mod inside;
mod lifetime;
mod limits;
mod mappings;
mod names_after_exit;
mod names_debuginfod;
mod names_files;
mod names_mute;
mod names_packages;
mod names_runtimes;
mod names_split;
mod naming;
mod permissions;
mod program;
mod readers;
mod refusals;
mod returns;
mod rows;
mod runtimes;
mod semaphores;
mod sinks;
mod spans;
mod specs;
mod stack_ids;
mod stack_kinds;
mod stacks;
mod static_probes;
mod task_dump;
mod task_requests;
mod task_storm;
mod task_switches;
mod task_views;
mod tasks;
mod unwind;
mod updates;
mod verify;
mod volume;
mod witness;
mod worker;
mod writes;

use std::process::ExitCode;

/// A test: what it promises is its name.
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) run: fn(),
    /// Seconds until it counts as hanging.
    pub(crate) limit_s: u64,
}

/// Lists a file's tests; `name: N` gives one N seconds.
macro_rules! tests {
    ($($name:ident $(: $limit:literal)?),+ $(,)?) => {
        pub(crate) const TESTS: &[crate::tests::Test] = &[$(crate::tests::Test {
            name: stringify!($name),
            run: $name,
            limit_s: [60 $(, $limit)?][[60 $(, $limit)?].len() - 1],
        }),+];
    };
}
use tests;

/// All tests in the order in which they run.
pub(crate) fn all() -> impl Iterator<Item = &'static Test> {
    [
        harness::TESTS,
        abi::TESTS,
        attach::TESTS,
        mappings::TESTS,
        naming::TESTS,
        garbage::TESTS,
        generated::TESTS,
        permissions::TESTS,
        conservation::TESTS,
        batches::TESTS,
        semaphores::TESTS,
        filters::TESTS,
        writes::TESTS,
        verify::TESTS,
        lifetime::TESTS,
        limits::TESTS,
        coexistence::TESTS,
        flight::TESTS,
        stacks::TESTS,
        stack_ids::TESTS,
        counted_stacks::TESTS,
        ctf_export::TESTS,
        stack_kinds::TESTS,
        hostile_stacks::TESTS,
        worker::TESTS,
        unwind::TESTS,
        rows::TESTS,
        agreement::TESTS,
        returns::TESTS,
        fetching::TESTS,
        sinks::TESTS,
        spans::TESTS,
        readers::TESTS,
        refusals::TESTS,
        program::TESTS,
        specs::TESTS,
        static_probes::TESTS,
        containers::TESTS,
        inside::TESTS,
        runtimes::TESTS,
        follow::TESTS,
        names_files::TESTS,
        names_after_exit::TESTS,
        names_runtimes::TESTS,
        names_packages::TESTS,
        names_split::TESTS,
        names_mute::TESTS,
        names_debuginfod::TESTS,
        updates::TESTS,
        tasks::TESTS,
        task_dump::TESTS,
        task_requests::TESTS,
        task_storm::TESTS,
        task_switches::TESTS,
        cpu_times::TESTS,
        task_views::TESTS,
        capsule::TESTS,
        capsule::endings::TESTS,
        witness::TESTS,
        volume::TESTS,
    ]
    .into_iter()
    .flatten()
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
        _ => ExitCode::from(2),
    }
}
