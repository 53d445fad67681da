// SPDX-License-Identifier: MIT OR Apache-2.0
//! speedscope's own format, <https://www.speedscope.app/file-format-schema.json>.

use crate::model::ShownFrame;
use crate::{text::plain, Profile};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{Result, Write};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    active_profile_index: u32,
    exporter: &'static str,
    shared: Shared,
    profiles: [Sampled; 1],
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Clone, Eq, Hash, PartialEq, Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Indices of frames, the outermost first.
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// Frames, each once.
#[derive(Default)]
struct FrameTable {
    frames: Vec<Frame>,
    indices: HashMap<Frame, usize>,
}

impl FrameTable {
    fn index(&mut self, shown: &ShownFrame<'_>) -> usize {
        let file = shown.source.and_then(|line| line.file.as_deref());
        let frame = Frame {
            name: shown.name.clone().into_owned(),
            file: file.map(|file| plain(file).into_owned()),
            line: shown.source.and_then(|line| line.line),
        };
        *self.indices.entry(frame).or_insert_with_key(|frame| {
            self.frames.push(frame.clone());
            self.frames.len() - 1
        })
    }
}

pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> Result<()> {
    let mut frames = FrameTable::default();
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    for sample in &profile.samples {
        let weight = Profile::weight(sample);
        if weight > 0 {
            let shown = profile.shown(sample);
            samples.push(shown.iter().map(|frame| frames.index(frame)).collect());
            weights.push(weight);
        }
    }
    let measure = profile.measures.last();
    let name = plain(&profile.title).into_owned();
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name: name.clone(),
        active_profile_index: 0,
        exporter: "nsprobe",
        shared: Shared {
            frames: frames.frames,
        },
        profiles: [Sampled {
            r#type: "sampled",
            name,
            unit: measure.map_or("none", |measure| unit(&measure.unit)),
            start_value: 0,
            end_value: weights.iter().sum(),
            samples,
            weights,
        }],
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

/// A unit as speedscope knows it.
fn unit(unit: &str) -> &'static str {
    const KNOWN: [&str; 5] = [
        "nanoseconds",
        "microseconds",
        "milliseconds",
        "seconds",
        "bytes",
    ];
    let known = KNOWN.into_iter().find(|known| *known == unit);
    known.unwrap_or("none")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use serde_json::{json, Value};

    fn written(profile: &Profile) -> Value {
        let mut out = Vec::new();
        write(profile, &mut out).expect("it takes all");
        serde_json::from_slice(&out).expect("it is JSON")
    }

    #[test]
    fn stacks_are_samples_with_weights() {
        let file = written(&sample::profile());
        assert_eq!(
            file["shared"]["frames"],
            json!([
                {"name": "container=web; 1"},
                {"name": "main"},
                {"name": "serve", "file": "/src/app.c", "line": 30},
                {"name": "read<a, b>", "file": "/src/read.h", "line": 7},
                {"name": "parse 7", "file": "/src/app.c", "line": 12},
                {"name": "[truncated]"},
                {"name": "[app+0x40]"},
                {"name": "[unknown]"},
            ])
        );
        let profile = &file["profiles"][0];
        assert_eq!(
            profile["samples"],
            json!([[0, 1, 2, 3, 4], [0, 5, 2, 3, 4], [0, 1, 2, 3, 4, 6], [7]])
        );
        assert_eq!(profile["weights"], json!([100, 40, 3, 5]));
        assert_eq!(
            (&profile["type"], &profile["unit"], &profile["endValue"]),
            (&json!("sampled"), &json!("none"), &json!(148))
        );
    }

    #[test]
    fn times_have_their_unit() {
        let file = written(&sample::cpu());
        let profile = &file["profiles"][0];
        assert_eq!(profile["unit"], "nanoseconds");
        assert_eq!(profile["weights"], json!([20_000_000]));
    }
}
