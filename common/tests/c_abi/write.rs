// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The C header, from the items of the sources.

use super::source::{integer, Field, Item, Variant, What};
use syn::{BinOp, Expr};

const HEAD: &str = "\
/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The interface of /dev/nsprobe for readers in C.
 *
 * Written from common/src/{abi,program,record,ring}.rs by common/tests/c_abi.rs, which
 * also compares every size, offset and constant: do not edit. docs/abi.md is
 * the reference, examples/reader.c a whole reader.
 */
#ifndef NSPROBE_H
#define NSPROBE_H

#include <linux/ioctl.h>
#include <linux/types.h>
";

const TAIL: &str = "
/* Parts of a frame's word; an object of 0: the next word is a bare address. */
#define NSPROBE_FRAME_OBJECT(word) ((__u32)((word) >> (NSPROBE_OFFSET_BITS + 4)))
#define NSPROBE_FRAME_METHOD(word) ((__u32)((word) >> NSPROBE_OFFSET_BITS) & 0xf)
#define NSPROBE_FRAME_OFFSET(word) ((word) & ((1ULL << NSPROBE_OFFSET_BITS) - 1))

#endif /* NSPROBE_H */
";

/// The whole header.
pub(crate) fn header(items: &[Item]) -> String {
    let mut out = String::from(HEAD);
    // The order of the sources, except that C wants what a struct is made of
    // in front of it.
    let made_of = ["BUILD_ID_MAX", "ObjectIdentity"];
    let (first, rest): (Vec<_>, Vec<_>) = items
        .iter()
        .partition(|item| made_of.contains(&item.name.as_str()));
    for item in first.into_iter().chain(rest) {
        let comment = comment(&item.doc, "");
        match &item.what {
            What::Constant(value, of) => {
                let name = c_constant(&item.name);
                let value = c_value(&item.name, value, of == "u64");
                out.push_str(&format!("\n{comment}#define {name} {value}\n"));
            }
            What::Struct(fields) => {
                let fields: String = fields.iter().map(field).collect();
                let name = snake(&item.name);
                out.push_str(&format!(
                    "\n{comment}struct nsprobe_{name} {{\n{fields}}};\n"
                ));
            }
            What::Enum(variants) => {
                let variants: String = variants.iter().map(|v| variant(&item.name, v)).collect();
                let name = snake(&item.name);
                out.push_str(&format!(
                    "\n{comment}enum nsprobe_{name} {{\n{variants}}};\n"
                ));
            }
        }
    }
    out.push_str(TAIL);
    out
}

fn field(field: &Field) -> String {
    let (before, behind) = &field.c_type;
    let comment = comment(&field.doc, "\t");
    format!("{comment}\t{before} {}{behind};\n", field.name)
}

fn variant(of: &str, variant: &Variant) -> String {
    let comment = comment(&variant.doc, "\t");
    let name = c_enumerator(of, &variant.name);
    format!("{comment}\t{name} = {},\n", variant.number)
}

/// Commands, as against the flags and numbers of the same name.
pub(crate) const COMMANDS: [&str; 21] = [
    "INFO",
    "SETUP",
    "FILTER",
    "ATTACH",
    "DETACH",
    "COUNTERS",
    "OBJECT",
    "PROGRAM",
    "TABLE",
    "ROWS",
    "FREEZE",
    "FILE",
    "UNWIND",
    "STACK",
    "TASKS",
    "TASK_DUMP",
    "CPU_TIMES",
    "TASK_COUNTERS",
    "DROP_SPANS",
    "HOLD",
    "HELD",
];

/// A constant's name in C.
pub(crate) fn c_constant(rust: &str) -> String {
    match rust {
        "TYPE" => String::from("NSPROBE_IOC_TYPE"),
        command if COMMANDS.contains(&command) => format!("NSPROBE_IOC_{command}"),
        other => format!("NSPROBE_{other}"),
    }
}

/// The name in C of a variant of an enum.
pub(crate) fn c_enumerator(of: &str, variant: &str) -> String {
    let (of, variant) = (snake(of).to_uppercase(), snake(variant).to_uppercase());
    format!("NSPROBE_{of}_{variant}")
}

/// `ObjectIdentity` as `object_identity`.
pub(crate) fn snake(camel: &str) -> String {
    let mut out = String::new();
    for (at, letter) in camel.char_indices() {
        if letter.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

fn c_value(name: &str, value: &Expr, wide: bool) -> String {
    if COMMANDS.contains(&name) {
        let of = name.to_lowercase();
        return format!("_IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_{name}, struct nsprobe_{of})");
    }
    expression(value, if wide { "ULL" } else { "U" })
}

/// The few kinds of expression that constants of an ABI have.
fn expression(value: &Expr, suffix: &str) -> String {
    if let Some(number) = integer(value) {
        return number;
    }
    match value {
        Expr::Lit(literal) => match &literal.lit {
            syn::Lit::Str(text) => format!("{:?}", text.value()),
            _ => panic!("a literal that C does not have"),
        },
        Expr::Binary(binary) => {
            let left = expression(&binary.left, suffix);
            let right = expression(&binary.right, suffix);
            match binary.op {
                BinOp::Shl(_) => format!("({left}{suffix} << {right})"),
                BinOp::Sub(_) => format!("({left} - {right})"),
                BinOp::Add(_) => format!("({left} + {right})"),
                BinOp::Mul(_) => format!("({left} * {right})"),
                _ => panic!("an operator that constants do not have yet"),
            }
        }
        Expr::Paren(inner) => expression(&inner.expr, suffix),
        Expr::Cast(cast) => expression(&cast.expr, suffix),
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => size_of(path),
            _ => panic!("a call that C does not have"),
        },
        Expr::Path(path) => match path.path.segments.iter().rev().nth(1) {
            Some(of) if of.ident == "u32" => String::from("0xffffffffU"),
            Some(of) if of.ident == "u64" => String::from("0xffffffffffffffffULL"),
            _ => c_constant(&path.path.segments.last().unwrap().ident.to_string()),
        },
        _ => panic!("an expression that constants do not have yet"),
    }
}

/// `size_of::<T>` of a path.
fn size_of(path: &syn::ExprPath) -> String {
    let last = path.path.segments.last().unwrap();
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else {
        panic!("only size_of is called")
    };
    match arguments.args.first() {
        Some(syn::GenericArgument::Type(syn::Type::Path(of))) => format!(
            "sizeof(struct nsprobe_{})",
            snake(&of.path.require_ident().unwrap().to_string())
        ),
        _ => panic!("size_of a type without a name"),
    }
}

/// A doc comment as a C comment: links lose their markup and Rust names turn
/// into those of the header.
fn comment(doc: &str, indent: &str) -> String {
    let width = 77 - 8 * indent.len();
    let mut lines = Vec::new();
    for paragraph in doc.split("\n\n").filter(|p| !p.is_empty()) {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let text = plain(&paragraph.replace('\n', " "));
        let text = text.replace("structs struct ", "struct ");
        let text = text
            .replace("a enum ", "an enum ")
            .replace("A enum", "An enum");
        fill(&text, width, &mut lines);
    }
    match lines.as_slice() {
        [] => String::new(),
        [one] if one.len() <= width - 3 => format!("{indent}/* {one} */\n"),
        lines => {
            let mut out = format!("{indent}/*\n");
            for line in lines {
                out.push_str(format!("{indent} * {line}").trim_end());
                out.push('\n');
            }
            out + indent + " */\n"
        }
    }
}

/// Breaks a paragraph into lines.
fn fill(paragraph: &str, width: usize, lines: &mut Vec<String>) {
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
}

/// Takes the markup out of a paragraph: `[text](place)`, `[Name]` and backquotes.
/// Names in brackets or backquotes become those of the header.
pub(crate) fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['[', '`']) {
        out.push_str(&rest[..at]);
        let close = if rest[at..].starts_with('[') {
            ']'
        } else {
            '`'
        };
        let Some(length) = rest[at + 1..].find(close) else {
            out.push_str(&rest[at..]);
            return out;
        };
        let inner = &rest[at + 1..at + 1 + length];
        rest = &rest[at + length + 2..];
        if close == ']' && rest.starts_with('(') {
            rest = &rest[rest.find(')').map_or(rest.len(), |end| end + 1)..];
            out.push_str(&c_name(inner.trim_matches('`')));
        } else if close == ']' {
            out.push_str(&c_name(inner.trim_matches('`')));
        } else {
            out.push_str(&c_name(inner));
        }
    }
    out + rest
}

/// What a name of the Rust sources is called in C; other text stays.
fn c_name(rust: &str) -> String {
    let is = |test: fn(char) -> bool| !rust.is_empty() && rust.chars().all(test);
    if let Some((of, item)) = rust.split_once("::") {
        let of = match of {
            "Self" => return item.to_string(),
            of => snake(of),
        };
        return if item.starts_with(char::is_uppercase) {
            c_enumerator(&of, item)
        } else {
            format!("nsprobe_{of}.{item}")
        };
    }
    const FOREIGN: [&str; 15] = [
        "EINVAL",
        "EBUSY",
        "ENOMEM",
        "EOPNOTSUPP",
        "EBADF",
        "EIO",
        "ENOEXEC",
        "ENOSPC",
        "ENXIO",
        "ENOENT",
        "ESTALE",
        "ESRCH",
        "EPERM",
        "BUILD_ID_SIZE_MAX",
        "CLOCK_MONOTONIC",
    ];
    if FOREIGN.contains(&rust) {
        return rust.to_string();
    }
    if is(|c| c.is_ascii_uppercase() || "_*0123456789".contains(c)) {
        return c_constant(rust);
    }
    if rust.starts_with(char::is_uppercase) && is(char::is_alphanumeric) {
        let kind = match rust {
            "Refusal" | "StackEnd" | "Method" | "Unmapped" | "Version" => "enum",
            "Frame" => return String::from("NSPROBE_FRAME_OBJECT"),
            _ => "struct",
        };
        return format!("{kind} nsprobe_{}", snake(rust));
    }
    rust.to_string()
}
