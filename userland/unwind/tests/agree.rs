// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of this machine's libraries agree with an evaluation of their `.eh_frame`
//! that knows nothing of rules: at each place, with registers and memory that are made up.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, Encoding, EndianSlice, EvaluationResult, Format, LittleEndian,
    Location, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value,
    X86_64,
};
use nsprobe_common::unwind::{At, Base, Memory, Registers, Rule, Stop};
use nsprobe_symbolize::{Address, Binary};
use nsprobe_unwind::UnwindTable;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Every word of memory is a function of its address; registers are chosen so that
/// frames lie above the stack pointer.
struct MadeUp;

impl Memory for MadeUp {
    fn word(&self, address: u64) -> Option<u64> {
        Some(0x7fff_0000_0000 | (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) << 3)
    }

    fn register(&self, number: u8) -> Option<u64> {
        Some(match number {
            6 => 0x7ffe_0000_8000,
            7 => 0x7ffe_0000_0000,
            other => 0x7ffe_0001_0000 + (u64::from(other) << 8),
        })
    }
}

fn word(address: u64) -> u64 {
    MadeUp.word(address).expect("all of it is there")
}

fn value_of(register: Register, rip: u64) -> u64 {
    match register {
        X86_64::RA => rip,
        Register(number) => MadeUp.register(number as u8).expect("all are known"),
    }
}

/// The value of an expression.
fn evaluate<'s>(
    section: &EhFrame<Bytes<'s>>,
    expression: &UnwindExpression<usize>,
    rip: u64,
    start: Option<u64>,
) -> Option<u64> {
    let encoding = Encoding {
        address_size: 8,
        format: Format::Dwarf32,
        version: 4,
    };
    let mut evaluation = expression.get(section).ok()?.evaluation(encoding);
    if let Some(start) = start {
        evaluation.set_initial_value(start);
    }
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = Value::Generic(value_of(register, rip));
                evaluation.resume_with_register(value).ok()?
            }
            EvaluationResult::RequiresMemory { address, .. } => evaluation
                .resume_with_memory(Value::Generic(word(address)))
                .ok()?,
            _ => return None,
        };
    }
    let pieces = evaluation.as_result();
    match pieces.first()?.location {
        Location::Address { address } => Some(address),
        _ => None,
    }
}

/// The caller as gimli finds it: its return address, stack pointer and frame pointer
/// (when it is known); `None` of all without a caller.
type Caller = Option<(u64, u64, Option<u64>)>;

struct Reference<'a> {
    section: EhFrame<Bytes<'a>>,
    bases: BaseAddresses,
}

impl Reference<'_> {
    /// All rows with their first and last address, and what each leads to there.
    fn each(&self, mut look: impl FnMut(u64, Caller)) {
        let mut context = UnwindContext::new();
        let mut entries = self.section.entries(&self.bases);
        while let Ok(Some(entry)) = entries.next() {
            let gimli::CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
                continue;
            };
            let Ok(mut rows) = fde.rows(&self.section, &self.bases, &mut context) else {
                continue;
            };
            while let Ok(Some(row)) = rows.next_row() {
                if row.start_address() >= row.end_address() {
                    continue;
                }
                for rip in [row.start_address(), row.end_address() - 1] {
                    look(rip, self.caller(row, rip));
                }
            }
        }
    }

    fn caller(&self, row: &gimli::UnwindTableRow<usize>, rip: u64) -> Caller {
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                value_of(*register, rip).wrapping_add(*offset as u64)
            }
            CfaRule::Expression(expression) => evaluate(&self.section, expression, rip, None)?,
        };
        let restored = |register: Register| -> Option<u64> {
            match row.register(register) {
                None if register == X86_64::RSP => Some(frame),
                None | Some(RegisterRule::SameValue) => Some(value_of(register, rip)),
                Some(RegisterRule::Offset(offset)) => Some(word(frame.wrapping_add(offset as u64))),
                Some(RegisterRule::ValOffset(offset)) => Some(frame.wrapping_add(offset as u64)),
                Some(RegisterRule::Register(other)) => Some(value_of(other, rip)),
                Some(RegisterRule::Expression(expression)) => {
                    evaluate(&self.section, &expression, rip, Some(frame)).map(word)
                }
                Some(RegisterRule::ValExpression(expression)) => {
                    evaluate(&self.section, &expression, rip, Some(frame))
                }
                _ => None,
            }
        };
        let ra = restored(X86_64::RA)?;
        Some((ra, restored(X86_64::RSP)?, restored(X86_64::RBP)))
    }
}

/// Compares one file; rows that were compared, and that have no rule.
fn compare(path: &Path) -> Option<(u64, u64)> {
    let binary = Binary::open(File::open(path).ok()?, path).ok()?;
    let table = UnwindTable::of(&binary).ok()?;
    nsprobe_common::unwind::Table::check(table.first, &table.blocks, &table.rows, &table.rules)
        .unwrap_or_else(|defect| panic!("{}: {defect:?}", path.display()));
    let sections = binary.unwind_sections().ok()?;
    let mut section = EhFrame::from(EndianSlice::new(&sections.eh_frame.data, LittleEndian));
    section.set_address_size(8);
    let reference = Reference {
        section,
        bases: BaseAddresses::default()
            .set_eh_frame(sections.eh_frame.address.0)
            .set_text(sections.text.0)
            .set_got(sections.got.0),
    };
    let (mut compared, mut without) = (0, 0);
    reference.each(|rip, wanted| {
        let Some(offset) = binary.offset_of(Address(rip)) else {
            return;
        };
        let rule = table.table().find(offset.0);
        let rule = rule.unwrap_or_else(|| panic!("{}: no row at {rip:#x}", path.display()));
        match Base::from_u8(rule.base) {
            Some(Base::Unsupported | Base::Unknown) => without += 1,
            _ => {
                compared += 1;
                same(path, rip, rule, wanted);
            }
        }
    });
    Some((compared, without))
}

fn same(path: &Path, rip: u64, rule: &Rule, wanted: Caller) {
    let mut at = Registers {
        rip,
        rsp: value_of(X86_64::RSP, rip),
        rbp: value_of(X86_64::RBP, rip),
        knows_rbp: true,
        at: At::Innermost,
    };
    let stepped = rule.step(&mut at, &MadeUp);
    let shown = path.display();
    match (stepped, wanted) {
        (Ok(_), Some((ra, rsp, rbp))) => {
            assert_eq!((at.rip, at.rsp), (ra, rsp), "{shown}: {rip:#x} {rule:?}");
            if at.knows_rbp {
                assert_eq!(Some(at.rbp), rbp, "{shown}: {rip:#x} {rule:?}");
            }
        }
        (Err(Stop::Outermost), None) => {}
        // Where the made up registers do not lead up the stack.
        (Err(Stop::NotAbove), Some((_, rsp, _))) => {
            let here = value_of(X86_64::RSP, rip);
            assert!(rsp <= here || rsp % 8 != 0, "{shown}: {rip:#x} {rule:?}");
        }
        other => panic!("{shown}: {rip:#x} {rule:?}: {other:?}"),
    }
}

#[test]
fn rows_agree_with_the_evaluation_of_all_libraries() {
    let limit = std::env::var("LIBRARIES").map_or(40, |count| count.parse().expect("a number"));
    let mut files: Vec<PathBuf> = ["/usr/lib/x86_64-linux-gnu", "/usr/bin"]
        .into_iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file() && !path.is_symlink())
        .collect();
    // The C library, and others in an order that is always the same.
    files.sort_by_key(|path| {
        let name = path.to_string_lossy().into_owned();
        (!name.ends_with("libc.so.6"), name.len() % 7, name)
    });
    let (mut count, mut rows, mut without) = (0, 0, 0);
    for path in files {
        if count == limit {
            break;
        }
        if let Some((compared, left_out)) = compare(&path) {
            count += 1;
            rows += compared;
            without += left_out;
        }
    }
    println!("{count} files, {rows} places agree, {without} have no rule");
    assert!(count > 0 && rows > 1000, "{count} files, {rows} places");
    assert!(without * 200 < rows, "{without} of {rows} have no rule");
}
