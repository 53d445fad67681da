// SPDX-License-Identifier: MIT OR Apache-2.0
//! What compiled programs find, on a machine that is made up.
use super::*;

mod typed;

use crate::decode::{self, FieldValue};
use crate::Plain;
use nsprobe_common::program::{check, Machine, Outcome, Output, Program, Register, KEPT_MAX};
use proptest::prelude::*;
use std::collections::BTreeMap;

const BASE: u64 = 0x1000;

/// A thread with registers and memory at [`BASE`].
#[derive(Clone, Default)]
struct Thread {
    registers: BTreeMap<u8, u64>,
    memory: Vec<u8>,
    kept: [Option<u64>; KEPT_MAX],
    key: Vec<u64>,
    value: Option<u64>,
}

impl Machine for Thread {
    fn register(&self, register: Register) -> Option<u64> {
        self.registers.get(&(register as u8)).copied()
    }
    fn context(&self, context: Context) -> Option<u64> {
        Some(match context {
            Context::CommLow => u64::from_le_bytes(*b"redis-se"),
            Context::CommHigh => u64::from_le_bytes(*b"rver\0\0\0\0"),
            Context::Elapsed => 5000,
            other => other as u64,
        })
    }
    fn kept(&self, index: usize) -> Option<u64> {
        self.kept[index]
    }
    fn keep(&mut self, index: usize, value: u64) {
        self.kept[index] = Some(value);
    }
    fn probe_address(&self) -> u64 {
        0x40_0000
    }
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let bytes = address
            .checked_sub(BASE)
            .and_then(|at| self.memory.get(at as usize..)?.get(..out.len()));
        bytes.map(|bytes| out.copy_from_slice(bytes)).is_some()
    }
    fn set_register(&mut self, _: Register, _: u64) -> bool {
        false
    }
    fn write(&mut self, _: u64, _: &[u8]) -> bool {
        false
    }
    fn return_now(&mut self, _: u64, _: u64) -> bool {
        false
    }
    fn key(&mut self, words: &[u64]) {
        self.key.extend_from_slice(words);
    }
    fn value(&mut self, value: u64) {
        self.value = Some(value);
    }
    fn end_span(&mut self, _: bool) -> Option<u64> {
        None
    }
    fn span_value(&self) -> Option<u64> {
        None
    }
}

#[derive(Default)]
struct Words(Vec<u64>);

impl Output for Words {
    fn extend(&mut self, words: &[u64]) {
        self.0.extend_from_slice(words);
    }
    fn set_first(&mut self, word: u64) {
        self.0[0] = word;
    }
}

impl Thread {
    /// With these in the registers of the first arguments.
    fn with(arguments: &[u64]) -> Thread {
        let registers = crate::plain::ARGUMENTS.iter().map(|r| *r as u8);
        Thread {
            registers: registers.zip(arguments.iter().copied()).collect(),
            ..Thread::default()
        }
    }

    fn run(&mut self, code: &Option<StepProgram>) -> (Outcome, Vec<u64>) {
        let mut words = Words::default();
        let Some(code) = code else {
            let matched = Outcome {
                matched: true,
                ..Outcome::default()
            };
            return (matched, Vec::new());
        };
        let program: Program<'_> = check(&code.steps, &code.data).unwrap();
        let outcome = program.run(self, &mut words);
        (outcome, words.0)
    }
}

const PLAIN: Plain<'_> = Plain {
    address: 0x1000,
    at_function: true,
    changes_arguments: false,
    binary: None,
    why: std::borrow::Cow::Borrowed("no debug information tells of it"),
};

fn compile(text: &str, sink: Sink<'_>) -> Result<Compiled, SpecError> {
    let spec = Spec::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    Compiled::new(&Request {
        spec: &spec,
        scope: &PLAIN,
        sink,
        at_return: false,
        changes: &[],
        ret: None,
    })
}

/// The fields of a hit at an entry; none when it is rejected.
fn fields(text: &str, thread: &Thread) -> Option<Vec<FieldValue>> {
    let compiled = compile(text, Sink::Record).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let (outcome, words) = thread.clone().run(&compiled.entry);
    outcome
        .matched
        .then(|| decode::fields(&compiled.fields, &words))
}

fn text(text: &str) -> FieldValue {
    FieldValue::Text {
        bytes: text.into(),
        cut: false,
    }
}

#[test]
fn fields_are_what_the_thread_has() {
    let mut thread = Thread::with(&[7, BASE, -1i64 as u64]);
    thread.memory = vec![0; 64];
    thread.memory[..6].copy_from_slice(b"hello\0");
    thread.memory[8..16].copy_from_slice(&(BASE + 32).to_le_bytes());
    thread.memory[36..40].copy_from_slice(&(-9i32).to_le_bytes());
    let found = fields(
        "f(arg1, arg2:string, x=arg3, *(s32 *)(*(u64 *)(arg2 + 8) + 4), arg3:u8, arg9, $comm)",
        &thread,
    );
    assert_eq!(
        found.unwrap(),
        [
            FieldValue::Unsigned(7),
            text("hello"),
            FieldValue::Signed(-1),
            FieldValue::Signed(-9),
            FieldValue::Unsigned(255),
            FieldValue::Absent,
            text("redis-server"),
        ]
    );
}

#[test]
fn conditions_decide() {
    let mut thread = Thread::with(&[7, BASE, 0, -1i64 as u64]);
    thread.memory =
        b"GET /index\0 and more than sixty-four bytes of memory behind it, for the pieces".to_vec();
    for (condition, holds) in [
        ("arg1 == 7", true),
        ("arg1 != 7", false),
        ("arg1 > 6 && arg1 < 8", true),
        ("arg4 < 0", true),
        ("(u64)arg4 < 0", false),
        ("(u32)arg4 == 0xffffffff", true),
        ("(s8)arg4 == -1", true),
        ("arg2 == \"GET /index\"", true),
        ("arg2 == \"GET /\"", false),
        ("arg2 != \"GET /\"", true),
        ("arg2 ~ \"GET*\"", true),
        ("arg2 ~ \"PUT*\"", false),
        ("$comm == \"redis-server\"", true),
        ("$comm == \"redis\"", false),
        ("$comm ~ \"redis-ser*\"", true),
        ("arg3 == 0 || *arg3 > 3", true),
        ("arg3 && *arg3 > 3", false),
        ("!arg3", true),
        ("-arg1 / 2 == -3", true),
        ("-arg1 % 4 == -3", true),
        ("arg4 >> 1 == -1", true),
        ("(arg1 & 6) == 6", true),
        ("~arg1 == -8", true),
        ("*(char *)arg2 == 'G'", true),
        ("((char *)arg2)[1] == 'E'", true),
        ("((u16 *)arg2)[1] == 0x2054", true),
    ] {
        let found = fields(&format!("f if {condition}"), &thread);
        assert_eq!(found.is_some(), holds, "{condition}");
    }
}

#[test]
fn a_return_has_the_arguments_of_its_entry() {
    let spec = "f(arg1, $retval, $elapsed, *(u32 *)arg2, entry(*(u32 *)arg2)) \
                if arg1 > 3 && $retval == 5 && $pid == 0";
    let compiled = compile(spec, Sink::Record).unwrap();
    assert!(compiled.at_return);
    let mut thread = Thread::with(&[7, BASE]);
    thread.memory = vec![1; 8];
    assert!(thread.run(&compiled.entry).0.matched);
    // Now the registers are others, and so is the memory.
    let mut after = Thread::with(&[0, 0]);
    after.registers.insert(Register::Rax as u8, 5);
    (after.kept, after.memory) = (thread.kept, vec![2; 8]);
    let (outcome, words) = after.run(&compiled.ret);
    assert!(outcome.matched);
    let number = FieldValue::Unsigned;
    assert_eq!(
        decode::fields(&compiled.fields, &words),
        [
            number(7),
            number(5),
            number(5000),
            number(0x02020202),
            number(0x01010101)
        ]
    );
    // What the entry knows, it decides.
    let few = Thread::with(&[3, BASE]).run(&compiled.entry).0;
    assert!(!few.matched && !few.undecided);
}

#[test]
fn keys_and_values_go_to_the_table() {
    let keys = Field::parse_list("$pid, $comm, arg1:string[12], small=arg2 % 4").unwrap();
    let value = Field::parse_list("arg2").unwrap().remove(0).value;
    let sink = Sink::Table {
        keys: &keys,
        value: Some(&value),
    };
    let compiled = compile("f", sink).unwrap();
    let mut thread = Thread::with(&[BASE, 6]);
    thread.memory =
        b"key\0 and more behind it, as memory mostly has: so it goes on for a while".to_vec();
    assert!(thread.run(&compiled.entry).0.matched);
    assert_eq!(thread.value, Some(6));
    let number = FieldValue::Unsigned;
    assert_eq!(
        decode::key(&compiled.keys, &thread.key),
        [
            number(0),
            text("redis-server"),
            text("key"),
            FieldValue::Signed(2)
        ]
    );
}

#[test]
fn errors_say_what_is_there_instead() {
    let message = |spec: &str| compile(spec, Sink::Record).expect_err(spec).message;
    assert!(message("f(name)").contains("no debug information"));
    assert!(message("f(arg1, arg1)").contains("two fields"));
    assert!(message("f(arg0)").contains("counted from 1"));
    assert!(message("f(arg999)").contains("so many"));
    assert!(message("f(arg1->x)").contains("nothing is known"));
    assert!(message("f(\"x\")").contains("only be compared"));
    assert!(message("f if $comm").contains("compared"));
    assert!(message("f if $comm == \"longer than sixteen bytes\"").contains("15 bytes"));
    assert!(message("f if 1 ~ 2").contains("ends in *"));
    assert!(message("f($retval, arg1, arg2, arg3, arg4, arg5)").contains("keeps 4"));
    let many = ["a", "b", "c", "d"].map(|name| format!("{name}=arg1:string[256]"));
    assert!(message(&format!("f({})", many.join(","))).contains("longer, than"));
    let long: Vec<String> = (2..102).map(|factor| format!("arg1*{factor}")).collect();
    assert!(message(&format!("f({})", long.join("+"))).contains("256 steps"));
}

#[test]
fn more_values_than_slots_are_computed_again() {
    let products: Vec<String> = (2..27).map(|factor| format!("arg1*{factor}")).collect();
    let spec = format!("f({}, {})", products.join("+"), products.join(", "));
    let found = fields(&spec, &Thread::with(&[10])).unwrap();
    let expected = std::iter::once((2..27).sum()).chain(2..27);
    let expected: Vec<FieldValue> = expected.map(|n: i64| FieldValue::Signed(n * 10)).collect();
    assert_eq!(found, expected);
}

type Operation = fn(i64, i64) -> Option<i64>;

/// An expression of C, and what it is on 64-bit numbers with a sign.
fn expression() -> impl Strategy<Value = (String, Option<i64>)> {
    let leaf = prop_oneof![
        (0i64..100).prop_map(|n| (n.to_string(), Some(n))),
        Just(("arg1".to_owned(), Some(-3))),
        Just(("arg2".to_owned(), Some(1 << 40))),
    ];
    leaf.prop_recursive(8, 96, 2, |inner| {
        (inner.clone(), 0..13usize, inner).prop_map(|((a, x), operator, (b, y))| {
            let (sign, of) = [
                ("+", (|x, y| Some(x.wrapping_add(y))) as Operation),
                ("-", |x, y| Some(x.wrapping_sub(y))),
                ("*", |x, y| Some(x.wrapping_mul(y))),
                ("/", i64::checked_div),
                ("%", i64::checked_rem),
                ("&", |x, y| Some(x & y)),
                ("|", |x, y| Some(x | y)),
                ("^", |x, y| Some(x ^ y)),
                ("==", |x, y| Some((x == y).into())),
                ("!=", |x, y| Some((x != y).into())),
                ("<", |x, y| Some((x < y).into())),
                (">=", |x, y| Some((x >= y).into())),
                (">", |x, y| Some((x > y).into())),
            ][operator];
            let value = x.zip(y).and_then(|(x, y)| of(x, y));
            (format!("({a} {sign} {b})"), value)
        })
    })
}

/// How many steps the program of an entry has.
fn steps(spec: &str) -> usize {
    let compiled = compile(spec, Sink::Record).unwrap();
    compiled.entry.map_or(0, |code| code.steps.len())
}

#[test]
fn what_is_used_twice_is_fetched_once() {
    // The register, the load, and two fields.
    assert_eq!(steps("f(a=*(u64 *)arg1, b=*(u64 *)arg1)"), 4);
    assert_eq!(steps("f(a=+8(arg1), b=+16(arg1)) if +8(arg1) > 3"), 8);
    // The return keeps what it needs, once.
    let compiled = compile("f(a=arg1, b=arg1 + 1, $retval)", Sink::Record).unwrap();
    assert_eq!(compiled.entry.unwrap().steps.len(), 2);
}

#[test]
fn what_goes_deep_takes_few_slots() {
    let deep = format!("f({}1{})", "(arg1 + arg2 * ".repeat(15), ")".repeat(15));
    let value = (0..15).fold(1, |value, _| 3 + 5 * value);
    let found = fields(&deep, &Thread::with(&[3, 5]));
    assert_eq!(found, Some(vec![FieldValue::Signed(value)]));
}

proptest! {
    #[test]
    fn numbers_are_those_of_c(several in prop::collection::vec(expression(), 1..4)) {
        let thread = Thread::with(&[-3i64 as u64, 1 << 40]);
        let texts: Vec<String> = several.iter().map(|(text, _)| format!("{text}:s64")).collect();
        let spec = format!("f({})", texts.join(", "));
        prop_assume!(compile(&spec, Sink::Record).is_ok());
        let found = fields(&spec, &thread).unwrap();
        for (found, (text, expected)) in found.into_iter().zip(several) {
            let expected = expected.map_or(FieldValue::Absent, FieldValue::Signed);
            prop_assert_eq!(found, expected, "{}", text);
        }
    }
}

#[test]
fn allocations_begin_spans_and_frees_end_them() {
    use nsprobe_common::program::Operation as Done;
    let spans = |sample| Sink::Spans {
        sample,
        probed: &[],
    };
    let done = |text: &str| {
        let compiled = compile(text, spans(0)).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let code = match compiled.at_return {
            true => compiled.ret,
            false => compiled.entry,
        };
        let steps = code.unwrap().steps.into_iter();
        let done = steps.filter_map(|step| Done::from_u8(step.operation));
        let done: Vec<Done> = done
            .filter(|one| *one as u8 >= Done::Require as u8)
            .collect();
        done
    };
    let malloc = done("f%return(block=%rax, bytes=entry(%rdi))");
    assert_eq!(malloc, [Done::Require, Done::Key, Done::Key, Done::Value]);
    let free = done("f(freed=%rdi)");
    let ends = [
        Done::Require,
        Done::Key,
        Done::Key,
        Done::EndSpan,
        Done::Require,
    ];
    assert_eq!(free, ends);
    let realloc = done("f(freed=arg1, block=$retval, bytes=arg2)");
    assert_eq!(
        realloc,
        [&[Done::Key, Done::Key, Done::EndSpan][..], &malloc].concat()
    );
    let code = compile("f%return(freed=arg1)", spans(0))
        .unwrap()
        .ret
        .unwrap();
    let end = code
        .steps
        .iter()
        .find(|step| step.operation == Done::EndSpan as u8);
    assert_eq!(
        end.map(|step| step.small),
        Some(1),
        "only older than the call"
    );
    // One that calls another: only a sample of the other one is to be ended.
    let nested = "f(freed=$retval, block=$retval, bytes=arg1)";
    assert_eq!(done(nested), malloc);
    let sampled = compile(nested, spans(4096)).unwrap().ret.unwrap();
    let ends: Vec<i32> = sampled
        .steps
        .iter()
        .filter(|step| step.operation == Done::EndSpan as u8)
        .map(|step| step.small)
        .collect();
    assert_eq!(ends, [0], "however old");
    assert!(sampled.by_argument().is_some());
    // Blocks that are not taken are turned away at the entry, unless the return frees, too.
    let requires = |text: &str| {
        let compiled = compile(text, spans(4096)).unwrap();
        [compiled.entry, compiled.ret].map(|code| {
            let steps = code.unwrap().steps;
            let random = |step: &&nsprobe_common::program::Step| {
                step.operation == Done::Context as u8 && step.large == Context::Random as u64
            };
            steps.iter().filter(random).count()
        })
    };
    assert_eq!(requires("f(block=$retval, bytes=arg1)"), [1, 0]);
    assert_eq!(requires("f(freed=arg1, block=$retval, bytes=arg2)"), [0, 1]);
    assert_eq!(requires(nested), [0, 1]);
    for (text, why) in [
        ("f", "are missing"),
        ("f%return", "are missing"),
        ("f(block=$retval)", "its size is missing"),
        ("f%return(bytes=arg1)", "its address is missing"),
        ("f(freed=arg1, freed=arg2)", "twice"),
        ("f(freed=arg1, other=arg2)", "the fields are"),
        ("f(freed=arg1:u32)", "takes no format"),
        ("f(block=arg1, bytes=arg2)", "add %return"),
    ] {
        let error = compile(text, spans(0)).expect_err(text);
        assert!(error.message.contains(why), "{text}: {}", error.message);
    }
}

#[test]
fn what_only_a_wait_has_is_refused_elsewhere() {
    let keys = Field::parse_list("kind=$kind,late=$runnable > 1ms").unwrap();
    let compiled = Compiled::placeless(&keys, true).unwrap();
    assert_eq!(compiled.keys.len(), 2);
    let refused = |error: SpecError| assert!(error.message.contains("only a wait"), "{error:?}");
    refused(Compiled::placeless(&keys, false).unwrap_err());
    for text in ["f($fd)", "f(x=arg1) if $kind == 1"] {
        refused(compile(text, Sink::Record).unwrap_err());
    }
    let value = Field::parse_list("$syscall").unwrap();
    let sink = Sink::Table {
        keys: &[],
        value: value.first().map(|field| &field.value),
    };
    refused(compile("f", sink).unwrap_err());
}
