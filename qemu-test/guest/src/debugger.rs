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

/// The stacks of a program where it is to be stopped; those that it does not come to are
/// missing. `gdb` is the beginning of a command line.
pub(crate) fn stacks<'a>(
    mut gdb: Command,
    program: &[&str],
    stops: impl Iterator<Item = &'a Stop>,
) -> HashMap<Place, Vec<Place>> {
    let files = Files::new(program[0]);
    let wanted: String = stops.map(Stop::line).collect();
    fs::write(&files.places, wanted).expect("/var/tmp is writable");
    fs::write(&files.script, SCRIPT).expect("/var/tmp is writable");
    gdb.args(["-nx", "-batch", "-iex"])
        .arg(format!("set $places = \"{}\"", files.places))
        .args(["-x", &files.script, "--args"])
        .args(program);
    let output = gdb.output().expect("gdb is in the guest");
    let stacks = parsed(&String::from_utf8_lossy(&output.stdout));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !stacks.is_empty(),
        "gdb: {errors}"
    );
    stacks
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

/// What gdb is given to read; removed with the value.
struct Files {
    places: String,
    script: String,
}

impl Files {
    fn new(program: &str) -> Files {
        let name = program.replace('/', "-");
        let name = format!("/var/tmp/debugger{name}-{}", std::process::id());
        Files {
            places: format!("{name}.places"),
            script: format!("{name}.py"),
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.places);
        let _ = fs::remove_file(&self.script);
    }
}
