// SPDX-License-Identifier: MIT OR Apache-2.0
//! gdb as a witness: the stacks that it sees where a program is stopped.

use crate::instructions::go::Caller;
use crate::stack::hexadecimal;
use std::collections::HashMap;
use std::fs;
use std::process::Command;

/// What gdb runs; its first lines say what comes in and out.
const SCRIPT: &str = include_str!("debugger.py");

/// An instruction: a file, and where in it. Outside of files `?` and an address.
pub(crate) type Place = (String, u64);

/// When a program is to be stopped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stop {
    pub(crate) place: Place,
    /// When it comes there for that time, from 1 on.
    pub(crate) time: usize,
    /// Where the return address is, when gdb does not know.
    pub(crate) caller: Option<Caller>,
}

/// A program, and what gdb does so that each of its runs is the same.
#[derive(Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) words: &'a [&'a str],
    /// A library that is loaded with it.
    pub(crate) preloaded: Option<&'a str>,
    /// Whether the kernel's random bytes are made zeroes, by which Go's runtime chooses.
    pub(crate) is_go: bool,
}

/// The stacks of a program where it is to be stopped; those that it does not come to are
/// missing. `gdb` is the beginning of a command line.
pub(crate) fn stacks<'a>(
    mut gdb: Command,
    program: Program<'_>,
    stops: impl Iterator<Item = &'a Stop>,
) -> HashMap<Place, Vec<Place>> {
    let script = Script::new(program.words[0], stops);
    let output = gdb.args(script.words(program)).output();
    let output = output.expect("gdb is in the guest");
    let stacks = parsed(&String::from_utf8_lossy(&output.stdout));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !stacks.is_empty(),
        "gdb: {errors}"
    );
    stacks
}

/// What gdb is given to read; removed with the value.
pub(crate) struct Script {
    places: String,
    script: String,
}

impl Script {
    /// Stops it there; at no place, it only runs the program.
    pub(crate) fn new<'a>(program: &str, stops: impl Iterator<Item = &'a Stop>) -> Script {
        let name = program.replace('/', "-");
        let name = format!("/var/tmp/debugger{name}-{}", std::process::id());
        let script = Script {
            places: format!("{name}.places"),
            script: format!("{name}.py"),
        };
        let wanted: String = stops.map(Stop::line).collect();
        fs::write(&script.places, wanted).expect("/var/tmp is writable");
        fs::write(&script.script, SCRIPT).expect("/var/tmp is writable");
        script
    }

    /// What follows `gdb` in the command line.
    pub(crate) fn words(&self, program: Program<'_>) -> Vec<String> {
        let mut settings = vec![
            format!("set $places = \"{}\"", self.places),
            format!("set $go = {}", u8::from(program.is_go)),
        ];
        let preloaded = program.preloaded;
        settings.extend(preloaded.map(|library| format!("set environment LD_PRELOAD={library}")));
        let mut words: Vec<String> = ["-nx", "-batch"].map(str::to_owned).to_vec();
        let settings = settings.into_iter();
        words.extend(settings.flat_map(|line| ["-iex".to_owned(), line]));
        words.extend(["-x", &self.script, "--args"].map(str::to_owned));
        words.extend(program.words.iter().map(|&word| word.to_owned()));
        words
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.places);
        let _ = fs::remove_file(&self.script);
    }
}

impl Stop {
    /// As the script reads it.
    fn line(&self) -> String {
        let (path, offset) = &self.place;
        let caller = match self.caller {
            None => "-",
            Some(Caller::AtTop) => "top",
            Some(Caller::BelowPushed) => "pushed",
            Some(Caller::ByFramePointer) => "frame",
        };
        format!("{} {caller} {offset:#x} {path}\n", self.time)
    }
}

/// The stacks that the script has printed.
fn parsed(text: &str) -> HashMap<Place, Vec<Place>> {
    let mut stacks: HashMap<Place, Vec<Place>> = HashMap::new();
    let mut at = None;
    for line in text.lines() {
        if let Some(place) = line.strip_prefix("stop ").and_then(place) {
            stacks.insert(place.clone(), Vec::new());
            at = Some(place);
        } else if let Some(frame) = line.strip_prefix("frame ").and_then(place) {
            let stack = at.as_ref().and_then(|at| stacks.get_mut(at));
            stack.expect("frames follow a stop").push(frame);
        }
    }
    stacks
}

fn place(text: &str) -> Option<Place> {
    let (offset, path) = text.split_once(' ')?;
    Some((path.to_owned(), hexadecimal(offset)?))
}
