// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stacks, as the program prints them in JSON.

use crate::command::Output;
use serde_json::Value;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) path: String,
    pub(crate) offset: u64,
    /// The function, without what was inlined into it.
    pub(crate) name: String,
    pub(crate) how: String,
}

/// The frames, innermost first, and why there are no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    pub(crate) frames: Vec<Frame>,
    pub(crate) end: String,
}

/// The stacks of all hits that a command line has printed. What a traced command prints stands
/// between them, but within none.
pub(crate) fn all(output: &Output) -> Vec<Stack> {
    let lines = output
        .lines()
        .filter(|line| line.contains("\"type\":\"hit\""));
    let hits = lines.map(|line| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    hits.map(|hit| Stack::of(&hit)).collect()
}

impl Stack {
    /// The stack of a hit.
    pub(crate) fn of(hit: &Value) -> Stack {
        let frames = hit["stack"].as_array().expect("a stack");
        Stack {
            frames: frames.iter().map(Frame::of).collect(),
            end: hit["stack_end"].as_str().expect("a reason").to_owned(),
        }
    }
}

impl Frame {
    fn of(frame: &Value) -> Frame {
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let offset = text(&frame["file_offset"]);
        let functions = frame["functions"].as_array().expect("an array");
        let name = functions.last().map(|last| text(&last["name"]));
        Frame {
            path: text(&frame["path"]),
            offset: hexadecimal(&offset).unwrap_or(0),
            name: name.unwrap_or_else(|| "?".into()),
            how: text(&frame["how"]),
        }
    }
}

/// The number that `0x…` means.
pub(crate) fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
