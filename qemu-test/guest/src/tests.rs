// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of all tests: one file a promise, one function a test.

mod abi;
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
mod fault_injection;
mod fetching;
mod filters;
mod flight;
mod follow;
mod frozen;
pub(crate) mod garbage;
mod generated;
pub(crate) mod harness;
mod hostile_names;
mod hostile_stacks;
mod inside;
mod late_stacks;
mod lifetime;
mod limits;
mod loading;
mod machine;
mod mappings;
mod mounted_files;
mod moved_text;
mod names_after_exit;
mod names_debuginfod;
mod names_files;
mod names_mute;
mod names_packages;
mod names_runtimes;
mod names_split;
mod naming;
mod opened_files;
mod permissions;
mod program;
mod readers;
mod refusals;
mod returns;
mod rows;
mod runtimes;
mod semaphores;
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
mod updates;
mod verify;
mod volume;
mod waits;
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

/// How many times longer a test may take beside other work than alone.
const BUSY: u64 = 2;

/// Lists a file's tests. Alone, each may take 60 seconds, or N by `name: N`.
macro_rules! tests {
    ($($name:ident $(: $limit:literal)?),+ $(,)?) => {
        pub(crate) const TESTS: &[crate::tests::Test] = &[$(crate::tests::Test {
            name: stringify!($name),
            run: $name,
            limit_s: crate::tests::BUSY * [60 $(, $limit)?][[60 $(, $limit)?].len() - 1],
        }),+];
    };
}
use tests;

/// Tests that need CPUs that run at the same time: races, and what is counted for each CPU.
/// They have a guest with two. All others run in guests with one.
const TWO_CPUS: &[&str] = &[
    "a_cpu_that_comes_online_records",
    "a_cpu_that_goes_offline_keeps_what_it_recorded",
    "a_file_that_its_parser_does_not_get_through_costs_its_own_names_only",
    "a_filter_goes_when_no_handler_reads_it",
    "a_filter_is_changed_while_probes_are_hit",
    "a_fork_storm_is_told_whole",
    "a_session_ends_behind_the_fork_that_it_follows",
    "a_size_that_changes_meanwhile_counts_as_it_was_first",
    "a_sleeper_is_told_by_whom_it_is_woken_and_where",
    "a_storm_of_signals_loses_nothing",
    "a_task_that_is_moved_while_it_runs_is_counted_by_group",
    "a_task_that_never_gives_up_its_cpu_is_counted",
    "arguments_that_change_meanwhile_do_no_harm",
    "attach_and_detach_under_fire",
    "events_of_tasks_end_behind_those_under_way",
    "forks_go_on_while_thousands_are_attached",
    "forty_eight_hostile_stacks_end",
    "functions_of_node_in_a_container_are_named",
    "hostile_stacks_end_by_rows_as_well",
    "killed_readers_leave_no_probe",
    "losses_are_told_by_cpu",
    "many_threads_on_all_cpus_are_counted_exactly",
    "no_consumer_position_does_harm",
    "parsers_are_there_before_the_first_hit",
    "read_gives_the_oldest_record_of_all_rings",
    "rows_stay_until_no_stack_goes_by_them",
    "sessions_close_and_the_module_goes_under_a_storm",
    "switches_and_wake_ups_are_as_many_as_tracefs_counts",
    "the_counters_balance_while_hits_go_on",
    "the_module_stays_until_a_late_stack_is_taken",
    "threads_on_all_cpus_share_a_table",
    "two_readers_share_the_records",
    "writers_on_all_cpus_leave_whole_records",
];

/// Tests of the module itself: files that need no container and no program but the victims.
/// They run where the kernel checks its memory closely, and those that are quick for each
/// commit where it does not.
const OF_THE_MODULE: &[&[Test]] = &[
    abi::TESTS,
    attach::TESTS,
    mappings::TESTS,
    garbage::TESTS,
    permissions::TESTS,
    conservation::TESTS,
    batches::TESTS,
    semaphores::TESTS,
    lifetime::TESTS,
    limits::TESTS,
    capacity::TESTS,
    short_of_memory::TESTS,
    loading::TESTS,
    waits::TESTS,
    machine::TESTS,
    frozen::TESTS,
    cut_short::TESTS,
    moved_text::TESTS,
    mounted_files::TESTS,
    stacks::TESTS,
    build_ids::TESTS,
    stack_ids::TESTS,
    stack_kinds::TESTS,
    stack_memory::TESTS,
    late_stacks::TESTS,
    hostile_stacks::TESTS,
    stepped::TESTS,
    returns::TESTS,
    fetching::TESTS,
    sinks::TESTS,
    spans::TESTS,
    readers::TESTS,
    tasks::TESTS,
    task_dump::TESTS,
    task_requests::TESTS,
    task_switches::TESTS,
    cpu_times::TESTS,
];

/// Tests in which the module takes all of its locks, and in which sessions, probes and readers
/// come and go: the quick ones also run where the kernel checks locks, contexts and RCU, at each
/// merge.
const CORE: &[&[Test]] = &[
    attach::TESTS,
    mappings::TESTS,
    conservation::TESTS,
    semaphores::TESTS,
    filters::TESTS,
    limits::TESTS,
    sinks::TESTS,
    spans::TESTS,
    readers::TESTS,
    tasks::TESTS,
];

/// Tests of the module for which the guest in which memory is checked has too little of it, or
/// where how long things take means nothing.
const STOCK_ONLY: &[&str] = &[
    "a_suspend_that_freezes_all_tasks_loses_no_hit",
    "forks_go_on_while_thousands_are_attached",
    "ten_thousand_tasks_are_dumped_in_a_moment",
];

/// Tests that need what debug kernels do not have: descriptions of their types, and suspend.
const STOCK_KERNEL: &[&str] = &[
    "a_kernel_that_is_locked_down_lets_nothing_be_traced",
    "a_suspend_that_freezes_all_tasks_loses_no_hit",
];

/// Tests that limit how often a group reads a disk. Stock lockdep finds a circle of locks in
/// that alone: `blkg_conf_prep` allocates memory of each CPU with `blkcg_mutex` held, which
/// reclaim may wait for.
const LIMITED_DISK: &[&str] = &[
    "a_session_goes_while_stacks_wait_and_the_module_stays",
    "stacks_that_wait_beyond_the_last_end_with_a_fault",
];

/// Tests that count the kernel's memory. KASAN keeps what was freed for a while, and the
/// stacks of each allocation for ever.
const MEMORY: &[&str] = &[
    "killed_readers_leave_no_probe",
    "memory_that_grows_is_seen",
    "sessions_leave_no_memory",
    "sessions_of_tasks_leave_no_memory",
    "the_module_loads_and_unloads_a_hundred_times",
    "what_fails_costs_no_memory",
];

/// Tests that reach their whole figure in the long run alone (`figures.rs`).
const IN_PARTS: &[&str] = &[
    "a_debugger_sees_the_same_stacks_of_cpp_and_rust",
    "a_debugger_sees_the_same_stacks_of_go",
    "a_debugger_sees_the_same_stacks_of_interpreters",
    "a_debugger_sees_the_same_stacks_of_servers",
    "a_debugger_sees_the_same_stacks_of_tools",
    "a_fork_storm_is_told_whole",
    "a_killed_program_leaves_nothing",
    "a_killed_recorder_leaves_what_it_wrote",
    "a_removed_or_replaced_program_is_named_by_its_own_names",
    "every_recorded_hit_is_in_the_capsule",
    "first_stacks_of_fresh_containers_are_whole",
    "killed_readers_leave_no_probe",
    "processes_that_are_gone_with_their_container_are_named",
];

pub(crate) fn is_in_parts(name: &str) -> bool {
    IN_PARTS.contains(&name)
}

/// Tests that are too slow for each commit although they are not for each merge.
const SLOW_S: u64 = BUSY * 60;

/// All tests as the runner reads them, a line each: name, limit in seconds, tags.
pub(crate) fn list() -> Vec<String> {
    let named = [
        TWO_CPUS,
        STOCK_ONLY,
        LIMITED_DISK,
        STOCK_KERNEL,
        MEMORY,
        IN_PARTS,
    ];
    for name in named.into_iter().flatten() {
        assert!(all().any(|test| test.name == *name), "no test: {name}");
    }
    all().map(listed).collect()
}

fn listed(test: &Test) -> String {
    let is_in = |files: &[&[Test]]| {
        let mut tests = files.iter().copied().flatten();
        tests.any(|other| other.name == test.name)
    };
    let is_of_the_module = is_in(OF_THE_MODULE);
    let is_quick = test.limit_s <= SLOW_S;
    let tags = [
        ("two-cpus", TWO_CPUS.contains(&test.name)),
        ("module", is_of_the_module),
        ("quick", is_of_the_module && is_quick),
        ("core", is_in(CORE) && is_quick),
        ("memory", MEMORY.contains(&test.name)),
        ("stock-only", STOCK_ONLY.contains(&test.name)),
        ("limited-disk", LIMITED_DISK.contains(&test.name)),
        ("stock-kernel", STOCK_KERNEL.contains(&test.name)),
        ("in-parts", is_in_parts(test.name)),
        ("faults", is_in(&[fault_injection::TESTS])),
    ];
    let tags = tags.iter().filter(|(_, has)| *has);
    let tags = tags.map(|(tag, _)| *tag).collect::<Vec<_>>();
    let tags = if tags.is_empty() {
        String::from("-")
    } else {
        tags.join(",")
    };
    format!("{} {} {tags}", test.name, test.limit_s)
}

/// All tests, file by file.
pub(crate) fn all() -> impl Iterator<Item = &'static Test> {
    [
        harness::TESTS,
        abi::TESTS,
        attach::TESTS,
        mappings::TESTS,
        naming::TESTS,
        garbage::TESTS,
        fault_injection::TESTS,
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
        capacity::TESTS,
        short_of_memory::TESTS,
        loading::TESTS,
        waits::TESTS,
        machine::TESTS,
        frozen::TESTS,
        cut_short::TESTS,
        moved_text::TESTS,
        mounted_files::TESTS,
        coexistence::TESTS,
        flight::TESTS,
        stacks::TESTS,
        build_ids::TESTS,
        stack_ids::TESTS,
        counted_stacks::TESTS,
        ctf_export::TESTS,
        stack_kinds::TESTS,
        stack_memory::TESTS,
        late_stacks::TESTS,
        hostile_stacks::TESTS,
        stepped::TESTS,
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
        copies::TESTS,
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
        hostile_names::TESTS,
        opened_files::TESTS,
        updates::TESTS,
        tasks::TESTS,
        task_dump::TESTS,
        task_requests::TESTS,
        task_storm::TESTS,
        task_switches::TESTS,
        cpu_times::TESTS,
        task_views::TESTS,
        task_top::TESTS,
        task_capsules::TESTS,
        task_options::TESTS,
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
        ["lock-down"] => permissions::lock_down_step_by_step(),
        ["locked-down"] => permissions::locked_down(),
        ["take-kernel-stack"] => permissions::take_kernel_stack(),
        [agreement::SILENT, words @ ..] => agreement::silent(words),
        _ => ExitCode::from(2),
    }
}
