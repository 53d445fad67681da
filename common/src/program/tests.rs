// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What programs compute, and that no program does harm.
use super::*;
use proptest::prelude::*;
extern crate std;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

/// A machine with memory at [`BASE`] and numbered registers.
#[derive(Default)]
struct Fake {
    memory: Vec<u8>,
    registers: BTreeMap<u8, u64>,
    kept: [Option<u64>; KEPT_MAX],
    returned: Option<u64>,
    key: Vec<u64>,
    value: Option<u64>,
    /// Time and value of the spans that have begun, by key.
    spans: BTreeMap<Vec<u64>, (u64, u64)>,
    ended: Option<u64>,
}

const BASE: u64 = 0x1000;

impl Fake {
    fn range(&self, address: u64, length: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
        let end = start.checked_add(length)?;
        (end <= self.memory.len()).then_some(start..end)
    }
}

impl Machine for Fake {
    fn register(&self, register: Register) -> Option<u64> {
        self.registers.get(&(register as u8)).copied()
    }
    fn context(&self, context: Context) -> Option<u64> {
        (context != Context::Elapsed).then_some(100 + context as u64)
    }
    fn kept(&self, index: usize) -> Option<u64> {
        self.kept[index]
    }
    fn keep(&mut self, index: usize, value: u64) {
        self.kept[index] = Some(value);
    }
    fn probe_address(&self) -> u64 {
        BASE
    }
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let Some(range) = self.range(address, out.len()) else {
            return false;
        };
        out.copy_from_slice(&self.memory[range]);
        true
    }
    fn set_register(&mut self, register: Register, value: u64) -> bool {
        self.registers.insert(register as u8, value);
        true
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        let Some(range) = self.range(address, bytes.len()) else {
            return false;
        };
        self.memory[range].copy_from_slice(bytes);
        true
    }
    fn return_now(&mut self, value: u64, _distance: u64) -> bool {
        self.returned = Some(value);
        true
    }
    fn key(&mut self, words: &[u64]) {
        self.key.extend_from_slice(words);
        assert!(self.key.len() <= KEY_WORDS_MAX);
    }
    fn value(&mut self, value: u64) {
        self.value = Some(value);
    }
    fn end_span(&mut self, _: bool) -> Option<u64> {
        let began = self.spans.remove(&std::mem::take(&mut self.key));
        self.ended = began.map(|(_, value)| value);
        began.map(|(elapsed, _)| elapsed)
    }
    fn span_value(&self) -> Option<u64> {
        self.ended
    }
}

#[derive(Default)]
struct Fields(Vec<u64>);

impl Output for Fields {
    fn extend(&mut self, words: &[u64]) {
        self.0.extend_from_slice(words);
        assert!(self.0.len() <= OUTPUT_WORDS_MAX);
    }
    fn set_first(&mut self, word: u64) {
        self.0[0] = word;
    }
}

fn step(operation: Operation, to: u8, a: u8, b: u8, small: i32, large: u64) -> Step {
    Step {
        operation: operation as u8,
        to,
        a,
        b,
        small,
        large,
    }
}

fn constant(to: u8, large: u64) -> Step {
    step(Operation::Constant, to, 0, 0, 0, large)
}

fn run(steps: &[Step], data: &[u8], machine: &mut Fake) -> (Outcome, Vec<u64>) {
    let mut fields = Fields::default();
    let outcome = check(steps, data).unwrap().run(machine, &mut fields);
    (outcome, fields.0)
}

#[test]
fn a_chain_of_pointers_is_followed() {
    let mut machine = Fake {
        memory: vec![0; 64],
        ..Fake::default()
    };
    machine.memory[8..16].copy_from_slice(&(BASE + 32).to_le_bytes());
    machine.memory[36..40].copy_from_slice(&(-7i32).to_le_bytes());
    machine.registers.insert(Register::Rdi as u8, BASE);
    let steps = [
        step(Operation::Register, 0, 0, 0, Register::Rdi as i32, 0),
        step(Operation::Load, 1, 0, 0, 8, 8),
        step(Operation::LoadSigned, 2, 1, 0, 4, 4),
        step(Operation::Field, 0, 2, 0, 0, 0),
    ];
    assert_eq!(run(&steps, &[], &mut machine).1, [1, -7i64 as u64]);
}

#[test]
fn what_is_not_there_makes_all_that_follows_absent() {
    let steps = [
        constant(0, 8),
        step(Operation::Load, 1, 0, 0, 0, 8),
        step(Operation::Add, 2, 1, 0, 0, 0),
        step(Operation::Field, 0, 2, 0, 0, 0),
        step(Operation::Field, 0, 0, 0, 0, 0),
        step(Operation::Require, 0, 2, 0, 0, 0),
        step(Operation::Field, 0, 0, 0, 0, 0),
    ];
    let (outcome, fields) = run(&steps, &[], &mut Fake::default());
    assert_eq!(fields, [0b10, 0, 8]);
    assert!(!outcome.matched && outcome.undecided);
}

#[test]
fn strings_end_at_their_nul_or_their_bound() {
    let mut machine = Fake {
        memory: b"hello\0world".to_vec(),
        ..Fake::default()
    };
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let at = |offset| constant(0, BASE + offset);
    let string = |bound| step(Operation::FieldString, 0, 0, 0, bound, 0);
    let steps = [at(0), string(8), string(4)];
    let (_, fields) = run(&steps, &[], &mut machine);
    assert_eq!(fields, [0b11, 5, word(b"hello"), 4, word(b"hell")]);
    // Without a NUL before the memory ends there is no string.
    let (_, fields) = run(&[at(6), string(16)], &[], &mut machine);
    assert_eq!(fields, [0, 0]);
}

#[test]
fn a_string_is_compared_as_a_whole_or_from_its_start() {
    let mut machine = Fake {
        memory: b"hello\0".to_vec(),
        ..Fake::default()
    };
    for (operation, length, expected) in [
        (Operation::StringEqual, 5, 1),
        (Operation::StringEqual, 4, 0),
        (Operation::StringBegins, 4, 1),
        (Operation::StringBegins, 0, 1),
    ] {
        let steps = [
            constant(0, BASE),
            step(operation, 1, 0, 0, 1, length),
            step(Operation::Field, 0, 1, 0, 0, 0),
        ];
        assert_eq!(run(&steps, b"_hello", &mut machine).1, [1, expected]);
    }
}

#[test]
fn a_slice_is_compared_by_its_length_and_bytes() {
    let mut machine = Fake {
        memory: b"user-3!".to_vec(),
        ..Fake::default()
    };
    let slice = |operation, address, length, wanted: &[u8], machine: &mut Fake| {
        let steps = [
            constant(0, address),
            constant(1, length),
            step(operation, 2, 0, 1, 1, wanted.len() as u64),
            step(Operation::Field, 0, 2, 0, 0, 0),
        ];
        let data = [b"_", wanted].concat();
        let (_, fields) = run(&steps, &data, machine);
        (fields[0] == 1).then_some(fields[1])
    };
    use Operation::{SliceBegins, SliceEqual};
    for (operation, address, length, wanted, expected) in [
        (SliceEqual, BASE, 6, &b"user-3"[..], Some(1)),
        (SliceEqual, BASE, 6, b"user-4", Some(0)),
        // Of another length, nothing is looked at.
        (SliceEqual, BASE, 7, b"user-3", Some(0)),
        (SliceEqual, 8, 7, b"user-3", Some(0)),
        (SliceEqual, 8, 6, b"user-3", None),
        // Nothing may be anywhere.
        (SliceEqual, 0, 0, b"", Some(1)),
        (SliceEqual, 8, u64::MAX, b"", Some(0)),
        (SliceBegins, BASE, 7, b"user-", Some(1)),
        (SliceBegins, BASE, 4, b"user-", Some(0)),
        (SliceBegins, 8, 4, b"", Some(1)),
        // What has no length is no slice.
        (SliceBegins, BASE, u64::MAX, b"user-", None),
    ] {
        let got = slice(operation, address, length, wanted, &mut machine);
        assert_eq!(
            got, expected,
            "{operation:?} {address:#x} {length} {wanted:?}"
        );
    }
}

#[test]
fn a_slice_is_shown_and_counted_by_up_to_its_bound() {
    let mut machine = Fake {
        memory: b"user-3!".to_vec(),
        ..Fake::default()
    };
    let word = u64::from_le_bytes;
    for (address, length, most, expected) in [
        (BASE, 6, 16, vec![1, 6, word(*b"user-3\0\0")]),
        (BASE, 6, 4, vec![1, 4, word(*b"user\0\0\0\0")]),
        (0, 0, 4, vec![1, 0]),
        (BASE, 8, 16, vec![0, 0]),
        (BASE, u64::MAX, 4, vec![0, 0]),
    ] {
        let steps = [
            constant(0, address),
            constant(1, length),
            step(Operation::FieldSlice, 0, 0, 1, most, 0),
        ];
        let (_, fields) = run(&steps, &[], &mut machine);
        assert_eq!(fields, expected, "{address:#x} {length} {most}");
    }
    let key = |length| {
        vec![
            constant(0, BASE),
            constant(1, length),
            step(Operation::KeySlice, 0, 0, 1, 16, 0),
        ]
    };
    assert!(run(&key(6), &[], &mut machine).0.matched);
    assert_eq!(machine.key, [word(*b"user-3\0\0"), 0]);
    machine.key.clear();
    let (outcome, _) = run(&key(8), &[], &mut machine);
    assert!(outcome.undecided && machine.key.is_empty());
}

#[test]
fn arithmetic_is_that_of_the_machine() {
    let cases = [
        (Operation::Subtract, 1, 2, Some(u64::MAX)),
        (Operation::Divide, 7, 2, Some(3)),
        (Operation::Divide, 7, 0, None),
        (Operation::Modulo, 7, 0, None),
        (Operation::ShiftLeft, 1, 64, Some(0)),
        (Operation::ShiftRightSigned, u64::MAX, 200, Some(u64::MAX)),
        (Operation::Less, u64::MAX, 0, Some(1)),
        (Operation::Below, u64::MAX, 0, Some(0)),
    ];
    for (operation, a, b, expected) in cases {
        let steps = [
            constant(0, a),
            constant(1, b),
            step(operation, 2, 0, 1, 0, 0),
            step(Operation::Field, 0, 2, 0, 0, 0),
        ];
        let (_, fields) = run(&steps, &[], &mut Fake::default());
        let got = (fields[0] == 1).then_some(fields[1]);
        assert_eq!(got, expected, "{operation:?} {a} {b}");
    }
    for (operation, bits, value, expected) in [
        (Operation::ZeroExtend, 8, 0x1ff, 0xff),
        (Operation::SignExtend, 8, 0x80, -128i64 as u64),
        (Operation::SignExtend, 63, 1, 1),
    ] {
        let steps = [
            constant(0, value),
            step(operation, 1, 0, 0, 0, bits),
            step(Operation::Field, 0, 1, 0, 0, 0),
        ];
        assert_eq!(run(&steps, &[], &mut Fake::default()).1, [1, expected]);
    }
}

#[test]
fn what_decides_nothing_may_be_absent() {
    let either = |a: u8, b: u8| step(Operation::Either, 3, a, b, 0, 0);
    let both = |a: u8, b: u8| step(Operation::Both, 3, a, b, 0, 0);
    // Slots: 0 is zero, 1 is seven, 2 is absent.
    for (last, expected) in [
        (either(1, 2), Some(7)),
        (either(2, 1), Some(7)),
        (either(2, 0), Some(0)),
        (either(0, 2), None),
        (both(0, 2), Some(0)),
        (both(1, 2), None),
        (both(2, 1), None),
        (both(1, 1), Some(7)),
        (both(1, 0), Some(0)),
    ] {
        let steps = [
            constant(0, 0),
            constant(1, 7),
            step(Operation::Load, 2, 0, 0, 0, 8),
            last,
            step(Operation::Field, 0, 3, 0, 0, 0),
        ];
        let fields = run(&steps, &[], &mut Fake::default()).1;
        let value = (fields[0] != 0).then_some(fields[1]);
        assert_eq!(value, expected, "{last:?}");
    }
}

#[test]
fn keys_are_words_and_strings() {
    let mut machine = Fake {
        memory: b"hello\0 and what follows".to_vec(),
        ..Fake::default()
    };
    let steps = [
        constant(0, 7),
        constant(1, BASE),
        step(Operation::Key, 0, 0, 0, 0, 0),
        step(Operation::KeyString, 0, 1, 0, 16, 0),
        step(Operation::Value, 0, 0, 0, 0, 0),
    ];
    let summary = check(&steps, &[]).unwrap().summary();
    assert_eq!((summary.key_words, summary.gives_value), (3, true));
    assert!(run(&steps, &[], &mut machine).0.matched);
    let hello = u64::from_le_bytes(*b"hello\0\0\0");
    assert_eq!(machine.key, [7, hello, 0]);
    assert_eq!(machine.value, Some(7));
    // A key that is not there turns the hit away.
    let outcome = run(&steps, &[], &mut Fake::default()).0;
    assert!(!outcome.matched && outcome.undecided);
}

#[test]
fn a_span_ends_and_tells_its_value() {
    let mut machine = Fake::default();
    machine.spans.insert(vec![7], (1000, 64));
    let steps = [
        constant(0, 7),
        step(Operation::Key, 0, 0, 0, 0, 0),
        step(Operation::EndSpan, 1, 0, 0, 0, 0),
        step(Operation::SpanValue, 2, 0, 0, 0, 0),
        step(Operation::Field, 0, 1, 0, 0, 0),
        step(Operation::Field, 0, 2, 0, 0, 0),
        step(Operation::Key, 0, 2, 0, 0, 0),
    ];
    let summary = check(&steps, &[]).unwrap().summary();
    assert_eq!((summary.ends_span, summary.key_words), (Some(1), 1));
    assert_eq!(run(&steps, &[], &mut machine).1, [0b11, 1000, 64]);
    assert_eq!(machine.key, [64]);
    machine.key.clear();
    let (outcome, fields) = run(&steps, &[], &mut machine);
    assert_eq!(fields, [0, 0, 0]);
    assert!(outcome.undecided, "the key that follows is absent");
}

#[test]
fn writes_are_counted_when_they_fail() {
    let mut machine = Fake {
        memory: vec![0; 8],
        ..Fake::default()
    };
    let steps = [
        constant(0, BASE),
        constant(1, 0x1122),
        constant(2, 1),
        step(Operation::Store, 0, 0, 1, 2, 2),
        step(Operation::Store, 0, 2, 1, 0, 8),
        step(Operation::SetRegister, 0, 1, 0, Register::Rax as i32, 0),
        step(Operation::Return, 0, 1, 0, 0, 0),
    ];
    let program = check(&steps, &[]).unwrap();
    assert!(program.summary().writes);
    let (outcome, fields) = run(&steps, &[], &mut machine);
    assert_eq!((outcome.failed_writes, fields.len()), (1, 0));
    assert_eq!(machine.memory[2..4], [0x22, 0x11]);
    assert_eq!(machine.returned, Some(0x1122));
}

#[test]
fn flaws_are_named_with_their_step() {
    let field = |a| step(Operation::Field, 0, a, 0, 0, 0);
    let cases = [
        (vec![field(0)], 0, Flaw::Unwritten),
        (vec![constant(16, 0)], 0, Flaw::NoSlot),
        (vec![Step::default()], 0, Flaw::Unknown),
        (
            vec![constant(0, 0), step(Operation::Load, 1, 0, 0, 0, 3)],
            1,
            Flaw::BadSize,
        ),
        (
            vec![constant(0, 0), step(Operation::StringEqual, 1, 0, 0, 0, 9)],
            1,
            Flaw::BadSize,
        ),
        (
            vec![
                constant(0, 0),
                step(Operation::FieldString, 0, 0, 0, 257, 0),
            ],
            1,
            Flaw::BadSize,
        ),
        (
            vec![constant(0, 0), step(Operation::FieldSlice, 0, 0, 1, 8, 0)],
            1,
            Flaw::Unwritten,
        ),
        (
            vec![constant(0, 0), step(Operation::FieldSlice, 0, 0, 0, 0, 0)],
            1,
            Flaw::BadSize,
        ),
        (
            vec![constant(0, 0), step(Operation::KeySlice, 0, 0, 0, 9, 0)],
            1,
            Flaw::BadSize,
        ),
        (
            vec![constant(0, 0), step(Operation::SliceEqual, 1, 0, 0, 4, 5)],
            1,
            Flaw::BadSize,
        ),
        (
            vec![step(Operation::Register, 0, 0, 0, 17, 0)],
            0,
            Flaw::Unknown,
        ),
        (
            vec![step(Operation::EndSpan, 1, 0, 0, 2, 0)],
            0,
            Flaw::BadSize,
        ),
        (
            vec![step(Operation::EndSpan, 1, 0, 0, 0, 0); 3],
            2,
            Flaw::Repeated,
        ),
        (
            vec![
                step(Operation::EndSpan, 1, 0, 0, 0, 0),
                constant(0, 0),
                step(Operation::Key, 0, 0, 0, 0, 0),
                step(Operation::EndSpan, 1, 0, 0, 0, 0),
            ],
            3,
            Flaw::BadSize,
        ),
        (vec![constant(0, 0); STEPS_MAX + 1], 0, Flaw::TooLong),
        (
            [vec![constant(0, 0)], vec![field(0); FIELDS_MAX + 1]].concat(),
            FIELDS_MAX + 1,
            Flaw::TooMuchOutput,
        ),
    ];
    for (steps, index, flaw) in cases {
        assert_eq!(check(&steps, b"12345678").err(), Some((index, flaw)));
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let small = prop_oneof![0..20i32, any::<i32>()];
    let large = prop_oneof![0..65u64, Just(BASE), any::<u64>()];
    let slot = || 0..SLOTS as u8 + 1;
    (0..100u8, slot(), slot(), slot(), small, large).prop_map(
        |(operation, to, a, b, small, large)| Step {
            operation,
            to,
            a,
            b,
            small,
            large,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever is accepted runs to its end within its bounds; flawed steps are
    /// left out one by one until the program is accepted.
    #[test]
    fn accepted_programs_do_no_harm(mut steps in proptest::collection::vec(any_step(), 0..80)) {
        let data = [7u8; 64];
        while let Err((index, _)) = check(&steps, &data) {
            steps.remove(index);
        }
        let mut machine = Fake { memory: vec![7; 256], ..Fake::default() };
        let (outcome, fields) = run(&steps, &data, &mut machine);
        let summary = check(&steps, &data).unwrap().summary();
        prop_assert!(outcome.matched || !fields.is_empty() || summary.fields == 0);
        prop_assert!(fields.len() <= OUTPUT_WORDS_MAX);
    }

    /// What guards reject the run rejects, too, with nothing done.
    #[test]
    fn guards_reject_what_the_run_does(
        mut steps in proptest::collection::vec(any_condition_step(), 1..24),
        registers in proptest::collection::vec(prop_oneof![0..4u64, any::<u64>()], 4),
    ) {
        while let Err((index, _)) = check(&steps, &[]) {
            steps.remove(index);
        }
        let guards = check(&steps, &[]).unwrap().guards();
        let registers: BTreeMap<u8, u64> = (0..).zip(registers).collect();
        let value = |register: Register| registers.get(&(register as u8)).copied();
        if !guards.reject(value, Some(drawn)) {
            return Ok(());
        }
        let mut machine = Fake { memory: vec![7; 256], registers, ..Fake::default() };
        let (outcome, _) = run(&steps, &[], &mut machine);
        prop_assert_eq!(outcome, Outcome::default());
        prop_assert!(machine.kept == Fake::default().kept && machine.key.is_empty());
    }
}

/// Steps of which conditions are made, few slots and small numbers, so that they meet.
fn any_condition_step() -> impl Strategy<Value = Step> {
    use Operation::{
        Add, Below, BelowOrEqual, Both, Constant, Divide, Either, Equal, Field, IsZero, Keep, Key,
        Less, LessOrEqual, Load, Modulo, Require, SignExtend, ZeroExtend,
    };
    let operation = proptest::sample::select(vec![
        Constant,
        Operation::Register,
        Operation::Register,
        ZeroExtend,
        SignExtend,
        Equal,
        Below,
        BelowOrEqual,
        Less,
        LessOrEqual,
        IsZero,
        Require,
        Require,
        Field,
        Keep,
        Key,
        Load,
        Add,
        Either,
        Both,
        Divide,
        Modulo,
        Operation::Context,
    ]);
    let slot = || 0..4u8;
    let large = prop_oneof![0..4u64, 1..64u64, any::<u64>()];
    (operation, slot(), slot(), slot(), 0..4i32, large)
        .prop_map(|(operation, to, a, b, small, large)| step(operation, to, a, b, small, large))
}

/// A program of `register compared with constant`, either way round.
#[test]
fn guards_are_read_off_comparisons() {
    let compared = |operation, swapped: bool, narrow: Option<Operation>, constant_: u64| {
        let mut steps = vec![
            step(Operation::Register, 0, 0, 0, Register::Rdi as i32, 0),
            constant(1, constant_),
        ];
        if let Some(narrow) = narrow {
            steps.push(step(narrow, 0, 0, 0, 0, 32));
        }
        let (a, b) = if swapped { (1, 0) } else { (0, 1) };
        steps.push(step(operation, 2, a, b, 0, 0));
        steps.push(step(Operation::Require, 0, 2, 0, 0, 0));
        steps
    };
    use Operation::{Below, BelowOrEqual, Equal, Less, LessOrEqual, SignExtend, ZeroExtend};
    let minus_one = u64::from(u32::MAX);
    let cases = [
        (compared(Equal, false, None, 5), 5, 6),
        (compared(Below, false, None, 5), 4, 5),
        (compared(Below, true, None, 5), 6, 5),
        (compared(BelowOrEqual, false, None, 5), 5, 6),
        (compared(BelowOrEqual, true, None, 5), 5, 4),
        (compared(Less, false, Some(SignExtend), 0), minus_one, 1),
        (
            compared(Less, true, Some(ZeroExtend), 0),
            minus_one,
            1 << 32,
        ),
        (
            compared(LessOrEqual, false, Some(SignExtend), 0),
            minus_one,
            1,
        ),
    ];
    for (steps, accepted, rejected) in cases {
        let guards = check(&steps, &[]).unwrap().guards();
        assert!(!guards.is_empty(), "{steps:?}");
        assert!(!guards.reject(|_| Some(accepted), Some(drawn)), "{steps:?}");
        assert!(guards.reject(|_| Some(rejected), Some(drawn)), "{steps:?}");
    }
    // A register that is compared with the random number of the hit, when that is known.
    let sampled = [
        step(Operation::Context, 0, 0, 0, 0, Context::Random as u64),
        constant(1, 100),
        step(Operation::Modulo, 0, 0, 1, 0, 0),
        step(Operation::Register, 1, 0, 0, Register::Rdi as i32, 0),
        step(Below, 0, 0, 1, 0, 0),
        step(Operation::Require, 0, 0, 0, 0, 0),
    ];
    let guards = check(&sampled, &[]).unwrap().guards();
    let rejects = |value| guards.reject(|_| Some(value), Some(drawn));
    assert!(rejects(drawn() % 100) && !rejects(drawn() % 100 + 1));
    assert!(!guards.reject(|_| Some(0), None::<fn() -> u64>));
}

/// Programs of malloc and free, and such that do a little more.
#[test]
fn programs_that_amount_to_one_operation_have_a_shortcut() {
    let context = |to, context: Context| step(Operation::Context, to, 0, 0, 0, context as u64);
    let register = |to, register: Register| step(Operation::Register, to, 0, 0, register as i32, 0);
    let require = |a| step(Operation::Require, 0, a, 0, 0, 0);
    let key = |a| step(Operation::Key, 0, a, 0, 0, 0);
    let end = |small| step(Operation::EndSpan, 2, 0, 0, small, 0);
    let shortcut = |steps: &[Step]| check(steps, &[]).unwrap().shortcut();
    let begins = [
        register(0, Register::Rax),
        require(0),
        context(1, Context::Pid),
        key(1),
        key(0),
        step(Operation::Kept, 3, 0, 0, 2, 0),
        step(Operation::Value, 0, 3, 0, 0, 0),
    ];
    let wanted = Shortcut::Begins(Register::Rax, 2);
    assert_eq!(shortcut(&begins), Some(wanted));
    let free = |small| {
        let first = [register(0, Register::Rdi), require(0)];
        let rest = [
            context(1, Context::Pid),
            key(1),
            key(0),
            end(small),
            require(2),
        ];
        [&first[..], &rest].concat()
    };
    assert_eq!(shortcut(&free(0)), Some(Shortcut::Ends(Register::Rdi)));
    // Only spans older than the call; a key more; no requirement; one that no guard has.
    let mut others = vec![
        free(1),
        begins[..5].to_vec(),
        free(0)[..6].to_vec(),
        begins.to_vec(),
    ];
    others.push([key_of_two(), free(0)].concat());
    others[3].insert(0, step(Operation::Kept, 5, 0, 0, 0, 0));
    others[3].insert(1, require(5));
    for steps in others {
        assert_eq!(shortcut(&steps), None, "{steps:?}");
    }
}

fn key_of_two() -> Vec<Step> {
    vec![constant(5, 2), step(Operation::Key, 0, 5, 0, 0, 0)]
}

/// The random number of each hit of a [`Fake`].
fn drawn() -> u64 {
    100 + Context::Random as u64
}
