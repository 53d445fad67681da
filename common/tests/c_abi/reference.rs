// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The tables of `docs/abi.md`.

use super::layout::{self, Value};
use super::write::{c_constant, c_enumerator, snake, COMMANDS};

const BEGIN: &str = "<!-- golden: ";
const END: &str = "<!-- end -->\n";

/// The text with every part between `<!-- golden: NAME -->` and `<!-- end -->`
/// written anew.
pub(crate) fn filled_in(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let line = at + rest[at..].find('\n').expect("the marker ends its line") + 1;
        let name = rest[at + BEGIN.len()..line]
            .trim()
            .trim_end_matches("-->")
            .trim();
        let end = line + rest[line..].find(END).expect("the part has an end");
        out.push_str(&rest[..line]);
        out.push_str(&match name {
            "commands" => commands(),
            "structs" => structs(),
            "constants" => constants(),
            other => panic!("no table is called {other}"),
        });
        rest = &rest[end..];
    }
    out + rest
}

fn number(name: &str) -> u64 {
    let constants = layout::constants();
    match constants.iter().find(|(other, _)| *other == name) {
        Some((_, Value::Number(number))) => *number,
        _ => panic!("no number is called {name}"),
    }
}

fn commands() -> String {
    let mut out = String::from("| command | number | struct | bytes |\n|---|---|---|---|\n");
    for name in COMMANDS {
        let of = name.to_lowercase();
        let layouts = layout::structs();
        let layout = layouts
            .iter()
            .find(|l| snake(l.name) == of)
            .expect("its struct");
        out.push_str(&format!(
            "| `{}` | `{:#010x}` | `nsprobe_{}` | {} |\n",
            c_constant(name),
            number(name),
            snake(layout.name),
            layout.bytes
        ));
    }
    out
}

fn structs() -> String {
    let mut out = String::new();
    for layout in layout::structs() {
        let name = snake(layout.name);
        out.push_str(&format!(
            "### `struct nsprobe_{name}`: {} bytes\n\n",
            layout.bytes
        ));
        out.push_str("| offset | bytes | field |\n|---|---|---|\n");
        for place in &layout.fields {
            let (offset, bytes, name) = (place.offset, place.bytes, place.name);
            out.push_str(&format!("| {offset} | {bytes} | `{name}` |\n"));
        }
        out.push('\n');
    }
    out
}

fn constants() -> String {
    let mut out = String::from("| constant | value |\n|---|---|\n");
    for (name, value) in layout::constants() {
        if COMMANDS.contains(&name) {
            continue;
        }
        let c = match name.split_once("::") {
            Some((of, variant)) => c_enumerator(of, variant),
            None => c_constant(name),
        };
        out.push_str(&match value {
            Value::Number(number) if number > 9 => format!("| `{c}` | `{number:#x}` |\n"),
            Value::Number(number) => format!("| `{c}` | {number} |\n"),
            Value::Text(text) => format!("| `{c}` | `\"{text}\"` |\n"),
        });
    }
    out
}
