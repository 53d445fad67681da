// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: what happens to a task is told when it happens, and as /proc has it.

use crate::group::Group;
use crate::module::Module;
use crate::oracle::within;
use crate::tasks::{InProc, Kept, TaskSession, Told};
use crate::victim;
use libnsprobe::{Filter, TaskOptions};
use nsprobe_common::abi::{
    TaskCount, TASKS_LIFE, TASKS_MOVES, TASKS_NAMES, TASKS_UNFILTERED, TASK_KIND_FORK,
};
use nsprobe_common::task::{
    NAMESPACE_PID_CHILDREN, TASK_ARGS_CUT, TASK_CGROUP, TASK_EXEC, TASK_EXIT, TASK_FORK, TASK_LAST,
    TASK_NAME, TASK_NAMESPACES,
};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// The records of one kind about thread `tid`.
fn about(told: &[Told], what: u16, tid: u32) -> Vec<&Told> {
    let of = |told: &&Told| told.task.what == what && told.tid() == tid;
    told.iter().filter(of).collect()
}

/// The only record of a kind about a thread.
fn only(told: &[Told], what: u16, tid: u32) -> &Told {
    match about(told, what, tid).as_slice() {
        [one] => one,
        all => panic!("{} records of kind {what} about {tid}: {all:?}", all.len()),
    }
}

/// Two numbers that a victim printed.
fn two_numbers(output: &std::process::Output) -> (u32, u32) {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u32>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(one)), Some(Ok(other))) => (one, other),
        _ => panic!("{output:?}"),
    }
}

/// Runs a step of the victim to its end.
fn step(name: &str) -> std::process::Output {
    let mut command = Command::new(victim::path("task_steps"));
    command.arg(name).output().expect("the victim is there")
}

test! { core, a_process_is_made_executes_and_ends, module }
fn a_process_is_made_executes_and_ends() {
    let _module = Module::load();
    let mut session = TaskSession::of_lives();
    let mut child = Command::new("/bin/cat")
        .arg("-")
        .stdin(Stdio::piped())
        .spawn()
        .expect("cat");
    let pid = child.id();
    // Who has spawned it is back before it has its new name.
    let mut told = Vec::new();
    assert!(within(LIMIT, || {
        told.extend(session.told());
        !about(&told, TASK_EXEC, pid).is_empty()
    }));
    let in_proc = InProc::of(pid, pid).expect("it reads");
    // This closes its stdin first.
    let status = child.wait().expect("its end");
    told.extend(session.told());
    let made = only(&told, TASK_FORK, pid);
    assert_eq!(made.maker[0].pid, std::process::id());
    assert_eq!(made.levels[0].ppid, std::process::id());
    let executed = only(&told, TASK_EXEC, pid);
    in_proc.check(executed);
    assert_eq!(executed.args, b"/bin/cat\0-\0");
    assert_eq!(executed.task.value, pid);
    let ended = only(&told, TASK_EXIT, pid);
    assert_eq!(ended.task.value, status.into_raw() as u32);
    assert_ne!(ended.task.flags & TASK_LAST, 0);
    assert_eq!(made.key(), executed.key());
    assert_eq!(made.key(), ended.key());
    assert!(made.task.time_ns < executed.task.time_ns);
    assert!(executed.task.time_ns < ended.task.time_ns);
    session.check_nothing_lost();
}

test! { full, how_processes_and_threads_end_is_told, module }
fn how_processes_and_threads_end_is_told() {
    let _module = Module::load();
    let mut session = TaskSession::of_lives();
    let mut killed = Command::new("sleep").arg("100").spawn().expect("sleep");
    killed.kill().expect("it lives");
    let status = killed.wait().expect("its end");
    let exited = Command::new("sh").args(["-c", "exit 7"]).spawn();
    let mut exited = exited.expect("sh");
    let code = exited.wait().expect("its end");
    let leader_first = Command::new(victim::path("task_steps"))
        .arg("leader-first")
        .spawn();
    let mut leader_first = leader_first.expect("the victim is there");
    let of_second = leader_first.wait().expect("its end");
    let (pid, tid) = two_numbers(&step("other-exit"));
    let told = session.told();
    let ended = only(&told, TASK_EXIT, killed.id());
    assert_eq!((ended.task.value, status.signal()), (9, Some(9)));
    let ended = only(&told, TASK_EXIT, exited.id());
    assert_eq!((ended.task.value, code.code()), (7 << 8, Some(7)));
    // The first thread ends with its own code, the process with that of its last.
    assert_eq!(of_second.code(), Some(5));
    let ended = only(&told, TASK_EXIT, leader_first.id());
    assert_eq!(ended.task.value, 3 << 8);
    assert_eq!(ended.task.flags & TASK_LAST, 0);
    let of_process = |told: &&Told| told.pid() == leader_first.id() && told.task.what == TASK_EXIT;
    let last = told.iter().rfind(of_process).expect("two ends");
    assert_eq!(last.task.value, 5 << 8);
    assert_ne!(last.task.flags & TASK_LAST, 0);
    let ended = only(&told, TASK_EXIT, tid);
    assert_eq!(ended.task.value, 3 << 8);
    assert_eq!(ended.task.flags & TASK_LAST, 0);
    assert_eq!(only(&told, TASK_EXIT, pid).task.value, 6 << 8);
    session.check_nothing_lost();
}

test! { full, events_without_room_are_counted_as_lost, module }
fn events_without_room_are_counted_as_lost() {
    let _module = Module::load();
    let mut session = TaskSession::with_rings(4096);
    session.set(TASKS_LIFE | TASKS_UNFILTERED, 4096);
    for _ in 0..30 {
        let ended = Command::new("true").status();
        assert!(ended.expect("it is there").success());
    }
    // No more of them while they are counted.
    session.set(0, 0);
    let counters = session.session.task_counters().expect("counters");
    assert!(counters.balance(), "{counters:?}");
    let sum = |of: fn(&TaskCount) -> u64| counters.kinds.iter().map(of).sum::<u64>();
    assert!(sum(|kind| kind.lost) > 0, "{counters:?}");
    assert_eq!(sum(|kind| kind.recorded), session.told().len() as u64);
}

test! { full, a_thread_that_executes_takes_its_process_s_number, module }
fn a_thread_that_executes_takes_its_process_s_number() {
    let _module = Module::load();
    let mut session = TaskSession::of_lives();
    let (pid, tid) = two_numbers(&step("exec-in-thread"));
    assert_ne!(pid, tid);
    let told = session.told();
    let executed = about(&told, TASK_EXEC, pid);
    let [_victim, executed] = executed.as_slice() else {
        panic!("{executed:?}");
    };
    assert_eq!(executed.task.value, tid);
    assert_eq!(executed.comm(), "true");
    assert_eq!(executed.args, b"true\0");
    assert!(about(&told, TASK_EXEC, tid).is_empty());
    // The first thread, whose number it took, has ended, and the new first one at last.
    let ends = about(&told, TASK_EXIT, pid);
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert!(ends[0].task.time_ns < executed.task.time_ns);
    assert!(ends[1].task.time_ns > executed.task.time_ns);
    assert!(about(&told, TASK_EXIT, tid).is_empty());
    session.check_nothing_lost();
}

test! { full, names_are_told_as_they_change, module }
fn names_are_told_as_they_change() {
    let _module = Module::load();
    let mut session = TaskSession::recording(TASKS_NAMES);
    let renames = "echo -n 'a name of 19 chars' >/proc/$$/comm; cat /proc/$$/comm; echo >&2";
    let mut shell = Command::new("bash");
    let shell = shell.args(["-c", renames]);
    let named = shell
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("bash");
    let pid = named.id();
    let output = named.wait_with_output().expect("its end");
    let (_, tid) = two_numbers(&step("rename-sibling"));
    let told = session.told();
    let names: Vec<String> = about(&told, TASK_NAME, pid)
        .iter()
        .map(|told| told.comm())
        .collect();
    let last = String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned();
    assert_eq!(last, "a name of 19 ch");
    assert_eq!(names, ["bash".to_owned(), last]);
    let sibling = only(&told, TASK_NAME, tid);
    assert_eq!(sibling.comm(), "renamed-one");
    session.check_nothing_lost();
}

test! { core, tasks_of_nested_namespaces_have_all_their_numbers, module }
fn tasks_of_nested_namespaces_have_all_their_numbers() {
    let _module = Module::load();
    let mut session = TaskSession::of_lives();
    let nested = "exec unshare -pf unshare -pf unshare -pfmuinC sleep 77";
    let _nested = Kept::start("sh", &["-c", nested]);
    let mut told = Vec::new();
    let is_deepest = |told: &Told| told.comm() == "sleep" && told.task.what == TASK_EXEC;
    assert!(within(LIMIT, || {
        told.extend(session.told());
        told.iter().any(is_deepest)
    }));
    let deepest = told.iter().find(|told| is_deepest(told)).expect("found");
    assert_eq!(deepest.levels.len(), 4, "{deepest:?}");
    let in_proc = InProc::of(deepest.pid(), deepest.tid()).expect("it sleeps");
    in_proc.check(deepest);
    let own = deepest.levels.last().expect("four");
    assert_eq!((own.tid, own.pid, own.ppid), (1, 1, 0));
    // Its fork tells the same, with the maker in the three namespaces that see that.
    let made = only(&told, TASK_FORK, deepest.tid());
    assert_eq!(made.levels, deepest.levels);
    assert_eq!(made.maker.len(), 3, "{made:?}");
    assert_eq!(made.maker[0].pid, made.levels[0].ppid);
    assert_eq!(made.maker[2].inum, deepest.levels[2].inum);
    session.check_nothing_lost();
}

test! { full, a_task_put_into_a_namespace_is_told_with_its_maker, module }
fn a_task_put_into_a_namespace_is_told_with_its_maker() {
    let _module = Module::load();
    let mut session = TaskSession::of_lives();
    let _container = Kept::start("unshare", &["-pf", "--kill-child", "sleep", "78"]);
    let mut told = Vec::new();
    let is_init = |told: &Told| told.comm() == "sleep" && told.task.what == TASK_EXEC;
    assert!(within(LIMIT, || {
        told.extend(session.told());
        told.iter().any(is_init)
    }));
    let init = told
        .iter()
        .find(|told| is_init(told))
        .expect("found")
        .clone();
    let (target, uptime) = (init.pid().to_string(), "uptime");
    let mut entered = Command::new("nsenter");
    let entered = entered.args(["-p", "-t", &target, uptime]).output();
    let entered = entered.expect("nsenter");
    assert!(entered.status.success(), "{entered:?}");
    let told = session.told();
    let inside = told
        .iter()
        .find(|told| told.comm() == uptime && told.task.what == TASK_EXEC);
    let inside = inside.expect("it ran");
    let made = only(&told, TASK_FORK, inside.tid());
    assert_eq!(made.levels.len(), 2);
    assert_eq!(made.levels[1].inum, init.levels[1].inum);
    // Its maker, which is its parent, lives outside, where no number of its namespace is.
    assert_eq!(made.levels[1].ppid, 0);
    assert_eq!(made.maker.len(), 1, "{made:?}");
    assert_eq!(made.maker[0].pid, made.levels[0].ppid);
    session.check_nothing_lost();
}

/// The only record of other namespaces of what `unshare FLAGS sleep` does, and the task.
fn unshared(session: &mut TaskSession, flags: &[&str]) -> (Told, Kept) {
    let kept = Kept::start("unshare", &[flags, &["sleep", "79"]].concat());
    let sleeps = || InProc::of(kept.pid(), kept.pid()).is_some_and(|task| task.comm == "sleep");
    assert!(within(LIMIT, sleeps));
    let told = session.told();
    (only(&told, TASK_NAMESPACES, kept.pid()).clone(), kept)
}

test! { full, other_namespaces_are_told_as_they_are_then, module }
fn other_namespaces_are_told_as_they_are_then() {
    let _module = Module::load();
    let mut session = TaskSession::recording(TASKS_MOVES);
    let ours = InProc::of(std::process::id(), std::process::id()).expect("we live");
    for (flag, index) in [
        ("-m", 0),
        ("-u", 1),
        ("-i", 2),
        ("-n", 3),
        ("-U", 4),
        ("-C", 5),
    ] {
        let (told, kept) = unshared(&mut session, &[flag]);
        let in_proc = InProc::of(kept.pid(), kept.pid()).expect("it sleeps");
        assert_eq!(told.task.namespaces, in_proc.namespaces, "{flag}");
        let changed = told.task.namespaces.iter().zip(&ours.namespaces);
        let changed: Vec<usize> = (0..8)
            .zip(changed)
            .filter(|(_, (now, then))| now != then)
            .map(|(index, _)| index)
            .collect();
        assert_eq!(changed, [index], "{flag}: {told:?}");
    }
    // Of its children only: the namespace is not there for others before there is one.
    let (told, _kept) = unshared(&mut session, &["-p"]);
    let of_children = told.task.namespaces[NAMESPACE_PID_CHILDREN];
    assert!(of_children != 0 && of_children != ours.pidns, "{told:?}");
    assert_eq!(told.levels[0].inum, ours.pidns);
    let (target, root) = (std::process::id().to_string(), ["-u", "-n", "true"]);
    let entered = Command::new("nsenter")
        .args(["-t", &target])
        .args(root)
        .output();
    assert!(entered.expect("nsenter").status.success());
    let told = session.told();
    let entered = told.iter().rfind(|told| told.comm() == "nsenter");
    let entered = entered.expect("setns is told");
    assert_eq!(entered.task.namespaces, ours.namespaces);
    session.check_nothing_lost();
}

test! { full, a_move_to_another_group_is_told_of_each_thread, module }
fn a_move_to_another_group_is_told_of_each_thread() {
    let _module = Module::load();
    let group = Group::new("nsprobe-moves");
    let mut session = TaskSession::recording(TASKS_MOVES);
    let victim = victim::path("task_steps");
    let victim = Kept::start(victim.to_str().expect("a plain name"), &["many", "6"]);
    let folder = format!("/proc/{}/task", victim.pid());
    let threads = || fs::read_dir(&folder).map_or(0, |threads| threads.count());
    assert!(within(LIMIT, || threads() == 7));
    group.take(victim.pid());
    let told = session.told();
    let moved: Vec<&Told> = told
        .iter()
        .filter(|told| told.task.what == TASK_CGROUP && told.pid() == victim.pid())
        .collect();
    assert_eq!(moved.len(), 7, "{moved:?}");
    for told in &moved {
        assert_eq!(told.task.cgroup, group.id());
        let in_proc = InProc::of(told.pid(), told.tid()).expect("it waits");
        in_proc.check(told);
    }
    session.check_nothing_lost();
}

test! { full, arguments_are_cut_where_it_was_asked, module }
fn arguments_are_cut_where_it_was_asked() {
    let _module = Module::load();
    let long = "x".repeat(3000);
    for (most, words) in [(0, 1), (1, 1), (16, 1), (100, 1), (4096, 1), (4096, 2)] {
        let mut session = TaskSession::with_rings(4 << 20);
        session.set(TASKS_LIFE, most);
        let mut command = Command::new("true");
        for _ in 0..words {
            command.arg(&long);
        }
        let mut child = command.spawn().expect("true");
        child.wait().expect("its end");
        let told = session.told();
        let executed = only(&told, TASK_EXEC, child.id());
        let whole = format!("true\0{}", format!("{long}\0").repeat(words));
        let expected = &whole.as_bytes()[..whole.len().min(most as usize)];
        assert_eq!(executed.args, expected, "{most}");
        let is_cut = executed.task.flags & TASK_ARGS_CUT != 0;
        assert_eq!(is_cut, most != 0 && whole.len() > most as usize, "{most}");
    }
}

test! { full, the_file_of_a_started_program_can_be_claimed, module }
fn the_file_of_a_started_program_can_be_claimed() {
    let _module = Module::load();
    let mut session = TaskSession::of_lives();
    let folder = format!("/var/tmp/claimed-{}", std::process::id());
    fs::create_dir(&folder).expect("/var/tmp is writable");
    let copy = format!("{folder}/a-copy-of-true");
    fs::copy("/bin/true", &copy).expect("a copy");
    let inode = fs::metadata(&copy).expect("it is there").ino();
    let expected = {
        let file = File::open(&copy).expect("it is there");
        session.session.identify(&file).expect("FILE")
    };
    let mut child = Command::new(&copy).spawn().expect("the copy");
    child.wait().expect("its end");
    fs::remove_dir_all(&folder).expect("it is ours");
    let told = session.told();
    let executed = only(&told, TASK_EXEC, child.id());
    let id = executed.task.object;
    let object = session.session.object(id).expect("OBJECT");
    let object = object.expect("there is such an object");
    assert_eq!((object.dev, object.ino), (expected.dev, expected.ino));
    assert_eq!(object.pid, child.id());
    // The very file, which has no name any more.
    let file = session.session.claim(id).expect("OBJECT").expect("held");
    assert_eq!(file.metadata().expect("open").ino(), inode);
    session.check_nothing_lost();
}

test! { full, children_of_the_listed_are_told_from_their_fork_on, module }
fn children_of_the_listed_are_told_from_their_fork_on() {
    let _module = Module::load();
    let script = "echo up; read line; /bin/true; sh -c '/bin/false; :'";
    let mut shell = Kept::start("sh", &["-c", script]);
    // Who has spawned it is back before its own start is told.
    let output = shell.0.stdout.as_mut().expect("it is piped");
    output.read_exact(&mut [0; 3]).expect("up");
    let mut session = TaskSession::with_rings(4 << 20);
    let filter = Filter::pids([shell.pid()]).with_children();
    session.session.filter(&filter).expect("FILTER");
    let options = TaskOptions {
        flags: TASKS_LIFE,
        args_bytes: 64,
        cpu_rows: 0,
    };
    session.session.set_tasks(&options).expect("TASKS");
    let other = Command::new("/bin/true").output().expect("true");
    assert!(other.status.success());
    let pid = shell.pid();
    drop(shell.0.stdin.take());
    shell.0.wait().expect("its end");
    let told = session.told();
    let kinds = |what| told.iter().filter(|told| told.task.what == what).count();
    // true, sh and false are made, execute and end, as does the shell itself.
    assert_eq!(
        [TASK_FORK, TASK_EXEC, TASK_EXIT].map(kinds),
        [3, 3, 4],
        "{told:?}"
    );
    let first = &told[0];
    assert_eq!((first.task.what, first.maker[0].pid), (TASK_FORK, pid));
    let counters = session.session.task_counters().expect("counters");
    assert!(counters.balance(), "{counters:?}");
    assert!(counters.kinds[TASK_KIND_FORK].filtered >= 1, "{counters:?}");
}
