// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a request that the kernel cannot finish, for want of memory or because the
//! caller's own memory fails, ends with an error number, changes nothing, and can be made
//! again. What needs the kernel's fault injection needs `scripts/debug-kernel.sh`.

mod faults;

use crate::container::in_filter;
use crate::growth::assert_no_growth;
use crate::module::Module;
use crate::records::Records;
use crate::session::{errno, probe_at, size, Session, PAGE};
use crate::steps::{register, step};
use crate::sys::{self, Mapping};
use crate::victim::Victim;
use faults::{descriptors, InRegister, Watch, FUNCTION};
use nix::fcntl::{open, OFlag};
use nix::libc::{self, MAP_SHARED, PROT_READ, PROT_WRITE};
use nix::sys::stat::Mode;
use nsprobe_common::abi::{
    self, CpuTimes, Filter, Freeze, PidNamespace, Probe, Rows, Setup, Stack, Table, TaskCounters,
    TaskDump, Tasks, Unwind,
};
use nsprobe_common::program::{Operation, Register, Step};
use nsprobe_common::unwind::{row, Base, Rule};
use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use zerocopy::{FromBytes, IntoBytes};

/// A request, as an answer that is not looked at.
fn ask<T: FromBytes + IntoBytes>(session: &Session, command: u32, mut request: T) -> io::Result<T> {
    sys::ioctl(session, command, &mut request).map(|_| request)
}

/// Memory that is there: a page that comes late would be one more thing to fail.
fn buffer(bytes: usize) -> Vec<u8> {
    vec![1; bytes]
}

test! { full, an_answer_that_cannot_be_written_changes_nothing }
/// A request in memory that cannot be written: what was made for it, or taken, is as before,
/// and the next one gets it. Descriptors were left behind, and rings that nobody could map.
fn an_answer_that_cannot_be_written_changes_nothing() {
    let _module = Module::load();
    let mut victim = Victim::caller(FUNCTION);
    let mut session = Session::open();
    let memory = Mapping::anonymous(PAGE, PROT_READ | PROT_WRITE).expect("memory");
    let refused_then_done = |session: &Session, command: u32, words: &[u64]| {
        for (index, word) in words.iter().enumerate() {
            memory.set_word(8 * index, *word);
        }
        memory.protect(PROT_READ).expect("it is ours");
        let before = descriptors();
        let at = memory.address();
        let refused = sys::ioctl_wild(session, command.into(), at);
        assert_eq!(errno(refused, "it cannot be written"), libc::EFAULT);
        assert_eq!(descriptors(), before, "descriptors");
        memory.protect(PROT_READ | PROT_WRITE).expect("it is ours");
        let done = sys::ioctl_wild(session, command.into(), at);
        assert!(done.is_ok(), "{words:x?}: {:?}", done.err());
    };
    refused_then_done(&session, abi::SETUP, &[40, 64 << 10, 0, 0, 0]);
    session.made = Setup {
        ring_bytes: 64 << 10,
        rings: memory.word(24) as u32,
        mmap_stride: memory.word(32),
        ..Setup::default()
    };
    let steps = KEEPS;
    let program = [48, steps.as_ptr() as u64, 0, steps.len() as u64, 0, 0];
    refused_then_done(&session, abi::PROGRAM, &program);
    assert_eq!(memory.word(32) as u32, 1, "the id of the first program");
    let file = File::open(victim.file()).expect("it is there");
    let unwind = <[u64; 9]>::read_from_bytes(one_row(&file).as_bytes()).expect("72 bytes");
    refused_then_done(&session, abi::UNWIND, &unwind);
    let table = <[u64; 8]>::read_from_bytes(TABLE.as_bytes()).expect("64 bytes");
    refused_then_done(&session, abi::TABLE, &table);
    assert_eq!(
        (memory.word(48) >> 32) as u32,
        1,
        "the id of the first table"
    );
    let flags = abi::PROBE_STACK | abi::PROBE_AT_ENTRY;
    session.probe(victim.file(), &victim.function(FUNCTION), flags);
    victim.call(1);
    let id = *Records::of(&session).objects.keys().next().expect("one");
    for flag in [abi::OBJECT_FD, abi::OBJECT_ROOT] {
        let mut words = [0u64; 11];
        words[0] = 88 | u64::from(flag) << 32;
        words[1] = id.into();
        refused_then_done(&session, abi::OBJECT, &words);
        drop(sys::adopt((memory.word(8) >> 32) as i32));
    }
}

test! { full, an_open_that_fails_leaves_nothing, module, needs = FaultInjection, seconds = 300 }
fn an_open_that_fails_leaves_nothing() {
    let watch = Watch::new();
    watch.each("open", 6, || (), |()| open_device(), drop);
}

fn open_device() -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
    open(c"/dev/nsprobe", flags, Mode::empty()).map_err(io::Error::from)
}

/// Keeps a register for the return.
const KEEPS: [Step; 2] = [
    register(0, Register::Rdi),
    step(Operation::Keep, 0, 0, 0, 0, 0),
];

const TABLE: Table = Table {
    size: size_of::<Table>() as u32,
    flags: 0,
    kind: abi::TABLE_SUMS,
    rows: 8,
    key_words: 1,
    max_frames: 0,
    scale: 0,
    log_bits: 0,
    low: 0,
    step: 0,
    buckets: 0,
    id: 0,
    row_bytes: 0,
    capacity: 0,
};

/// A request that gives a file one row.
fn one_row(file: &File) -> Unwind {
    static BLOCKS: [u32; 2] = [0, 1];
    static ROWS: [u32; 1] = [row(0, 0)];
    static RULES: [Rule; 1] = [Rule {
        base: Base::Rsp as u8,
        saved: 0,
        more: 0,
        offset: 8,
        saved_at: 0,
        extra: 0,
    }];
    Unwind {
        size: size::<Unwind>(),
        fd: file.as_raw_fd(),
        blocks: BLOCKS.as_ptr() as u64,
        block_count: 2,
        rows: ROWS.as_ptr() as u64,
        row_count: 1,
        rules: RULES.as_ptr() as u64,
        rule_count: 1,
        ..Unwind::default()
    }
}

test! { full, what_is_made_is_made_or_not, module, needs = FaultInjection, seconds = 300 }
fn what_is_made_is_made_or_not() {
    let watch = Watch::new();
    let rings = |session: &mut Session| session.setup(4096, 0);
    watch.each("SETUP", 6, Session::open, rings, drop);
    let mapped =
        |session: &mut Session| Mapping::new(session, 4096, 2 * PAGE, PROT_READ, MAP_SHARED);
    watch.each("mmap", 2, || Session::with_rings(4096), mapped, drop);
    let upload = |(session, id): &mut (Session, u32)| {
        *id = session
            .upload(&KEEPS, b"text")
            .map_err(|(error, _)| error)?;
        Ok(())
    };
    let first = |(_, id): (Session, u32)| assert_eq!(id, 1, "one that failed is there");
    watch.each("PROGRAM", 6, || (Session::open(), 0), upload, first);
    let table = |(session, id): &mut (Session, u32)| {
        *id = ask(session, abi::TABLE, TABLE)?.id;
        Ok(())
    };
    watch.each("TABLE", 5, || (Session::open(), 0), table, first);
    let file = watch.file();
    let unwind = one_row(&file);
    let give = |session: &mut Session| ask(session, abi::UNWIND, unwind);
    watch.each("UNWIND", 6, Session::open, give, drop);
    let dropped = Unwind {
        size: size::<Unwind>(),
        flags: abi::UNWIND_DROP,
        ..Unwind::default()
    };
    let given = || {
        let mut session = Session::open();
        give(&mut session).expect("sound rows");
        session
    };
    let drops = |session: &mut Session| ask(session, abi::UNWIND, dropped);
    watch.each("UNWIND, drop", 2, given, drops, drop);
}

test! { full, what_is_asked_is_answered_or_not, module, needs = FaultInjection, seconds = 300 }
fn what_is_asked_is_answered_or_not() {
    let watch = Watch::new();
    let info = |session: &mut Session| {
        let info = abi::Info {
            size: size::<abi::Info>(),
            ..Default::default()
        };
        ask(session, abi::INFO, info)
    };
    watch.each("INFO", 2, Session::open, info, drop);
    let traced = || {
        let session = watch.session();
        let id = watch.attach(&session, abi::PROBE_STACK | abi::PROBE_STACK_IDS);
        watch.call(2);
        (session, id)
    };
    let counters = |(session, id): &mut (Session, u32)| session.counters_on(*id, abi::CPU_ALL);
    watch.each("COUNTERS", 2, traced, counters, drop);
    let stack = |(session, room): &mut (Session, Vec<u8>)| {
        let stack = Stack {
            size: size::<Stack>(),
            id: 1,
            words: 512,
            frames: room.as_ptr() as u64,
            ..Stack::default()
        };
        ask(session, abi::STACK, stack)
    };
    let with_room = || (traced().0, buffer(4096));
    watch.each("STACK", 4, with_room, stack, drop);
    let fdinfo = || {
        let (session, _) = traced();
        let path = format!("/proc/self/fdinfo/{}", session.as_raw_fd());
        let file = File::open(path).expect("/proc");
        (session, file, buffer(4096))
    };
    let shown = |(_, file, room): &mut (Session, File, Vec<u8>)| file.read_at(room, 0);
    watch.each("fdinfo", 1, fdinfo, shown, drop);
    let rows = |(session, room): &mut (Session, Vec<u8>)| {
        let rows = Rows {
            size: size::<Rows>(),
            table: 1,
            buffer: room.as_ptr() as u64,
            buffer_bytes: room.len() as u32,
            ..Rows::default()
        };
        ask(session, abi::ROWS, rows)
    };
    let with_table = || {
        let session = Session::open();
        session.table(TABLE).expect("a small one");
        (session, buffer(4096))
    };
    watch.each("ROWS", 3, with_table, rows, drop);
    let flight = || {
        let mut session = Session::open();
        session.setup(4096, abi::SETUP_OVERWRITE).expect("rings");
        session
    };
    let freeze = |session: &mut Session| {
        let freeze = Freeze {
            size: size::<Freeze>(),
            flags: abi::FREEZE_NOW,
            ..Freeze::default()
        };
        ask(session, abi::FREEZE, freeze)
    };
    watch.each("FREEZE", 2, flight, freeze, drop);
    let file = watch.file();
    let identity = |session: &mut Session| {
        let wanted = abi::File {
            size: size::<abi::File>(),
            fd: file.as_raw_fd(),
            ..abi::File::default()
        };
        ask(session, abi::FILE, wanted)
    };
    watch.each("FILE", 2, Session::open, identity, drop);
}

test! { full, records_are_read_or_stay, module, needs = FaultInjection, seconds = 120 }
/// Records that were not handed out are still there.
fn records_are_read_or_stay() {
    const HITS: u64 = 20;
    struct State {
        session: Session,
        room: Vec<u8>,
        got: Vec<u8>,
    }
    let watch = Watch::new();
    let made = || {
        let session = watch.session();
        watch.attach(&session, 0);
        watch.call(HITS);
        State {
            session,
            room: buffer(32 << 10),
            got: Vec::with_capacity(64 << 10),
        }
    };
    let read = |state: &mut State| {
        let count = nix::unistd::read(&state.session.file, &mut state.room)?;
        state.got.extend_from_slice(&state.room[..count]);
        Ok(())
    };
    let all = |mut state: State| {
        while (state.got.len() as u64) < HITS * size_of::<nsprobe_common::record::Hit>() as u64 {
            read(&mut state).expect("the rest");
        }
        let mut records = Records::default();
        let words = state.got.chunks_exact(8);
        let words: Vec<u64> = words
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
            .collect();
        records.add(&words);
        assert_eq!(records.hits.len() as u64, HITS);
    };
    watch.each("read", 4, made, read, all);
}

test! { full, files_are_handed_out_or_stay, module, needs = FaultInjection, seconds = 300 }
/// A file that could not be handed out stays for the next who asks.
fn files_are_handed_out_or_stay() {
    let watch = Watch::new();
    let seen = || {
        let session = watch.session();
        watch.attach(&session, abi::PROBE_STACK | abi::PROBE_AT_ENTRY);
        watch.call(1);
        let id = *Records::of(&session).objects.keys().next().expect("one");
        (session, id)
    };
    for (what, flag) in [
        ("OBJECT", 0),
        ("OBJECT, its file", abi::OBJECT_FD),
        ("OBJECT, a root", abi::OBJECT_ROOT),
    ] {
        let object = |(session, id): &mut (Session, u32)| {
            let object = session.object(*id, flag)?;
            Ok((flag != 0).then(|| sys::adopt(object.fd)))
        };
        watch.each(what, 2, seen, object, drop);
    }
}

impl Watch {
    /// Attaches a probe to the victim.
    fn attach(&self, session: &Session, flags: u32) -> u32 {
        let victim = self.victim.borrow();
        session.probe(victim.file(), &victim.function(FUNCTION), flags)
    }

    /// A filter with all that one may hold.
    fn filter(&self, pid: &u32, namespace: &PidNamespace) -> Filter {
        let mut filter = Filter {
            size: size::<Filter>(),
            flags: abi::FILTER_PIDS | abi::FILTER_CHILDREN | abi::FILTER_PIDNS_LIST,
            pids: std::ptr::from_ref(pid) as u64,
            pid_count: 1,
            pidns_list: std::ptr::from_ref(namespace) as u64,
            pidns_count: 1,
            ..Filter::default()
        };
        filter.flags |= abi::FILTER_UID | abi::FILTER_CGROUP;
        let group = fs::metadata("/sys/fs/cgroup").expect("it is mounted");
        filter.cgroup_id = std::os::unix::fs::MetadataExt::ino(&group);
        filter
    }

    /// Two probes that need all that probes may need.
    fn probes(&self, file: &File, program: u32) -> [Probe; 2] {
        let stacks = abi::PROBE_STACK | abi::PROBE_AT_ENTRY | abi::PROBE_COPIES;
        let flags = stacks | abi::PROBE_STACK_IDS | abi::PROBE_LATE;
        let entry = Probe {
            fd: file.as_raw_fd(),
            ..probe_at(self.place(), flags)
        };
        let call = Probe {
            kind: abi::PROBE_CALL,
            flags: 0,
            entry_program: program,
            ..entry
        };
        [entry, call]
    }
}

struct Attached {
    session: Session,
    file: File,
    program: u32,
}

impl Attached {
    fn none_yet(watch: &Watch) -> Attached {
        let session = watch.session();
        let program = session.upload(&KEEPS, &[]).expect("a small one");
        Attached {
            session,
            file: watch.file(),
            program,
        }
    }

    fn attach(&mut self, watch: &Watch) -> io::Result<[u32; 2]> {
        let mut probes = watch.probes(&self.file, self.program);
        let done = self.session.attach_all(&mut probes);
        done.map_err(|(error, _)| error)?;
        Ok(probes.map(|probe| probe.id))
    }

    /// Both probes see all calls.
    fn check(&self, watch: &Watch) {
        watch.call(3);
        let records = Records::of(&self.session);
        // The entries of one, and both ends of the other.
        assert_eq!(records.hits.len(), 9, "hits of three calls");
    }
}

test! { full, probes_are_attached_or_not, module, needs = FaultInjection, seconds = 600 }
fn probes_are_attached_or_not() {
    let watch = Watch::new();
    let none = || Attached::none_yet(&watch);
    let attach = |state: &mut Attached| state.attach(&watch);
    watch.each("ATTACH", 6, none, attach, |state| state.check(&watch));
    let both = || {
        let mut state = none();
        let ids = state.attach(&watch).expect("nothing fails");
        (state, ids)
    };
    let detach = |(state, ids): &mut (Attached, [u32; 2])| state.session.detach(&ids[..]);
    watch.each("DETACH", 2, both, detach, drop);
    let pid = watch.victim.borrow().pid();
    let namespace = in_filter(pid);
    let wanted = watch.filter(&pid, &namespace);
    let other = RefCell::new(Victim::caller(FUNCTION));
    let of_other = || {
        let (state, ids) = both();
        let pid = other.borrow().pid();
        state.session.only(&[pid]).expect("nothing fails");
        (state, ids)
    };
    let filter = |(state, _): &mut (Attached, [u32; 2])| state.session.filter(&mut wanted.clone());
    let look = |(state, ids): &(Attached, [u32; 2]), done: &std::io::Result<()>| {
        let breakpoints = [&other, &watch.victim].map(|one| {
            let is_restored = one.borrow().text_is_restored(watch.place());
            !is_restored
        });
        // A process in which the kernel fails costs itself alone, and is counted.
        let mut counters = ids.iter().map(|id| state.session.counters(*id));
        let is_armed = done.is_ok() && counters.all(|counters| counters.processes_failed == 0);
        assert_eq!(breakpoints, [done.is_err(), is_armed], "{done:?}");
    };
    let check = |(state, _): (Attached, _)| {
        state
            .session
            .filter(&mut wanted.clone())
            .expect("nothing fails");
        other.borrow_mut().call(3);
        assert_eq!(Records::of(&state.session).hits.len(), 0);
        state.check(&watch);
    };
    watch.each_looked_at("FILTER", 6, of_other, filter, look, check);
}

const TASKS: Tasks = Tasks {
    size: size_of::<Tasks>() as u32,
    flags: abi::TASKS_LIFE
        | abi::TASKS_NAMES
        | abi::TASKS_MOVES
        | abi::TASKS_SWITCHES
        | abi::TASKS_WAKEUPS
        | abi::TASKS_CPU,
    args_bytes: 256,
    cpu_rows: 16,
    missing: 0,
    reserved: 0,
};

test! { full, tasks_are_recorded_or_not, module, needs = FaultInjection, seconds = 300 }
fn tasks_are_recorded_or_not() {
    let watch = Watch::new();
    let none = || watch.session();
    let tasks = |session: &mut Session| ask(session, abi::TASKS, TASKS);
    watch.each("TASKS", 8, none, tasks, drop);
    let recorded = || {
        let mut session = none();
        tasks(&mut session).expect("nothing fails");
        (session, buffer(256 << 10))
    };
    let counters = |(session, _): &mut (Session, Vec<u8>)| {
        let counters = TaskCounters {
            size: size::<TaskCounters>(),
            cpu: abi::CPU_ALL,
            ..TaskCounters::default()
        };
        ask(session, abi::TASK_COUNTERS, counters)
    };
    watch.each("TASK_COUNTERS", 2, recorded, counters, drop);
    let times = |(session, room): &mut (Session, Vec<u8>)| {
        let times = CpuTimes {
            size: size::<CpuTimes>(),
            buffer: room.as_ptr() as u64,
            buffer_bytes: room.len() as u32,
            ..CpuTimes::default()
        };
        ask(session, abi::CPU_TIMES, times)
    };
    watch.each("CPU_TIMES", 3, recorded, times, drop);
    let dump = |(session, room): &mut (Session, Vec<u8>)| {
        let dump = TaskDump {
            size: size::<TaskDump>(),
            flags: abi::DUMP_MAPPINGS | abi::DUMP_ARGS,
            buffer: room.as_ptr() as u64,
            buffer_bytes: room.len() as u32,
            ..TaskDump::default()
        };
        ask(session, abi::TASK_DUMP, dump)
    };
    watch.each("TASK_DUMP", 4, recorded, dump, drop);
}

/// A session with all that there is.
fn with_all(watch: &Watch) -> Session {
    let mut state = Attached::none_yet(watch);
    state.attach(watch).expect("nothing fails");
    let pid = watch.victim.borrow().pid();
    let namespace = in_filter(pid);
    let filtered = state.session.filter(&mut watch.filter(&pid, &namespace));
    filtered.expect("nothing fails");
    ask(&state.session, abi::TASKS, TASKS).expect("nothing fails");
    watch.call(3);
    state.session
}

test! { full, sessions_end_whatever_fails, module, needs = FaultInjection, seconds = 300 }
/// The end of a session does not fail, whatever does.
fn sessions_end_whatever_fails() {
    let watch = Watch::new();
    let made = || Some(with_all(&watch));
    let close = |session: &mut Option<Session>| {
        drop(session.take());
        Ok(())
    };
    watch.each("close", 0, made, close, drop);
}

test! { full, breakpoints_are_put_in_or_taken_out, module, needs = FaultInjection, seconds = 600 }
/// The kernel cannot put a breakpoint in, half-way: it is put in by a further pass, or all that were
/// put in are taken out.
fn breakpoints_are_put_in_or_taken_out() {
    let watch = Watch::new();
    let register = InRegister::new();
    for (kind, by) in [("failslab", 48), ("fail_page_alloc", 1)] {
        let (mut failed, mut hit, mut space) = (0, 0, 0);
        loop {
            // A process that had a breakpoint has its page already.
            let others = [Victim::caller(FUNCTION), Victim::caller(FUNCTION)];
            let mut state = Attached::none_yet(&watch);
            // Those of all three.
            let every = Filter {
                size: size::<Filter>(),
                ..Filter::default()
            };
            state.session.filter(&mut every.clone()).expect("any task");
            register.fail(kind, space);
            let result = state.attach(&watch);
            let was_hit = register.has_failed(kind);
            hit += u32::from(was_hit);
            if let Err(error) = result {
                assert!(was_hit, "{kind}, {space}: {error}");
                assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "{kind}, {space}");
                watch_text(&watch, &others, &format!("{kind}, {space}"));
                failed += 1;
                state.attach(&watch).expect("nothing fails");
            }
            state.check(&watch);
            drop(state);
            watch.nothing_is_left(kind);
            watch_text(&watch, &others, kind);
            space += by;
            if !was_hit {
                break;
            }
        }
        println!("{kind}: {hit} failed, {failed} for good, up to {space}");
        assert!(hit >= 3, "{kind}: only {hit} failed");
    }
}

fn watch_text(watch: &Watch, others: &[Victim], after: &str) {
    let place = watch.place();
    let is_restored = others.iter().all(|other| other.text_is_restored(place));
    assert!(is_restored, "{after}: a breakpoint is there");
}

test! { full, what_fails_costs_no_memory, module, needs = FaultInjection, seconds = 600 }
/// A page for each of some hundred failures would show.
fn what_fails_costs_no_memory() {
    let watch = Watch::new();
    let round = || {
        watch.each("open", 6, || (), |()| open_device(), drop);
        let rings = |session: &mut Session| session.setup(4096, 0);
        watch.each("SETUP", 6, Session::open, rings, drop);
        let none = || Attached::none_yet(&watch);
        let attach = |state: &mut Attached| state.attach(&watch);
        watch.each("ATTACH", 6, none, attach, drop);
        let tasks = |session: &mut Session| ask(session, abi::TASKS, TASKS);
        watch.each("TASKS", 8, || watch.session(), tasks, drop);
    };
    assert_no_growth(4, round);
}
