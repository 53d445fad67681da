// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs built by the machine's own compilers, and what gdb saw of them: the
//! registers and the memory at a breakpoint, as a core file, and the values that
//! gdb itself prints there.

pub(crate) mod fields;

use nsprobe_common::program::Register;
use nsprobe_spec::{BinaryOperator, Member, Scope, Shape, TypeId, Typed, Value, ValuePlace};
use nsprobe_symbolize::Binary;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder that is removed with everything in it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("nsprobe-spec-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The fixture as `compiler` builds it; `None`, with a printed reason, without
    /// the compiler.
    pub(crate) fn build(&self, compiler: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixture")
            .join(source);
        let name = format!("program{}", fs::read_dir(&self.0).unwrap().count());
        let out = self.path(&name);
        let mut command = nsprobe_testing::compiler(compiler);
        command.args(flags).arg("-o").arg(&out).arg(source);
        nsprobe_testing::success(&mut command).then_some(out)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn open(path: &Path) -> Binary {
    Binary::open(File::open(path).unwrap(), path).unwrap()
}

/// A stopped program.
pub(crate) struct Stopped {
    core: Vec<u8>,
    /// Address, file offset and length of what is in the core.
    segments: Vec<(u64, usize, usize)>,
    /// As `struct user_regs_struct` has them.
    registers: Vec<u64>,
    /// Where the program's file is loaded.
    pub(crate) load_bias: u64,
    /// What gdb printed for each expression that it was asked for.
    pub(crate) printed: Vec<String>,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn half(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// How gdb is told where to stop.
#[derive(Clone, Copy)]
pub(crate) enum Stop {
    /// At an address of the file, the first time.
    At(u64),
    /// The same, at an address that may never be reached: then `None`.
    Perhaps(u64),
    /// Right after the return of the function at an address of the file.
    ReturnOf(u64),
}

/// Runs the program in gdb up to the place, and has gdb print the expressions.
/// `None`, with a printed reason, without gdb.
pub(crate) fn stop(program: &Path, stop: &Stop, expressions: &[&str]) -> Option<Stopped> {
    let mut stopped = stops(program, &[(*stop, expressions)])?;
    stopped.remove(0)
}

/// The same for several places, to which the program comes in any order: it runs once, and gdb
/// takes longer to start than to stop.
pub(crate) fn stops(program: &Path, wanted: &[(Stop, &[&str])]) -> Option<Vec<Option<Stopped>>> {
    let path = program.with_extension("stops");
    let at =
        |number: usize, what: &str| PathBuf::from(format!("{}.{number}.{what}", path.display()));
    // A program that is loaded anywhere is, without randomization, loaded here.
    let bias = match open(program).segment_of(nsprobe_symbolize::FileOffset(0)) {
        Some(segment) if segment.address.0 == 0 => 0x5555_5555_4000u64,
        _ => 0,
    };
    let lines = wanted.iter().map(|(stop, expressions)| {
        let (kind, address) = match stop {
            Stop::At(address) | Stop::Perhaps(address) => ("at", address),
            Stop::ReturnOf(address) => ("return", address),
        };
        let expressions: String = expressions.iter().map(|one| format!("\t{one}")).collect();
        format!("{kind}\t{:x}{expressions}\n", address + bias)
    });
    fs::write(&path, lines.collect::<String>()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/stop.py");
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-x"]).arg(script).arg(program);
    let output = nsprobe_testing::output(gdb.env("NSPROBE_STOPS", &path))?;
    let told = || {
        let both = [&output.stdout, &output.stderr];
        both.map(|text| String::from_utf8_lossy(text).into_owned())
    };
    let stopped = wanted
        .iter()
        .enumerate()
        .map(|(number, (stop, expressions))| {
            let core = match fs::read(at(number, "core")) {
                Ok(core) => core,
                Err(_) if matches!(stop, Stop::Perhaps(_)) => return None,
                Err(error) => panic!("{program:?}, stop {number}: {error}; {:?}", told()),
            };
            let printed = fs::read_to_string(at(number, "printed")).unwrap();
            let printed: Vec<String> = printed.lines().map(str::to_owned).collect();
            assert_eq!(printed.len(), expressions.len(), "{:?}", told());
            let mut stopped = Stopped::parse(core, bias, printed);
            stopped.add_program(fs::read(program).unwrap());
            for what in ["core", "printed"] {
                fs::remove_file(at(number, what)).unwrap();
            }
            if let Stop::At(address) = stop {
                assert_eq!(stopped.register(Register::Rip), Some(address + bias));
            }
            Some(stopped)
        });
    Some(stopped.collect())
}

impl Stopped {
    fn parse(core: Vec<u8>, load_bias: u64, printed: Vec<String>) -> Stopped {
        let (table, count) = (word(&core, 32) as usize, half(&core, 56) & 0xffff);
        let (mut segments, mut registers) = (Vec::new(), Vec::new());
        for header in (0..count).map(|index| table + index * 56) {
            let (offset, bytes) = (word(&core, header + 8) as usize, word(&core, header + 32));
            match half(&core, header) {
                1 => segments.push((word(&core, header + 16), offset, bytes as usize)),
                4 => {
                    // The first NT_PRSTATUS is of the thread that stopped.
                    let mut note = offset;
                    while half(&core, note + 8) != 1 {
                        let (name, data) = (half(&core, note), half(&core, note + 4));
                        note += 12 + name.next_multiple_of(4) + data.next_multiple_of(4);
                    }
                    let at = note + 12 + half(&core, note).next_multiple_of(4) + 112;
                    registers = (0..27).map(|index| word(&core, at + index * 8)).collect();
                }
                _ => {}
            }
        }
        Stopped {
            core,
            segments,
            registers,
            load_bias,
            printed,
        }
    }

    /// What is only read of a program's file is not in the core.
    fn add_program(&mut self, file: Vec<u8>) {
        let (table, count) = (word(&file, 32) as usize, half(&file, 56) & 0xffff);
        let start = self.core.len();
        for header in (0..count).map(|index| table + index * 56) {
            if half(&file, header) == 1 {
                let (offset, bytes) = (word(&file, header + 8), word(&file, header + 32));
                let address = word(&file, header + 16) + self.load_bias;
                let offset = start + offset as usize;
                self.segments.push((address, offset, bytes as usize));
            }
        }
        self.core.extend(file);
    }

    pub(crate) fn register(&self, register: Register) -> Option<u64> {
        // The order of `struct user_regs_struct`.
        let at = match register {
            Register::R15 => 0,
            Register::R14 => 1,
            Register::R13 => 2,
            Register::R12 => 3,
            Register::Rbp => 4,
            Register::Rbx => 5,
            Register::R11 => 6,
            Register::R10 => 7,
            Register::R9 => 8,
            Register::R8 => 9,
            Register::Rax => 10,
            Register::Rcx => 11,
            Register::Rdx => 12,
            Register::Rsi => 13,
            Register::Rdi => 14,
            Register::Rip => 16,
            Register::Flags => 18,
            Register::Rsp => 19,
        };
        self.registers.get(at).copied()
    }

    pub(crate) fn read(&self, address: u64, bytes: usize) -> Option<&[u8]> {
        self.segments.iter().find_map(|(start, offset, length)| {
            let into = usize::try_from(address.checked_sub(*start)?).ok()?;
            (into + bytes <= *length).then(|| &self.core[offset + into..offset + into + bytes])
        })
    }

    fn load(&self, address: u64, bytes: u64, signed: bool) -> Option<u64> {
        let mut word = [0; 8];
        word[..bytes as usize].copy_from_slice(self.read(address, bytes as usize)?);
        Some(extend(u64::from_le_bytes(word), bytes * 8, signed))
    }

    /// The value, as it would be computed at a hit here.
    pub(crate) fn value(&self, value: &Value) -> Option<u64> {
        Some(match value {
            Value::Constant(number) => *number,
            Value::Register(register) => self.register(*register)?,
            Value::Image(address) => address.wrapping_add(self.load_bias),
            Value::AtEntry(value) => self.value(value)?,
            Value::Load { address, width } => {
                self.load(self.value(address)?, width.bytes.into(), width.signed)?
            }
            Value::Truncate {
                value,
                bits,
                signed,
            } => extend(self.value(value)?, u64::from(*bits), *signed),
            Value::Binary(operator, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                match operator {
                    BinaryOperator::Add => a.wrapping_add(b),
                    BinaryOperator::Subtract => a.wrapping_sub(b),
                    BinaryOperator::Multiply => a.wrapping_mul(b),
                    BinaryOperator::And => a & b,
                    BinaryOperator::Or => a | b,
                    BinaryOperator::ExclusiveOr => a ^ b,
                    BinaryOperator::ShiftLeft => a.checked_shl(b as u32).unwrap_or(0),
                    BinaryOperator::ShiftRight => a.checked_shr(b as u32).unwrap_or(0),
                    BinaryOperator::ShiftRightSigned => ((a as i64) >> b.min(63)) as u64,
                    BinaryOperator::Equal => u64::from(a == b),
                    BinaryOperator::Less => u64::from((a as i64) < b as i64),
                    other => panic!("not in these fixtures: {other:?}"),
                }
            }
            Value::Not(value) => !self.value(value)?,
            Value::IsZero(value) => u64::from(self.value(value)? == 0),
            other => panic!("not in these fixtures: {other:?}"),
        })
    }

    /// The number that something is.
    pub(crate) fn number(&self, typed: &Typed) -> Option<u64> {
        let bytes = typed.kind.bytes().unwrap_or(8).min(8);
        match &typed.place {
            ValuePlace::Value(value) => self.value(value),
            ValuePlace::Memory(address) => {
                self.load(self.value(address)?, bytes, typed.kind.is_signed())
            }
            ValuePlace::Pieces(_) => panic!("{typed:?} is in pieces"),
        }
    }
}

fn extend(value: u64, bits: u64, signed: bool) -> u64 {
    let unused = 64 - bits;
    match signed {
        true => (((value << unused) as i64) >> unused) as u64,
        false => (value << unused) >> unused,
    }
}

/// `a.b`, `a->b`, `a[1]`, `*a`: enough of an expression to look into things,
/// independent of the spec language. Postfix: `.b` follows pointers too.
pub(crate) fn path(scope: &dyn Scope, stopped: &Stopped, path: &str) -> Result<Typed, String> {
    let mut parts = path
        .split_inclusive(['.', '['])
        .map(|part| part.trim_end_matches(['.', '[']));
    let first = parts.next().unwrap();
    let found = match first {
        "$retval" => scope.result(1),
        name => scope.variable(name).and_then(|variable| variable.value),
    };
    let mut typed = found.map_err(|error| error.to_string())?;
    for part in parts {
        typed = match part.strip_suffix(']') {
            Some(index) => element(scope, stopped, &typed, index.parse().unwrap())?,
            None if part == "*" => pointed(scope, stopped, &typed, 0)?,
            None => {
                if let Shape::Pointer { .. } = typed.kind.shape {
                    typed = pointed(scope, stopped, &typed, 0)?;
                }
                let Shape::Struct { id, .. } = typed.kind.shape else {
                    return Err(format!("no member {part} of {:?}", typed.kind));
                };
                let (member, offset) = find_member(scope, id, part)
                    .ok_or_else(|| format!("no member {part} in {}", typed.kind.name))?;
                member_of(scope, stopped, &typed, &member, offset)?
            }
        };
    }
    Ok(typed)
}

fn find_member(scope: &dyn Scope, id: TypeId, name: &str) -> Option<(Member, u64)> {
    for member in scope.members(id).unwrap().iter() {
        if member.name.as_deref() == Some(name) {
            return Some((member.clone(), member.offset));
        }
        if member.name.is_none() {
            if let Shape::Struct { id, .. } = scope.resolve(member.type_id).unwrap().shape {
                if let Some((found, offset)) = find_member(scope, id, name) {
                    return Some((found, offset + member.offset));
                }
            }
        }
    }
    None
}

fn member_of(
    scope: &dyn Scope,
    stopped: &Stopped,
    whole: &Typed,
    member: &Member,
    offset: u64,
) -> Result<Typed, String> {
    let kind = scope.resolve(member.type_id).map_err(|e| e.to_string())?;
    let bytes = kind.bytes().unwrap_or(0);
    let at = |address: u64| ValuePlace::Memory(Value::Constant(address.wrapping_add(offset)));
    let mut place = match &whole.place {
        ValuePlace::Memory(address) => at(stopped.value(address).unwrap()),
        ValuePlace::Value(_) => return Err("a struct in a value".to_owned()),
        ValuePlace::Pieces(pieces) => {
            let piece = pieces
                .iter()
                .find(|piece| (piece.offset..piece.offset + piece.bytes).contains(&offset))
                .ok_or("no piece has it")?;
            let into = offset - piece.offset;
            match &piece.place {
                ValuePlace::Memory(address) => {
                    ValuePlace::Memory(Value::Constant(stopped.value(address).unwrap() + into))
                }
                ValuePlace::Value(value) => {
                    let value = stopped.value(value).unwrap() >> (into * 8);
                    let value = extend(value, bytes.clamp(1, 8) * 8, kind.is_signed());
                    ValuePlace::Value(Value::Constant(value))
                }
                ValuePlace::Pieces(_) => return Err("pieces of pieces".to_owned()),
            }
        }
    };
    if let (Some((low, count)), ValuePlace::Memory(Value::Constant(address))) =
        (member.bits, &place)
    {
        let bits = stopped.load(*address, 8, false).unwrap() >> low;
        let value = extend(bits, u64::from(count), kind.is_signed());
        place = ValuePlace::Value(Value::Constant(value));
    }
    Ok(Typed { place, kind })
}

fn pointed(
    scope: &dyn Scope,
    stopped: &Stopped,
    pointer: &Typed,
    index: u64,
) -> Result<Typed, String> {
    let Shape::Pointer { to, .. } = pointer.kind.shape else {
        return Err(format!("{:?} is no pointer", pointer.kind));
    };
    let kind = scope.resolve(to).map_err(|e| e.to_string())?;
    let address = stopped.number(pointer).ok_or("not readable")?;
    let address = address + index * kind.bytes().unwrap_or(1);
    Ok(Typed {
        place: ValuePlace::Memory(Value::Constant(address)),
        kind,
    })
}

fn size(scope: &dyn Scope, id: TypeId) -> u64 {
    let kind = scope.resolve(id).unwrap();
    match kind.shape {
        Shape::Array { of, count } => size(scope, of) * count.unwrap(),
        _ => kind.bytes().unwrap(),
    }
}

fn element(
    scope: &dyn Scope,
    stopped: &Stopped,
    array: &Typed,
    index: u64,
) -> Result<Typed, String> {
    let Shape::Array { of, .. } = array.kind.shape else {
        return pointed(scope, stopped, array, index);
    };
    let ValuePlace::Memory(address) = &array.place else {
        return Err("an array that is not in memory".to_owned());
    };
    let address = stopped.value(address).unwrap() + index * size(scope, of);
    Ok(Typed {
        place: ValuePlace::Memory(Value::Constant(address)),
        kind: scope.resolve(of).map_err(|e| e.to_string())?,
    })
}
