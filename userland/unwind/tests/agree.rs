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
use nsprobe_unwind::{UnwindError, UnwindTable};
use object::{Object, ObjectSection};
use std::fs::{self, File};
use std::io::Read;
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

impl<'a> Reference<'a> {
    /// The section as another reader of ELF finds it.
    fn of(file: &'a [u8]) -> Reference<'a> {
        let elf = object::File::parse(file).expect("it is ELF");
        let at = |name| elf.section_by_name(name).map_or(0, |found| found.address());
        let data = elf
            .section_by_name(".eh_frame")
            .map_or(&[][..], |found| found.data().expect("it is in the file"));
        let mut section = EhFrame::from(EndianSlice::new(data, LittleEndian));
        section.set_address_size(8);
        Reference {
            section,
            bases: BaseAddresses::default()
                .set_eh_frame(at(".eh_frame"))
                .set_text(at(".text"))
                .set_got(at(".got")),
        }
    }

    /// Whether it describes no code.
    fn is_empty(&self) -> bool {
        let mut count = 0;
        self.each(|_, _| count += 1);
        count == 0
    }

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

/// Files that are compared; in the full run, or as many as there are.
const FILES: usize = 40;
const FILES_FULL: usize = 500;
/// Places that are compared in each of them, on average, at least.
const PLACES_MIN: u64 = 2000;

/// Whether a file is one that nsprobe has to know: a program or a library for x86-64, as its
/// header says it (ELF gABI, "ELF Header").
fn is_program(path: &Path) -> bool {
    let mut header = [0; 20];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let [executable, shared, x86_64] = [2, 3, 62];
    let is_elf_64 = header.starts_with(b"\x7fELF\x02\x01");
    read.is_ok() && is_elf_64 && [executable, shared].contains(&half(16)) && half(18) == x86_64
}

/// Compares one file; rows that were compared, and that have no rule. `None` for a library
/// of which the section describes nothing: glibc has some that are empty since 2.34.
fn compare(path: &Path) -> Option<(u64, u64)> {
    let open = File::open(path).expect("readable");
    let binary = Binary::open(open, path);
    let binary = binary.unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let bytes = fs::read(path).expect("readable");
    let reference = Reference::of(&bytes);
    let table = match UnwindTable::of(&binary) {
        Ok(table) => table,
        Err(UnwindError::Nothing) if reference.is_empty() => return None,
        Err(why) => panic!("{}: {why}", path.display()),
    };
    nsprobe_common::unwind::Table::check(table.first, &table.blocks, &table.rows, &table.rules)
        .unwrap_or_else(|defect| panic!("{}: {defect:?}", path.display()));
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
        ..Registers::default()
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

/// Programs and libraries of this machine, each once.
fn files() -> Vec<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/bin"].map(Path::new);
    let mut files: Vec<PathBuf> = folders
        .into_iter()
        .filter(|folder| nsprobe_testing::file(folder))
        .flat_map(|folder| fs::read_dir(folder).expect("readable"))
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.is_file() && !path.is_symlink() && is_program(path))
        .collect();
    // The C library, and others in an order that is always the same.
    files.sort_by_key(|path| {
        let name = path.to_string_lossy().into_owned();
        (!name.ends_with("libc.so.6"), name.len() % 7, name)
    });
    files
}

#[test]
fn rows_agree_with_the_evaluation_of_some_libraries() {
    agrees_in(FILES);
}

#[test]
#[ignore = "full run: many libraries"]
fn rows_agree_with_the_evaluation_of_many_libraries() {
    agrees_in(FILES_FULL);
}

fn agrees_in(limit: usize) {
    let files = files();
    if files.len() < FILES {
        nsprobe_testing::lacking(format_args!("{} programs are too few", files.len()));
    }
    let (mut count, mut empty, mut rows, mut without) = (0, 0, 0, 0);
    for path in &files {
        // Those that are empty show nothing.
        if count - empty == limit as u64 {
            break;
        }
        count += 1;
        match compare(path) {
            Some((compared, untold)) => {
                rows += compared;
                without += untold;
            }
            None => empty += 1,
        }
    }
    let full = count - empty;
    println!("{full} files, {rows} places agree, {without} have no rule, {empty} files empty");
    assert!(
        count > 0 && empty * 10 <= count,
        "{empty} of {count} are empty"
    );
    assert!(rows >= count * PLACES_MIN, "{count} files, {rows} places");
    assert!(without * 2000 < rows, "{without} of {rows} have no rule");
}
