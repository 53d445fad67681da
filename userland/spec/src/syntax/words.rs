// SPDX-License-Identifier: MIT OR Apache-2.0
//! The words of the language: formats, types, registers, what stands after a `$`.

use super::{CastType, ExpressionKind, LibraryType, Span, SpecError, ValueFormat, TEXT_BYTES};
use nsprobe_common::program::{Context, Register};
use nsprobe_text::nearest;

/// What formats there are.
pub(super) const FORMATS: &str =
    "formats are u8 to u64, s8 to s64, x8 to x64, hex, ptr, bits, char, bool, enum, symbol, \
                                  string, string[N] and bytes[N]";

/// A message about an unknown word, with those that are similar.
fn unknown<T>(
    span: &Span,
    message: String,
    word: &str,
    known: impl IntoIterator<Item = String>,
    otherwise: &str,
) -> Result<T, SpecError> {
    let similar = nearest(word, known, 3);
    let message = match similar.is_empty() {
        true => format!("{message}; {otherwise}"),
        false => format!("{message} (did you mean {}?)", similar.join(", ")),
    };
    Err(SpecError::new(span.clone(), message))
}

/// The format of that name, with the number in its brackets.
pub(super) fn format(name: &str, count: Option<u16>, span: Span) -> Result<ValueFormat, SpecError> {
    let format = match (name, count) {
        ("string", count) => Some(ValueFormat::Text {
            most: count.unwrap_or(TEXT_BYTES),
        }),
        ("bytes", Some(count)) => Some(ValueFormat::Bytes { count }),
        ("bytes", None) => {
            let message = "how many bytes? 16 are written bytes[16]";
            return Err(SpecError::new(span, message));
        }
        (_, Some(_)) => None,
        ("bits", None) => Some(ValueFormat::Bits),
        ("enum", None) => Some(ValueFormat::Name),
        ("symbol", None) => Some(ValueFormat::Symbol),
        ("char", None) => Some(ValueFormat::Char),
        ("bool", None) => Some(ValueFormat::Bool),
        ("ptr" | "hex", None) => Some(ValueFormat::Hex { bytes: 8 }),
        (other, None) => sized(other),
    };
    match format {
        Some(format) => Ok(format),
        None => {
            let sizes = ["u", "s", "x"].map(|kind| [8, 16, 32, 64].map(|n| format!("{kind}{n}")));
            let others = [
                "hex", "ptr", "bits", "char", "bool", "enum", "symbol", "string", "bytes",
            ];
            let known = sizes.into_iter().flatten().chain(others.map(str::to_owned));
            let message = format!("there is no format `{name}`");
            unknown(&span, message, name, known, FORMATS)
        }
    }
}

/// What looks like a call of a function.
pub(super) fn call(name: &str, span: Span) -> SpecError {
    let instead = match name {
        "str" | "ustring" => "the string at an address is EXPR:string",
        "buf" => "bytes at an address are EXPR:bytes[N]",
        "usym" | "sym" => "the function at an address is EXPR:symbol",
        "reg" => "a register is written %rdi",
        "retval" => "what the function returns is $retval",
        _ => "only entry(EXPR) is written so: what it was at the entry of the call",
    };
    SpecError::new(
        span,
        format!("{name}(...): nothing can be called here; {instead}"),
    )
}

/// `u32`, `s8`, `x64`.
fn sized(name: &str) -> Option<ValueFormat> {
    let (kind, bits) = name.split_at_checked(1)?;
    let bytes = match bits {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    Some(match kind {
        "u" => ValueFormat::Decimal {
            bytes,
            signed: false,
        },
        "s" => ValueFormat::Decimal {
            bytes,
            signed: true,
        },
        "x" => ValueFormat::Hex { bytes },
        _ => return None,
    })
}

/// A type as C, the kernel, Rust and bpftrace call it; of 0 bytes for `void`.
pub(super) fn cast_type(names: &[String]) -> Option<CastType> {
    let number = |bytes: u8, signed: bool| CastType {
        bytes,
        signed,
        is_char: false,
        pointers: 0,
        library: None,
    };
    if let [name] = names {
        let name = name.as_str();
        let library = match name {
            "std::string" => Some(LibraryType::String),
            "std::string_view" => Some(LibraryType::View),
            _ => None,
        };
        if library.is_some() {
            // Of itself it is no number: only pointers to it are.
            return Some(CastType {
                library,
                ..number(0, false)
            });
        }
        if let Some(ValueFormat::Decimal { bytes, signed }) = sized(name) {
            return Some(number(bytes, signed));
        }
        let stem = name.strip_suffix("_t").unwrap_or(name);
        let found = match stem {
            "uint8" => Some((1, false)),
            "uint16" => Some((2, false)),
            "uint32" => Some((4, false)),
            "uint64" => Some((8, false)),
            "int8" | "i8" => Some((1, true)),
            "int16" | "i16" => Some((2, true)),
            "int32" | "i32" => Some((4, true)),
            "int64" | "i64" | "isize" => Some((8, true)),
            "usize" => Some((8, false)),
            // Without its `_t` a name as good as any.
            "size" | "uintptr" if stem != name => Some((8, false)),
            "ssize" | "intptr" | "ptrdiff" | "off" if stem != name => Some((8, true)),
            "pid" if stem != name => Some((4, true)),
            "void" => Some((0, false)),
            _ => None,
        };
        if let Some((bytes, signed)) = found {
            return Some(number(bytes, signed));
        }
    }
    let count = |word: &str| names.iter().filter(|name| *name == word).count();
    let (signed, unsigned) = (count("signed"), count("unsigned"));
    let sizes = [count("char"), count("short"), count("int"), count("long")];
    let known = signed + unsigned + sizes.iter().sum::<usize>();
    if names.is_empty() || known != names.len() || signed + unsigned > 1 {
        return None;
    }
    let bytes = match sizes {
        [1, 0, 0, 0] => 1,
        [0, 1, 0 | 1, 0] => 2,
        [0, 0, 0 | 1, 0] => 4,
        [0, 0, 0 | 1, 1 | 2] => 8,
        _ => return None,
    };
    let is_char = bytes == 1 && signed + unsigned == 0;
    Some(CastType {
        is_char,
        ..number(bytes, unsigned == 0 && !is_char)
    })
}

/// `arg1`, as people of bpftrace write it; `arg0` is theirs too, and refused later.
pub(super) fn argument(name: &str) -> Option<u32> {
    numbered(name, "arg")
}

/// The number after a word.
fn numbered(name: &str, word: &str) -> Option<u32> {
    let digits = name.strip_prefix(word)?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

/// What stands after a `$` for the task and the moment.
const CONTEXTS: [(&str, Context); 17] = [
    ("pid", Context::Pid),
    ("tid", Context::Tid),
    ("nspid", Context::NsPid),
    ("nstid", Context::NsTid),
    ("pidns", Context::PidNamespace),
    ("pidnsid", Context::PidNamespaceId),
    ("random", Context::Random),
    ("uid", Context::Uid),
    ("gid", Context::Gid),
    ("cpu", Context::Cpu),
    ("time", Context::Time),
    ("elapsed", Context::Elapsed),
    ("probe", Context::Probe),
    ("kind", Context::WaitKind),
    ("syscall", Context::WaitCall),
    ("fd", Context::WaitFile),
    ("runnable", Context::WaitedForCpu),
];

/// What a name after a `$` means.
pub(super) fn dollar(name: &str, span: &Span) -> Result<ExpressionKind, SpecError> {
    if let Some((_, context)) = CONTEXTS.iter().find(|(known, _)| *known == name) {
        return Ok(ExpressionKind::Context(*context));
    }
    match name {
        "comm" => return Ok(ExpressionKind::Comm),
        "goid" => return Ok(ExpressionKind::Goroutine),
        "retval" => return Ok(ExpressionKind::Returned(1)),
        "params" => return Ok(ExpressionKind::All { locals: false }),
        "vars" => return Ok(ExpressionKind::All { locals: true }),
        _ => {}
    }
    if let Some(number) = argument(name) {
        return Ok(ExpressionKind::Argument(number));
    }
    if let Some(number) = numbered(name, "retval") {
        return Ok(ExpressionKind::Returned(number));
    }
    let word = name
        .strip_prefix("stack")
        .filter(|word| !word.starts_with('+'));
    if let Some(word) = word.and_then(|word| word.parse().ok()) {
        return Ok(ExpressionKind::StackWord(word));
    }
    let others = ["comm", "goid", "retval", "params", "vars", "arg1", "stack0"];
    let known = CONTEXTS.iter().map(|(name, _)| *name).chain(others);
    unknown(
        span,
        format!("there is no such value: ${name}"),
        &format!("${name}"),
        known.map(|name| format!("${name}")),
        "variables of the program are written without a $",
    )
}

/// Whether a name is a built-in value, written with a `$`.
pub(crate) fn is_dollar(name: &str) -> bool {
    dollar(name, &(0..0)).is_ok()
}

/// A register by its name.
pub(super) fn register(name: &str, span: &Span) -> Result<ExpressionKind, SpecError> {
    if let Some((register, bytes)) = known_register(name) {
        return Ok(ExpressionKind::Register(register, bytes));
    }
    let low = ["ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip"];
    let known = low.map(|low| format!("%r{low}"));
    let numbered = (8..16).map(|number| format!("%r{number}"));
    unknown(
        span,
        format!("there is no such register: %{name}"),
        &format!("%{name}"),
        known.into_iter().chain(numbered),
        "they are %rax to %r15, %ip and %flags",
    )
}

/// A register by its name in AT&T syntax, and how many of its bytes are meant.
pub(crate) fn known_register(name: &str) -> Option<(Register, u8)> {
    use Register::*;
    let named = [
        (Rax, ["rax", "eax", "ax", "al"]),
        (Rdx, ["rdx", "edx", "dx", "dl"]),
        (Rcx, ["rcx", "ecx", "cx", "cl"]),
        (Rbx, ["rbx", "ebx", "bx", "bl"]),
        (Rsi, ["rsi", "esi", "si", "sil"]),
        (Rdi, ["rdi", "edi", "di", "dil"]),
        (Rbp, ["rbp", "ebp", "bp", "bpl"]),
        (Rsp, ["rsp", "esp", "sp", "spl"]),
    ];
    for (register, names) in named {
        let Some(place) = names.iter().position(|known| *known == name) else {
            continue;
        };
        // `%sp`, `%di` and so on mean the whole register, as in perf probe.
        let bytes = match place {
            0 | 2 => 8,
            1 => 4,
            _ => 1,
        };
        return Some((register, bytes));
    }
    match name {
        "rip" | "ip" => return Some((Rip, 8)),
        "flags" => return Some((Flags, 8)),
        _ => {}
    }
    let digits = name.strip_prefix('r')?;
    let (digits, bytes) = match digits.strip_suffix(['d', 'w', 'b']) {
        Some(rest) if digits.ends_with('d') => (rest, 4),
        Some(rest) if digits.ends_with('w') => (rest, 2),
        Some(rest) => (rest, 1),
        None => (digits, 8),
    };
    let number: u8 = digits
        .parse()
        .ok()
        .filter(|number| (8..16).contains(number))?;
    Register::from_u8(number).map(|register| (register, bytes))
}
