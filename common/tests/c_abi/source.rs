// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The public items of the crate's sources that C has to know, with their
//! comments, as `syn` reads them.

use std::fs;
use std::path::Path;
use syn::{Attribute, Expr, Fields, Item as Rust, Lit, Meta, Type, Visibility};

/// One thing for the header.
pub(crate) struct Item {
    /// Its Rust name.
    pub(crate) name: String,
    /// Its doc comment, without markup of links.
    pub(crate) doc: String,
    pub(crate) what: What,
}

/// Kinds of things.
pub(crate) enum What {
    /// The value as an expression, and its type.
    Constant(Expr, String),
    Struct(Vec<Field>),
    Enum(Vec<Variant>),
}

/// A struct's field.
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) doc: String,
    /// Its type in C, and what follows the name.
    pub(crate) c_type: (String, String),
}

/// An enum's variant with its number.
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) doc: String,
    pub(crate) number: String,
}

/// Everything, in the order of the sources.
pub(crate) fn read() -> Vec<Item> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut items = Vec::new();
    for file in [
        "abi.rs",
        "abi/probe.rs",
        "abi/kept.rs",
        "abi/tasks.rs",
        "program.rs",
        "frame.rs",
        "record/header.rs",
        "record.rs",
        "task.rs",
        "ring.rs",
        "unwind.rs",
        "unwind/check.rs",
    ] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let file = syn::parse_file(&text).unwrap();
        items.extend(file.items.into_iter().filter_map(item));
    }
    items
}

fn item(rust: Rust) -> Option<Item> {
    match rust {
        Rust::Const(c) if public(&c.vis) => Some(Item {
            name: c.ident.to_string(),
            doc: doc(&c.attrs),
            what: What::Constant(*c.expr, type_name(&c.ty)),
        }),
        Rust::Struct(s) if public(&s.vis) && has_c_layout(&s.attrs) => {
            let Fields::Named(fields) = s.fields else {
                panic!("{} has fields without names", s.ident)
            };
            let fields = fields.named.into_iter().map(|f| Field {
                name: f.ident.unwrap().to_string(),
                doc: doc(&f.attrs),
                c_type: c_type(&f.ty),
            });
            Some(Item {
                name: s.ident.to_string(),
                doc: doc(&s.attrs),
                what: What::Struct(fields.collect()),
            })
        }
        Rust::Enum(e) if public(&e.vis) && is_repr(&e.attrs) => Some(enumeration(e)),
        // An enum with a function from its numbers.
        Rust::Macro(m) if m.mac.path.is_ident("numbered") => {
            Some(enumeration(m.mac.parse_body().unwrap()))
        }
        _ => None,
    }
}

fn enumeration(e: syn::ItemEnum) -> Item {
    let variants = e.variants.into_iter().map(|v| {
        let number = v.discriminant.expect("each variant has its number").1;
        Variant {
            name: v.ident.to_string(),
            doc: doc(&v.attrs),
            number: integer(&number).expect("a number").to_string(),
        }
    });
    Item {
        name: e.ident.to_string(),
        doc: doc(&e.attrs),
        what: What::Enum(variants.collect()),
    }
}

/// The name of a type, for those that have one.
fn type_name(rust: &Type) -> String {
    match rust {
        Type::Path(path) => path.path.segments.last().unwrap().ident.to_string(),
        _ => String::new(),
    }
}

fn public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_repr(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| a.path().is_ident("repr"))
}

fn has_c_layout(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("repr") && a.parse_args::<syn::Ident>().is_ok_and(|repr| repr == "C")
    })
}

/// The digits of a literal.
pub(crate) fn integer(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => Some(number.to_string()),
            _ => None,
        },
        _ => None,
    }
}

fn doc(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes.iter().filter(|a| a.path().is_ident("doc")) {
        let Meta::NameValue(pair) = &attribute.meta else {
            continue;
        };
        if let Expr::Lit(literal) = &pair.value {
            if let Lit::Str(line) = &literal.lit {
                text.push_str(line.value().trim());
                text.push('\n');
            }
        }
    }
    text.trim_end().to_string()
}

fn c_type(rust: &Type) -> (String, String) {
    match rust {
        Type::Path(_) => {
            let name = type_name(rust);
            let c = match name.as_str() {
                "u8" | "u16" | "u32" | "u64" => format!("__{name}"),
                "i16" | "i32" | "i64" => name.replace('i', "__s"),
                _ => format!("struct nsprobe_{}", super::write::snake(&name)),
            };
            (c, String::new())
        }
        Type::Array(array) => {
            let length = match &array.len {
                Expr::Path(path) => format!("NSPROBE_{}", path.path.require_ident().unwrap()),
                other => integer(other).expect("a literal length"),
            };
            (c_type(&array.elem).0, format!("[{length}]"))
        }
        _ => panic!("a type that C does not have"),
    }
}
