// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: stacks are those that a debugger shows, frame by frame, at thousands of
//! instructions of Debian's programs; where one is shorter it says why.
//!
//! Each program is run twice. The first time instructions all over its files are probed,
//! most of which it never comes to; the second time gdb stops it at those that it has come
//! to. What is compared are stacks of one moment: the n-th time at an instruction.

mod programs;

use super::tests;
use crate::command::{self, Output};
use crate::debugger::{self, Place, Stop};
use crate::instructions::go::{self, Caller};
use crate::instructions::{choose, Dice};
use crate::module::Module;
use crate::stack::Stack;
use object::Object;
use programs::{CPP_AND_RUST, GO, INTERPRETERS, SERVERS, TOOLS};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::process::Command;
use std::thread;

tests![
    a_debugger_sees_the_same_stacks_of_tools: 290,
    a_debugger_sees_the_same_stacks_of_interpreters: 290,
    a_debugger_sees_the_same_stacks_of_servers: 290,
    a_debugger_sees_the_same_stacks_of_cpp_and_rust: 290,
    a_debugger_sees_the_same_stacks_of_go: 290,
];

/// A program of Debian's that ends by itself and does the same each time.
struct Program {
    words: &'static [&'static str],
    /// What it reads from its standard input.
    input: &'static str,
    /// Who runs it.
    user: &'static str,
    /// Files that it maps, and how many instructions of each are probed.
    files: &'static [(&'static str, usize)],
    is_go: bool,
    /// It prints something, which would go where the stacks go. What silences it has
    /// libraries of its own, so none are probed.
    is_loud: bool,
    /// It does some things in another order each time: gdb's first stack must be one of
    /// those that were recorded.
    is_random: bool,
    /// How many stacks of each instruction are recorded, from the first on.
    times: usize,
    /// Makes what it works on, anew for each run.
    prepare: fn(),
    /// Stacks to be compared at least.
    least: usize,
}

/// What a comparison has come to.
#[derive(Debug, Default)]
struct Tally {
    /// Stacks that are whole and equal.
    equal: usize,
    /// Those that begin as gdb's, by the reasons for which they go no further.
    cut: BTreeMap<String, usize>,
    /// The others, which were printed.
    wrong: usize,
    /// Places that the program did not come to under gdb.
    elsewhere: usize,
    /// Frames that are equal.
    frames: usize,
}

/// Further runs of a program that has its own order in each.
const RUNS_MAX: usize = 8;

/// All tests together.
const STACKS_MIN: usize = 5000;
const _: () = assert!(
    least(TOOLS) + least(INTERPRETERS) + least(SERVERS) + least(CPP_AND_RUST) + least(GO)
        >= STACKS_MIN
);

const fn least(programs: &[Program]) -> usize {
    let (mut sum, mut at) = (0, 0);
    while at < programs.len() {
        sum += programs[at].least;
        at += 1;
    }
    sum
}

fn a_debugger_sees_the_same_stacks_of_tools() {
    compare(TOOLS);
}

fn a_debugger_sees_the_same_stacks_of_interpreters() {
    compare(INTERPRETERS);
}

fn a_debugger_sees_the_same_stacks_of_servers() {
    // Redis takes the secret of its hashes from there.
    let _same = Mounted::new("/dev/zero", "/dev/urandom");
    compare(SERVERS);
}

fn a_debugger_sees_the_same_stacks_of_cpp_and_rust() {
    compare(CPP_AND_RUST);
}

/// gdb follows frame pointers here, which Go keeps: of its files' own tables, which nsprobe
/// reads, gdb knows nothing.
fn a_debugger_sees_the_same_stacks_of_go() {
    compare(GO);
}

/// A file in the place of another, until it is dropped.
struct Mounted(&'static str);

impl Mounted {
    fn new(from: &'static str, at: &'static str) -> Mounted {
        let mounted = Command::new("mount").args(["--bind", from, at]).status();
        assert!(mounted.expect("mount is there").success(), "{at}");
        Mounted(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// What the programs work on; removed with the value.
struct Folder;

const FOLDER: &str = "/var/tmp/agreement";

impl Folder {
    fn new() -> Folder {
        // One that was killed leaves it.
        let _ = fs::remove_dir_all(FOLDER);
        fs::create_dir(FOLDER).expect("/var/tmp is writable");
        Folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(FOLDER);
    }
}

/// Compares the stacks of all of them, side by side.
fn compare(programs: &'static [Program]) {
    let _module = Module::load();
    let _folder = Folder::new();
    let threads: Vec<_> = programs
        .iter()
        .map(|program| (program, thread::spawn(|| program.compare())))
        .collect();
    let mut sum = Tally::default();
    for (program, thread) in threads {
        let tally = thread.join().expect("what is wrong is counted");
        println!("{}: {tally:?}", program.words[0]);
        assert!(tally.stacks() >= program.least, "{tally:?}");
        // What another order leads to is little.
        let elsewhere = if program.is_random {
            tally.stacks() / 50
        } else {
            0
        };
        assert!(tally.elsewhere <= elsewhere, "{tally:?}");
        sum.add(tally);
    }
    assert_eq!(sum.wrong, 0, "{sum:?}");
    assert!(sum.equal * 1000 >= sum.stacks() * 995, "{sum:?}");
}

impl Program {
    fn compare(&self) -> Tally {
        let chosen = self.choose();
        let mut stops = self.stops(&chosen, self.trace(&chosen));
        let wanted = self.debug(stops.keys());
        if self.is_random {
            self.look_further(&mut stops, &wanted);
        }
        let mut tally = Tally::default();
        for (stop, stacks) in &stops {
            match wanted.get(&stop.place) {
                Some(wanted) => tally.judge(stop, stacks, wanted),
                None => tally.elsewhere += 1,
            }
        }
        tally
    }

    /// Instructions to be probed; to most of them the program does not come.
    fn choose(&self) -> BTreeMap<Place, Option<Caller>> {
        let mut dice = Dice(1);
        let mut chosen = BTreeMap::new();
        for (file, count) in self.files {
            // By the name that the kernel knows it by.
            let path = fs::canonicalize(file).unwrap_or_else(|error| panic!("{file}: {error}"));
            let name = path.to_str().expect("a plain name").to_owned();
            let mut add = |offset, caller| chosen.insert((name.clone(), offset), caller);
            if self.is_go {
                for (offset, caller) in go::choose(&path, *count, &mut dice) {
                    add(offset, Some(caller));
                }
            } else {
                for offset in choose(&path, *count, &mut dice) {
                    add(offset, None);
                }
            }
        }
        chosen
    }

    /// The first stacks at each of the instructions that the program comes to.
    fn trace(&self, chosen: &BTreeMap<Place, Option<Caller>>) -> BTreeMap<Place, Vec<Stack>> {
        (self.prepare)();
        let specs = chosen
            .keys()
            .map(|(path, offset)| format!("{path}:{offset:#x}"));
        // Addresses as under gdb. Of each probe the first hits are recorded, whatever comes
        // then.
        let mut trace = Command::new("setarch");
        trace.args(["-R", command::FILE, "trace", "--json", "--stack"]);
        let rate = format!("1:{}", self.times);
        trace.args(["--rate", &rate, "--runaway", "500"]);
        trace.args(specs).arg("--");
        if self.is_loud {
            trace.args(["sh", "-c", "exec \"$@\" > /dev/null", "sh"]);
        }
        trace.args(self.as_user()).args(self.words);
        hits(&command::output(self.in_its_place(&mut trace)))
    }

    /// Where and when gdb is to stop, and which stack it should see: of a program that has
    /// its own order in each run, one of several.
    fn stops(
        &self,
        chosen: &BTreeMap<Place, Option<Caller>>,
        hits: BTreeMap<Place, Vec<Stack>>,
    ) -> BTreeMap<Stop, Vec<Stack>> {
        let mut dice = Dice(2);
        let hits = hits.into_iter().filter(|(_, stacks)| !is_early(&stacks[0]));
        let stops = hits.map(|(place, mut stacks)| {
            let mut time = 0;
            if !self.is_random {
                time = dice.below(stacks.len().min(self.times));
                stacks = vec![stacks.swap_remove(time)];
            }
            let stop = Stop {
                caller: chosen[&place],
                place,
                time: time + 1,
            };
            (stop, stacks)
        });
        stops.collect()
    }

    /// Runs the program some more times, which may come to an instruction by the way that it
    /// took under gdb.
    fn look_further(
        &self,
        stops: &mut BTreeMap<Stop, Vec<Stack>>,
        wanted: &HashMap<Place, Vec<Place>>,
    ) {
        for _ in 0..RUNS_MAX {
            let missing = stops.iter().filter(|(stop, stacks)| {
                let wanted = wanted.get(&stop.place);
                wanted.is_some_and(|wanted| !stacks.iter().any(|stack| agrees(stack, wanted)))
            });
            let missing = missing.map(|(stop, _)| (stop.place.clone(), stop.caller));
            let missing: BTreeMap<Place, Option<Caller>> = missing.collect();
            if missing.is_empty() {
                return;
            }
            let mut more = self.trace(&missing);
            for (stop, stacks) in stops.iter_mut() {
                stacks.extend(more.remove(&stop.place).unwrap_or_default());
            }
        }
    }

    /// The stacks that gdb sees.
    fn debug<'a>(&self, stops: impl Iterator<Item = &'a Stop>) -> HashMap<Place, Vec<Place>> {
        (self.prepare)();
        let words = [&self.as_user()[..], &["gdb"]].concat();
        let mut gdb = Command::new(words[0]);
        gdb.args(&words[1..]);
        self.in_its_place(&mut gdb);
        debugger::stacks(gdb, self.words, stops)
    }

    /// What starts a command as the user who runs the program.
    fn as_user(&self) -> Vec<&'static str> {
        match self.user {
            "root" => Vec::new(),
            user => vec![
                "setpriv",
                "--reuid",
                user,
                "--regid",
                user,
                "--clear-groups",
            ],
        }
    }

    /// Gives a command what is to be the same each time.
    fn in_its_place<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let name = self.words[0].rsplit('/').next().unwrap_or_default();
        let input = format!("{FOLDER}/{name}.in");
        fs::write(&input, self.input).expect("it is ours");
        let input = File::open(input).expect("it was written");
        // The hashes of interpreters are the same in each run, too, and Go's runtime leaves
        // the program alone.
        command.env_clear().stdin(input).envs([
            ("PATH", "/usr/bin:/usr/sbin"),
            ("PERL_HASH_SEED", "0"),
            ("PYTHONHASHSEED", "0"),
            ("GOMAXPROCS", "1"),
            ("GOGC", "off"),
            ("GODEBUG", "asyncpreemptoff=1"),
        ])
    }
}

/// Whether it is of what readies the libraries: the dynamic linker's first code has called
/// it before it says that they are ready. gdb does not know them then.
fn is_early(stack: &Stack) -> bool {
    let last = stack.frames.last().expect("at least where it was");
    last.path.contains("/ld-linux") && {
        let bytes = fs::read(&last.path).expect("it is there");
        let entry = object::File::parse(&*bytes).expect("ELF").entry();
        (entry..entry + 16).contains(&last.offset)
    }
}

/// The stacks of each place in their order. None may be missing, or the n-th would be
/// another.
fn hits(output: &Output) -> BTreeMap<Place, Vec<Stack>> {
    let mut hits: BTreeMap<Place, Vec<Stack>> = BTreeMap::new();
    let mut count = 0;
    // A program may end with an empty line.
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let line: Value = serde_json::from_str(line).expect("an object");
        if line["type"] == "hit" {
            let stack = Stack::of(&line);
            let first = stack.frames.first().expect("at least where it was");
            let place = (first.path.clone(), first.offset);
            hits.entry(place).or_default().push(stack);
            count += 1;
        } else if line["type"] == "summary" {
            assert_eq!(
                (&line["balanced"], &line["lost_full"]),
                (&true.into(), &0.into())
            );
            assert_eq!(line["printed"], count, "{}", output.stderr);
            return hits;
        }
    }
    panic!("it did not end: {}", output.stderr)
}

impl Tally {
    fn stacks(&self) -> usize {
        self.equal + self.wrong + self.cut.values().sum::<usize>()
    }

    fn add(&mut self, other: Tally) {
        self.equal += other.equal;
        self.wrong += other.wrong;
        self.elsewhere += other.elsewhere;
        self.frames += other.frames;
        for (reason, count) in other.cut {
            *self.cut.entry(reason).or_default() += count;
        }
    }

    /// Counts a stack: the one of these that gdb has seen.
    fn judge(&mut self, stop: &Stop, stacks: &[Stack], wanted: &[Place]) {
        if let Some(stack) = stacks.iter().find(|stack| is_whole(stack, wanted)) {
            self.equal += 1;
            self.frames += stack.frames.len();
        } else if let Some(stack) = stacks.iter().find(|stack| agrees(stack, wanted)) {
            *self.cut.entry(stack.end.clone()).or_default() += 1;
            self.frames += stack.frames.len();
        } else {
            self.wrong += 1;
            let (time, caller, end) = (stop.time, stop.caller, &stacks[0].end);
            let (frames, wanted) = (lines(&places(&stacks[0])), lines(wanted));
            println!("time {time}, {caller:?}, nsprobe:{frames}\n  {end}\ngdb:{wanted}");
        }
    }
}

/// Whether a stack is whole, and gdb's.
fn is_whole(stack: &Stack, wanted: &[Place]) -> bool {
    stack.end == "outermost" && places(stack) == up_to_first_code(wanted)
}

/// Whether it is gdb's, as far as it goes, and says why it goes no further.
fn agrees(stack: &Stack, wanted: &[Place]) -> bool {
    let begins = up_to_first_code(wanted).starts_with(&places(stack));
    is_whole(stack, wanted) || (REASONS.contains(&stack.end.as_str()) && begins)
}

/// Why a stack goes no further, when there may be more (`docs/json.md`).
const REASONS: [&str; 7] = [
    "fault",
    "bad-frame-pointer",
    "not-code",
    "unsupported",
    "bad-row",
    "no-row",
    "copy-end",
];

/// Behind the dynamic linker's first code, of which nothing tells that it has no caller,
/// gdb goes on into the program's arguments.
fn up_to_first_code(stack: &[Place]) -> &[Place] {
    let astray = stack.iter().position(|(path, _)| path == "?");
    let (known, _) = stack.split_at(astray.unwrap_or(stack.len()));
    match known.last() {
        Some((path, _)) if path.contains("/ld-linux") => known,
        _ => stack,
    }
}

/// The frames, as gdb's are told.
fn places(stack: &Stack) -> Vec<Place> {
    let frames = stack.frames.iter();
    let places = frames.map(|frame| (frame.path.clone(), frame.offset));
    places.collect()
}

/// A stack for people.
fn lines(stack: &[Place]) -> String {
    let lines = stack
        .iter()
        .map(|(path, offset)| format!("\n  {offset:#x} {path}"));
    lines.collect()
}
