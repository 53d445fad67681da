// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The walks of `kmod/helpers/walk.c` take the steps that rules, and frame pointers, lead to one by
//! one, and find those that read what has changed since. Stacks, rules and what is kept of earlier
//! walks are made up.
#![expect(clippy::unwrap_used, reason = "a test says so by failing")]

use nsprobe_common::record::{Frame, Method};
use nsprobe_common::unwind::{At, Base, Memory, Registers, Rule, Saved, SimpleRule, Stop};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

const WORDS: usize = 64;
const STACK: u64 = 0x7fff_0000_0000;
/// Where two files are mapped, and the bytes between calls in them.
const CODE: [u64; 2] = [0x40_0000, 0x50_0010];
const CODE_BYTES: u64 = 0x100;
const CALL: u64 = 0x10;
/// Calls of each whose rules are known.
const KNOWN: u64 = 12;

// Why a walk in C stops, as `enum nsprobe_walk_stop`.
const UNKNOWN: u64 = 0;
const MEETS: u64 = 1;
const NOT_ABOVE: u64 = 2;
const FULL: u64 = 3;
const FAULT: u64 = 4;

/// A step: slot, return address, slot and value of `rbp`, and the frame's word.
type Step = [u64; 5];

#[derive(Clone, Debug)]
struct Walk {
    by_rules: bool,
    memory: Vec<u64>,
    rules: HashMap<u64, Rule>,
    kept: Vec<Step>,
    top: u64,
    inside: u64,
    rsp: u64,
    rbp: u64,
    room: u64,
    has_read_rbp: bool,
    /// The word that changes after the walk.
    changing: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Walked {
    why: u64,
    inside: u64,
    rsp: u64,
    rbp: u64,
    needs_rbp: bool,
    has_read_rbp: bool,
    steps: Vec<Step>,
    /// Leading steps that have read what is still there when the word has changed.
    unchanged: usize,
}

struct Stack<'a>(&'a [u64]);

impl Memory for Stack<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(STACK)?).ok()?;
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        let word = bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }

    fn register(&self, _number: u8) -> Option<u64> {
        None
    }

    fn thread_pointer(&self) -> Option<u64> {
        None
    }
}

/// Where an address is in a file, as a frame's word without a method.
fn place(address: u64) -> Option<u64> {
    let number = CODE
        .iter()
        .position(|code| address.wrapping_sub(*code) < CODE_BYTES)?;
    let object = Frame::place(number as u32 + 1, Method::Registers);
    Some(object + address - CODE[number])
}

impl Walk {
    /// The next step from registers, one at a time.
    fn next(&self, at: &mut Registers, is_first: bool) -> Result<(Step, bool), u64> {
        let stack = Stack(&self.memory);
        let before = *at;
        let (slot, rbp_slot, by_rbp, method);
        if self.by_rules {
            let inside = at.inside();
            let rule = place(inside).and_then(|_| self.rules.get(&inside));
            let rule = rule.ok_or(UNKNOWN)?;
            let simple = SimpleRule::of(rule).unwrap();
            slot = rule.step(at, &stack).map_err(|stop| match stop {
                Stop::Outermost | Stop::NotAbove => NOT_ABOVE,
                Stop::Fault => FAULT,
                other => panic!("{other:?}"),
            })?;
            rbp_slot = simple.saved_slot(slot + 8);
            (by_rbp, method) = (simple.by_rbp(), Method::Row);
        } else if is_first && self.top != 0 {
            (slot, rbp_slot, by_rbp, method) = (at.rsp, 0, true, Method::StackTop);
            at.rip = self.top;
            at.rsp += 8;
        } else {
            let fp = at.rbp;
            if fp % 8 != 0 || fp < at.rsp {
                return Err(NOT_ABOVE);
            }
            at.rbp = stack.word(fp).ok_or(FAULT)?;
            at.rip = stack.word(fp + 8).ok_or(FAULT)?;
            at.rsp = fp + 16;
            (slot, rbp_slot, by_rbp, method) = (fp + 8, fp, true, Method::FramePointer);
        }
        at.at = At::Call;
        let is_plain = at.rip % 4096 != 0;
        let to = place(at.rip.wrapping_sub(1)).filter(|_| is_plain);
        let Some(to) = to else {
            *at = before;
            return Err(UNKNOWN);
        };
        let word = to + 1 + Frame::place(0, method);
        Ok(([slot, at.rip, rbp_slot, at.rbp, word], by_rbp))
    }

    /// All steps, one at a time.
    fn walked(&self) -> Walked {
        let mut at = Registers {
            rip: self.inside,
            rsp: self.rsp,
            rbp: self.rbp,
            knows_rbp: true,
            ..Registers::default()
        };
        let mut walked = Walked {
            has_read_rbp: self.has_read_rbp,
            needs_rbp: !self.by_rules,
            ..Walked::default()
        };
        if !self.by_rules && place(self.inside_first()).is_none() {
            walked.why = UNKNOWN;
            return self.ended(walked, &at);
        }
        loop {
            let before = at;
            let next = self.next(&mut at, walked.steps.is_empty());
            let (step, by_rbp) = match next {
                Ok(_) if walked.steps.len() as u64 == self.room => {
                    at = before;
                    walked.why = FULL;
                    break;
                }
                Ok(next) => next,
                Err(why) => {
                    at = before;
                    walked.why = why;
                    break;
                }
            };
            walked.needs_rbp |= by_rbp && !walked.has_read_rbp;
            walked.has_read_rbp |= step[2] != 0;
            walked.steps.push(step);
            let same = |kept: &Step| {
                (kept[0], kept[1], kept[3], kept[4]) == (step[0], step[1], step[3], step[4])
            };
            if self.kept.iter().any(same) {
                walked.why = MEETS;
                break;
            }
        }
        self.ended(walked, &at)
    }

    fn inside_first(&self) -> u64 {
        match self.top {
            0 => self.inside,
            top => top - 1,
        }
    }

    fn ended(&self, walked: Walked, at: &Registers) -> Walked {
        let mut memory = self.memory.clone();
        memory[self.changing] ^= 8;
        let word = |slot| Stack(&memory).word(slot);
        let is_unchanged = |&[slot, rip, rbp_slot, rbp, _]: &Step| {
            word(slot) == Some(rip) && (rbp_slot == 0 || word(rbp_slot) == Some(rbp))
        };
        let changed = walked.steps.iter().position(|step| !is_unchanged(step));
        Walked {
            unchanged: changed.unwrap_or(walked.steps.len()),
            inside: match walked.steps.last() {
                Some(last) => last[1] - 1,
                None => self.inside,
            },
            rsp: at.rsp,
            rbp: at.rbp,
            ..walked
        }
    }

    /// The numbers that the harness reads.
    fn numbers(&self) -> Vec<u64> {
        let mut all = vec![u64::from(self.by_rules), STACK];
        all.extend(&self.memory);
        all.push(CODE.len() as u64);
        for (number, code) in CODE.iter().enumerate() {
            let object = number as u32 + 1;
            let base = Frame::place(object, Method::Registers).wrapping_sub(*code);
            all.extend([*code, CODE_BYTES, base, object.into()]);
        }
        all.push(self.rules.len() as u64);
        for (inside, rule) in &self.rules {
            let key = place(*inside).unwrap() + Frame::place(0, Method::Row);
            all.extend([key, SimpleRule::of(rule).unwrap().word()]);
        }
        all.push(self.kept.len() as u64);
        all.extend(self.kept.iter().flatten());
        let method = match self.by_rules {
            true => Method::Row,
            false => Method::FramePointer,
        };
        let top_method = Frame::place(0, Method::StackTop);
        all.extend([Frame::place(0, method), self.top, top_method]);
        all.extend([
            self.inside,
            self.rsp,
            self.rbp,
            self.room,
            u64::from(self.has_read_rbp),
            self.changing as u64,
        ]);
        all
    }
}

/// The walks in C, in a process.
struct Harness {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Harness {
    fn start() -> Harness {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/user_walk");
        let program =
            std::env::temp_dir().join(format!("nsprobe-user-walk-{}", std::process::id()));
        let flags = [
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsanitize=address,undefined",
        ];
        let built = Command::new("gcc")
            .args(flags)
            .arg("-I")
            .arg(&folder)
            .arg(folder.join("harness.c"))
            .arg("-o")
            .arg(&program)
            .status();
        assert!(built.unwrap().success());
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::fs::remove_file(&program).unwrap();
        Harness {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            _child: child,
        }
    }

    fn walked(&mut self, walk: &Walk) -> Walked {
        let numbers: Vec<String> = walk.numbers().iter().map(u64::to_string).collect();
        writeln!(self.input, "{}", numbers.join(" ")).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let words: Vec<u64> = line
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        let [why, _passed, inside, rsp, rbp, needs, has_read, unchanged, steps @ ..] =
            words.as_slice()
        else {
            panic!("{line:?} of {walk:?}")
        };
        let steps = steps.chunks_exact(5).map(|step| step.try_into().unwrap());
        Walked {
            why: *why,
            inside: *inside,
            rsp: *rsp,
            rbp: *rbp,
            needs_rbp: *needs != 0 || !walk.by_rules,
            has_read_rbp: *has_read != 0,
            steps: steps.collect(),
            unchanged: *unchanged as usize,
        }
    }
}

fn address_in_code() -> impl Strategy<Value = u64> {
    (0..CODE.len(), 0..KNOWN + 2).prop_map(|(file, call)| CODE[file] + (call + 1) * CALL)
}

/// What lies on stacks: addresses on it, return addresses, and others.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..WORDS as u64).prop_map(|at| STACK + 8 * at),
        5 => address_in_code(),
        1 => prop_oneof![Just(0), Just(0x40_0000), Just(u64::MAX), any::<u64>(), Just(STACK + 12)],
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let base = prop_oneof![5 => Just(Base::Rsp), 3 => Just(Base::Rbp), 1 => Just(Base::Outermost)];
    let saved = prop_oneof![
        2 => Just((Saved::Same, 0)),
        3 => Just((Saved::AtFrame, -16)),
        1 => (-6i32..3).prop_map(|at| (Saved::AtFrame, at * 8)),
    ];
    let offset = prop_oneof![8 => (1i32..5).prop_map(|words| words * 8), 1 => -20i32..60];
    (base, saved, offset).prop_map(|(base, (saved, saved_at), offset)| Rule {
        base: base as u8,
        saved: saved as u8,
        offset,
        saved_at,
        ..Rule::default()
    })
}

prop_compose! {
    fn walk()(
        by_rules in any::<bool>(),
        memory in vec(word(), WORDS),
        rules in vec(rule(), CODE.len() * KNOWN as usize),
        top in prop_oneof![Just(0), address_in_code(), word()],
        inside in address_in_code(),
        rsp in 0..12u64,
        rbp in prop_oneof![4 => (0..WORDS as u64).prop_map(|at| STACK + 8 * at), 1 => any::<u64>()],
        room in prop_oneof![8 => Just(100u64), 2 => 0..6u64],
        has_read_rbp in any::<bool>(),
        changing in 0..WORDS,
        kept_from in 0..20usize,
        changed in prop_oneof![2 => Just(None), 1 => (0..8usize, 0..5usize).prop_map(Some)],
    ) -> Walk {
        let all = CODE.iter().flat_map(|code| (1..=KNOWN).map(move |call| code + call * CALL - 1));
        let mut walk = Walk {
            by_rules,
            memory,
            rules: all.zip(rules).collect(),
            kept: Vec::new(),
            top: if by_rules { 0 } else { top },
            inside: inside - 1,
            rsp: STACK + 8 * rsp,
            rbp,
            room,
            has_read_rbp,
            changing,
        };
        // An earlier walk had the outer part of this one, but for what has changed.
        let steps = walk.walked().steps;
        let mut kept: Vec<Step> = steps.into_iter().skip(kept_from).collect();
        if let Some((step, word)) = changed {
            if let Some(step) = kept.get_mut(step) {
                step[word] ^= 8;
            }
            kept.sort_unstable();
            // Steps of a walk go up the stack.
            kept.dedup_by_key(|step| step[0]);
        }
        walk.kept = kept;
        walk
    }
}

#[test]
fn walks_in_c_take_the_steps_of_rules_and_frame_pointers() {
    let harness = Mutex::new(Harness::start());
    let config = ProptestConfig {
        cases: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let whys = Mutex::new([0u64; 5]);
    proptest!(config, |(walk in walk())| {
        let wanted = walk.walked();
        whys.lock().unwrap()[wanted.why as usize] += 1;
        prop_assert_eq!(harness.lock().unwrap().walked(&walk), wanted);
    });
    // Each way to stop was gone.
    let whys = whys.into_inner().unwrap();
    assert!(whys.iter().all(|count| *count > 200), "{whys:?}");
}
