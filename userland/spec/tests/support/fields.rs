// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the fields of specs show in a stopped program, fetched by the programs that a probe
//! would run.

use super::{open, stops, Stop, Stopped};
use nsprobe_common::program::{check, Context, Machine, Output, Register};
use nsprobe_spec::decode::{self, FieldValue};
use nsprobe_spec::dwarf::{DebugFunction, DebugInfo};
use nsprobe_spec::{Compiled, Request, Scope, Sink, Spec};
use std::path::Path;

/// A stopped program as a program of a probe sees it.
struct Thread<'a> {
    stopped: &'a Stopped,
    probe_address: u64,
}

impl Machine for Thread<'_> {
    fn register(&self, register: Register) -> Option<u64> {
        self.stopped.register(register)
    }
    fn context(&self, _: Context) -> Option<u64> {
        None
    }
    fn kept(&self, _: usize) -> Option<u64> {
        None
    }
    fn keep(&mut self, _: usize, _: u64) {}
    fn probe_address(&self) -> u64 {
        self.probe_address
    }
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let found = self.stopped.read(address, out.len());
        found.is_some_and(|bytes| {
            out.copy_from_slice(bytes);
            true
        })
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
    fn key(&mut self, _: &[u64]) {}
    fn value(&mut self, _: u64) {}
    fn end_span(&mut self, _: bool) -> Option<u64> {
        None
    }
    fn span_value(&self) -> Option<u64> {
        None
    }
}

struct Words(Vec<u64>);

impl Output for Words {
    fn extend(&mut self, words: &[u64]) {
        self.0.extend(words);
    }
    fn set_first(&mut self, word: u64) {
        self.0[0] = word;
    }
}

pub(crate) fn compiled(scope: &dyn Scope, spec: &str, at_return: bool) -> Result<Compiled, String> {
    let request = Request {
        spec: &Spec::parse(spec).unwrap(),
        scope,
        sink: Sink::Record,
        at_return,
        changes: &[],
        ret: None,
    };
    Compiled::new(&request).map_err(|error| error.to_string())
}

/// What a field shows.
pub(crate) fn shown(
    scope: &dyn Scope,
    stopped: &Stopped,
    field: &str,
) -> Result<FieldValue, String> {
    let spec = format!("f({field})");
    let at_return = field.contains("$retval");
    let compiled = compiled(scope, &spec, at_return)?;
    let code = match at_return {
        true => compiled.ret,
        false => compiled.entry,
    };
    let code = code.unwrap();
    let program = check(&code.steps, &code.data).unwrap();
    let mut words = Words(Vec::new());
    let mut thread = Thread {
        stopped,
        probe_address: scope.address().wrapping_add(stopped.load_bias),
    };
    assert!(program.run(&mut thread, &mut words).matched);
    Ok(decode::fields(&compiled.fields, &words.0).remove(0))
}

/// What fields of a function show, or with `!` before it why they cannot be had.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) function: &'static str,
    pub(crate) at: When,
    pub(crate) wanted: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Entry,
    /// After the prologue.
    Body,
    Return,
}

pub(crate) const fn case(
    function: &'static str,
    wanted: &'static [(&'static str, &'static str)],
) -> Case {
    Case {
        function,
        at: When::Entry,
        wanted,
    }
}

/// The value as text, as the command line shows it but for quotes.
fn text(value: &FieldValue) -> String {
    let members = |members: &[(std::rc::Rc<str>, FieldValue)]| {
        let members = members
            .iter()
            .map(|(name, value)| format!("{name}={}", text(value)));
        format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
    };
    match value {
        FieldValue::Absent => "?".to_owned(),
        FieldValue::Unsigned(number) => number.to_string(),
        FieldValue::Signed(number) => number.to_string(),
        FieldValue::Bool(value) => value.to_string(),
        FieldValue::Float(number) => number.to_string(),
        FieldValue::Text { bytes, cut: false } => String::from_utf8(bytes.clone()).unwrap(),
        FieldValue::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        FieldValue::Struct(all) => members(all),
        FieldValue::Variant(name, value) => format!("{name}{}", text(value)),
        FieldValue::List(all) => format!("{:?}", all.iter().map(text).collect::<Vec<_>>()),
        other => format!("{other:?}"),
    }
}

pub(crate) fn check_all(program: &Path, cases: &[Case]) {
    let binary = open(program);
    let debug = DebugInfo::new(&binary, None, None).unwrap();
    let functions = cases.iter().map(|case| {
        let function: DebugFunction = debug.functions_named(case.function).unwrap().remove(0);
        let address = match case.at {
            When::Body => debug.body_pc(&function).unwrap(),
            When::Entry | When::Return => function.entry,
        };
        (function, address)
    });
    let functions: Vec<_> = functions.collect();
    let places = cases.iter().zip(&functions).map(|(case, (_, address))| {
        let none: &[&str] = &[];
        match case.at {
            When::Return => (Stop::ReturnOf(address.0), none),
            When::Entry | When::Body => (Stop::At(address.0), none),
        }
    });
    let Some(stopped) = stops(program, &places.collect::<Vec<_>>()) else {
        return;
    };
    for ((case, (function, address)), stopped) in cases.iter().zip(&functions).zip(stopped) {
        let stopped = stopped.unwrap();
        let scope = debug.scope(function, *address).unwrap();
        for (field, wanted) in case.wanted {
            let found = shown(&scope, &stopped, field);
            match wanted.strip_prefix('!') {
                None => {
                    let found = found.as_ref().map(text);
                    assert_eq!(found, Ok((*wanted).to_owned()), "{} {field}", case.function);
                }
                Some(why) => {
                    let error = found.expect_err(field);
                    assert!(error.contains(why), "{} {field}: {error}", case.function);
                }
            }
        }
    }
}
