// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readable names of C++ (Itanium), Rust (legacy and v0) and gfortran's symbols.
//!
//! Mangled names are small programs that can grow without bound: what goes in and what
//! comes out is capped. A name that is too long stays raw, a readable one is cut.
//!
//! Names of D (`_D…`) and Swift (`$s…`) stay raw: no kept library in Rust reads them, and
//! Swift's own demangler is C++, which is nothing to give hostile names to.

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};
use std::fmt::{self, Write};

/// Longest name that is demangled, in bytes.
pub const RAW_BYTES_MAX: usize = 4 << 10;
/// Longest readable name, in bytes.
pub const READABLE_BYTES_MAX: usize = 16 << 10;
/// What stands for the rest of a longer one.
const CUT: &str = "…";
/// Deepest nesting in a C++ name.
const RECURSION_MAX: u32 = 96;

/// The readable name, with parameters (C++) and without the hash (Rust); the
/// raw name where it is not mangled or a limit is hit.
pub fn demangle(raw: &str) -> String {
    readable(raw, DemangleOptions::new()).unwrap_or_else(|| raw.to_owned())
}

/// The readable name without C++ parameters and return type:
/// `ns::Class::method`.
pub fn demangle_without_parameters(raw: &str) -> String {
    let options = DemangleOptions::new().no_params().no_return_type();
    readable(raw, options).unwrap_or_else(|| raw.to_owned())
}

/// The readable name with its parameters, without a return type, as a template's has one.
pub(crate) fn demangle_without_return_type(raw: &str) -> String {
    let options = DemangleOptions::new().no_return_type();
    readable(raw, options).unwrap_or_else(|| raw.to_owned())
}

/// Whether the name may be mangled at all: a quick look.
pub(crate) fn is_mangled(raw: &str) -> bool {
    ["_Z", "__Z", "_R", "_GLOBAL_"]
        .iter()
        .any(|start| raw.starts_with(start))
        || fortran(raw).is_some()
}

/// The module and the procedure in it of which gfortran makes a name: `__module_MOD_procedure`.
fn fortran(raw: &str) -> Option<(&str, &str)> {
    let (module, procedure) = raw.strip_prefix("__")?.split_once("_MOD_")?;
    (!module.is_empty() && !procedure.is_empty()).then_some((module, procedure))
}

fn readable(raw: &str, options: DemangleOptions) -> Option<String> {
    if raw.len() > RAW_BYTES_MAX || !is_mangled(raw) {
        return None;
    }
    if let Some((module, procedure)) = fortran(raw) {
        return Some(format!("{module}::{procedure}"));
    }
    let mut out = Bounded::default();
    match write_readable(raw, options, &mut out) {
        Ok(()) => Some(as_others(out.text)),
        Err(_) if out.is_cut => Some(as_others(out.text + CUT)),
        Err(_) => None,
    }
}

/// The name in the words of binutils and LLVM, where cpp_demangle has its own.
fn as_others(text: String) -> String {
    let text = thunk(&text).unwrap_or(text);
    match LITERALS.iter().any(|(kind, _)| text.contains(kind)) {
        true => literals(&text),
        false => text,
    }
}

/// What a thunk leads to: `{virtual override thunk({virtual offset(0, -24)}, f())}`.
fn thunk(text: &str) -> Option<String> {
    let mut rest = text.strip_prefix("{virtual override thunk(")?;
    let (mut offsets, mut is_virtual) = (0, false);
    while rest.starts_with("{offset(") || rest.starts_with("{virtual offset(") {
        is_virtual |= rest.starts_with("{virtual");
        offsets += 1;
        rest = rest.split_once(")}, ")?.1;
    }
    let what = match (offsets, is_virtual) {
        (1, true) => "virtual thunk to ",
        (1, false) => "non-virtual thunk to ",
        _ => "covariant return thunk to ",
    };
    // After it there may be what the compiler appended; a name that was cut has no end.
    let target = match rest.rsplit_once(")}") {
        Some((target, behind)) if behind.is_empty() || behind.starts_with([' ', '.']) => {
            format!("{target}{behind}")
        }
        _ => rest.to_owned(),
    };
    Some(format!("{what}{target}"))
}

/// Types of numbers in template arguments, and what stands after a number in their place.
const LITERALS: [(&str, &str); 5] = [
    ("(unsigned int)", "u"),
    ("(unsigned long)", "ul"),
    ("(unsigned long long)", "ull"),
    ("(long)", "l"),
    ("(long long)", "ll"),
];

/// `f<(unsigned long)64>` as `f<64ul>`.
fn literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('(') {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let literal = LITERALS.iter().find_map(|(kind, suffix)| {
            let number = found.strip_prefix(kind)?;
            let sign = usize::from(number.starts_with('-'));
            let digits = number.get(sign..)?.bytes();
            let digits = digits.take_while(u8::is_ascii_digit).count();
            (digits > 0).then(|| (number.split_at(sign + digits), suffix))
        });
        // After a name the bracket is that of parameters, or of a call.
        let is_alone = out.is_empty() || out.ends_with(['<', ' ', ',', '(', '{']);
        match literal.filter(|_| is_alone) {
            Some(((number, behind), suffix)) => {
                out.push_str(number);
                out.push_str(suffix);
                rest = behind;
            }
            None => {
                out.push('(');
                rest = found.get(1..).unwrap_or("");
            }
        }
    }
    out + rest
}

fn write_readable(raw: &str, options: DemangleOptions, out: &mut Bounded) -> fmt::Result {
    // Rust first: its legacy names are valid C++ names, with the hash in them.
    if let Ok(rust) = rustc_demangle::try_demangle(raw) {
        return write!(out, "{rust:#}");
    }
    let limits = ParseOptions::default().recursion_limit(RECURSION_MAX);
    let (symbol, tail) =
        BorrowedSymbol::with_tail_and_options(raw.as_bytes(), &limits).map_err(|_| fmt::Error)?;
    // Compilers append what they did: `.cold`, `.part.0`, `.isra.0`. Anything else is a
    // part of the name that was not understood.
    let tail = std::str::from_utf8(tail).map_err(|_| fmt::Error)?;
    if !(tail.is_empty() || tail.starts_with('.')) {
        return Err(fmt::Error);
    }
    symbol.structured_demangle(out, &options.recursion_limit(RECURSION_MAX))?;
    out.write_str(tail)
}

/// Text that ends at [`READABLE_BYTES_MAX`], the sign of the cut included.
#[derive(Default)]
struct Bounded {
    text: String,
    is_cut: bool,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = READABLE_BYTES_MAX - CUT.len() - self.text.len();
        let ends = (0..=room.min(text.len())).rev();
        let fitting = ends.filter_map(|end| text.get(..end)).next();
        let fitting = fitting.unwrap_or_default();
        self.text.push_str(fitting);
        self.is_cut |= fitting.len() < text.len();
        match self.is_cut {
            true => Err(fmt::Error),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HALF: &str = "_ZSt4swapIPN4shop4ItemEENSt9enable_ifIXsrSt6__and_IJSt6__not_\
        ISt15__is_tuple_likeIT_EESt21is_move_constructibleIS7_ESt18is_move_assignableIS7_EEE5\
        valueEvE4typeERS7_SH_";

    #[test]
    fn each_language_is_read() {
        for (raw, full, short) in [
            ("malloc", "malloc", "malloc"),
            (
                "_ZN2ns5Class6methodEiPKc",
                "ns::Class::method(int, char const*)",
                "ns::Class::method",
            ),
            (
                "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
                "core::fmt::Formatter::pad",
                "core::fmt::Formatter::pad",
            ),
            ("_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar", "foo::bar"),
            ("_Z3addii.cold", "add(int, int) [clone .cold]", "add"),
            ("_Zbroken", "_Zbroken", "_Zbroken"),
            (
                "_ZTv0_n24_N4shop4Item4costEv",
                "virtual thunk to shop::Item::cost()",
                "virtual thunk to shop::Item::cost",
            ),
            (
                "_ZThn16_N4shop4Item4costEv",
                "non-virtual thunk to shop::Item::cost()",
                "non-virtual thunk to shop::Item::cost",
            ),
            (
                "_ZTch0_h16_N4shop4Item4copyEv",
                "covariant return thunk to shop::Item::copy()",
                "covariant return thunk to shop::Item::copy",
            ),
            (
                "_ZN3BoxILm64ELj3ELln5ELi7EE3getE1AILy9EE",
                "Box<64ul, 3u, -5l, 7>::get(A<9ull>)",
                "Box<64ul, 3u, -5l, 7>::get",
            ),
            // Of the first, cpp_demangle reads the beginning; half a name would be wrong.
            (HALF, HALF, HALF),
            (
                "_D3std5stdio7writelnFZv",
                "_D3std5stdio7writelnFZv",
                "_D3std5stdio7writelnFZv",
            ),
            ("$s4main3fooyyF", "$s4main3fooyyF", "$s4main3fooyyF"),
        ] {
            assert_eq!(demangle(raw), full);
            assert!(demangle_without_parameters(raw).starts_with(short), "{raw}");
        }
    }

    #[test]
    fn bombs_stay_raw() {
        let long = format!("_Z1a{}", "PK".repeat(RAW_BYTES_MAX));
        assert_eq!(demangle(&long), long);
        let deep = format!("_Z1a{}i", "P".repeat(RAW_BYTES_MAX - 10));
        assert!(demangle(&deep).len() <= READABLE_BYTES_MAX);
        // Each level doubles what the one before it said.
        let doubling = format!("_Z1f1AI{}E", "S_S0_".repeat(800));
        assert!(demangle(&doubling).len() <= READABLE_BYTES_MAX);
    }

    #[test]
    fn long_readable_names_are_cut_with_a_sign() {
        // Each type is the one before, twice: `B` and its place in the name.
        let mut name = "INvC1a1f".to_owned();
        let mut before = name.len();
        name += "TllE";
        for _ in 0..13 {
            let here = name.len();
            let reference = format!("B{}_", base_62(before - 1));
            name += &format!("T{reference}{reference}E");
            before = here;
        }
        let shown = demangle(&format!("_R{name}E"));
        assert!(shown.starts_with("a::f::<(i32, i32), ((i32, i32), ") && shown.ends_with(CUT));
        assert!(shown.len() > READABLE_BYTES_MAX / 2 && shown.len() <= READABLE_BYTES_MAX);
        let mut out = Bounded::default();
        assert!(out.write_str(&"ß".repeat(READABLE_BYTES_MAX)).is_err());
        assert!(out.is_cut && out.text.len() + CUT.len() <= READABLE_BYTES_MAX);
        assert!(out.write_str("more").is_err());
    }

    fn base_62(number: usize) -> String {
        const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let digit = |number: usize| DIGITS[number % 62] as char;
        match number / 62 {
            0 => digit(number).to_string(),
            high => format!("{}{}", base_62(high), digit(number)),
        }
    }

    /// Names that made demanglers crash, hang or eat memory, as they were reported. Each
    /// has an answer that is short and soon there (TRUST S13).
    #[test]
    fn published_crashers_are_harmless() {
        let names = [
            // getsentry/symbolic#477: gigabytes of memory.
            "_ZUlzjjlZZL1zStUlSt7j_Z3kjIIjIjL1vfIIEEEjzjjfjzSt7j_Z3kjIIjfjzL4t3kjIIjfjtUlSt7j_Z3\
             kjIIjIjL1vfIIEEEjzjjfjzSt7j_Z3kjIIjfjzL4t3kjIIjfjzL4t7IjIjjzjjzSt7j_Z3kjIIjfjzStfjz\
             St7j_ZA3kjIIjIjL1vfIIEEEjzjjfjzSt7j_Z3kjIIjIjL1vfIIEEEjzjjfjzSt7j_Z3kjIIjfjzL4t3kjI\
             IjzL4t7IjIjjzjjzSt7j_Z3kjIIjfjzStfjzSt7j_ZA3kjIIjIjL1vfIIEEEjzjjfjzSt7j_Z3kjIIjIjL1\
             vfIIEEEjzjjfjzSt7j_Z3kjIIjfjzL4t3kjIIjfjzL4t7IjIjL1vfIIEEEjzjjSI",
            // gimli-rs/cpp_demangle#215: hangs.
            "_ZAnananananaatanananananaatanananagttiananananaatanananananaatanagttananagtti",
            "_Z4Lf9Knwnw4_f9_4_f9q1R4Lf9Knwnw4_f9_4_f9_1RT_4__9Knwnw4_f9_4_f9q1RT_4_Zw4Lf9Knwnw4",
            // gimli-rs/cpp_demangle#133: recursion without end.
            "__ZNK7mozilla6layers19CapturedBufferState20ForEachTextureClientIZNS0_21CompositorBri\
             dgeChild21NotifyBeginAsyncPaintI6RefPtrIS1_EEEvRT_EUlS7_E_EEvS7_",
            // rust-lang/rustc-demangle#47: a name that is its own part.
            "_RNvB_1a",
            "_RYFG_FGyF_FGyF_FGyF_E",
        ];
        let deep = format!("_R{}", "Nv".repeat(2000));
        let many = format!("_RINvC1a1f{}E", "TB0_B0_B0_E".repeat(300));
        for name in names.iter().copied().chain([deep.as_str(), many.as_str()]) {
            assert!(demangle(name).len() <= READABLE_BYTES_MAX, "{name:.40}");
            assert!(demangle_without_parameters(name).len() <= READABLE_BYTES_MAX);
        }
    }

    proptest! {
        #[test]
        fn any_name_has_a_bounded_answer(raw in "_(Z|R|ZN)[A-Za-z0-9_]{0,200}") {
            prop_assert!(demangle(&raw).len() <= READABLE_BYTES_MAX);
            prop_assert!(demangle_without_parameters(&raw).len() <= READABLE_BYTES_MAX);
        }
    }
}
