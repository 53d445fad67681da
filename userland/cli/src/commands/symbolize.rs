// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe symbolize`: names places in files that build-ids name, or what a
//! capsule has without names.

mod files;

use crate::args::SymbolizePlan;
use crate::output::json;
use anyhow::{bail, Context};
use files::Files;
use nsprobe_capsule::model::{FrameName, Object, RecordedNames};
use nsprobe_capsule::{ChunkKind, FileOutput, Writer, Written};
use nsprobe_symbolize::{FileOffset, Lookup, SourceFrame};
use nsprobe_text::{counted, escaped};
use nsprobe_trace::hits::words;
use nsprobe_trace::names::named::file_name;
use nsprobe_trace::recording::capsule::{convert, open_regular, Capsule};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

/// Longest line that is read.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Most names of a chunk.
const NAMES_AT_ONCE: usize = 1000;

pub(crate) fn run(plan: &SymbolizePlan) -> anyhow::Result<ExitCode> {
    let mut files = Files::new(&plan.directories)?;
    match &plan.capsule {
        Some(path) => name_capsule(path, &mut files),
        None => name_lines(plan, &mut files),
    }
}

/// A place given by an input line.
#[derive(Debug, Deserialize, PartialEq, Eq)]
struct BuildIdOffset {
    build_id: String,
    #[serde(deserialize_with = "offset")]
    offset: u64,
    #[serde(default)]
    return_address: bool,
}

/// The output for a place.
#[derive(Serialize)]
struct PlaceLine<'a> {
    r#type: &'static str,
    build_id: &'a str,
    offset: String,
    functions: Vec<json::FunctionLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    names_from: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unresolved: Option<&'a str>,
}

/// Names the places of standard input.
fn name_lines(plan: &SymbolizePlan, files: &mut Files) -> anyhow::Result<ExitCode> {
    let mut input = io::stdin().lock();
    let mut out = BufWriter::new(io::stdout());
    let mut number = 0u64;
    loop {
        let mut line = Vec::new();
        let mut limited = io::Read::take(&mut input, LINE_BYTES_MAX);
        if limited.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        number += 1;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        let place = match plan.json {
            true => serde_json::from_str(text).map_err(|error| error.to_string()),
            false => place(text).ok_or_else(|| "not BUILDID+0xOFFSET or BUILDID OFFSET".into()),
        };
        let place: BuildIdOffset = match place {
            Ok(place) => place,
            Err(why) => bail!("line {number} of standard input: {why}"),
        };
        let is_return = plan.return_addresses || place.return_address;
        let named = files.name(&place.build_id, FileOffset(place.offset), lookup(is_return));
        write_place(&mut out, plan.json, &place, &named)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn lookup(is_return: bool) -> Lookup {
    match is_return {
        true => Lookup::ReturnAddress,
        false => Lookup::Instruction,
    }
}

fn write_place(
    out: &mut impl Write,
    json: bool,
    place: &BuildIdOffset,
    named: &files::NamedPlace,
) -> io::Result<()> {
    let BuildIdOffset {
        build_id, offset, ..
    } = place;
    let frames = named.functions.as_slice();
    if json {
        let line = PlaceLine {
            r#type: "place",
            build_id,
            offset: format!("{offset:#x}"),
            functions: frames.iter().map(json::FunctionLine::new).collect(),
            names_from: named.source.map(words::source_name),
            path: named.path.as_ref().map(|path| path.display().to_string()),
            function_start: named.function_start.map(|start| format!("{:#x}", start.0)),
            unresolved: named.unresolved.as_deref(),
        };
        return json::line(out, &line);
    }
    write!(out, "{}+{offset:#x}", escaped(build_id))?;
    if let Some(why) = &named.unresolved {
        return writeln!(out, " ? ({})", escaped(why));
    }
    for (index, frame) in frames.iter().enumerate() {
        let joint = if index == 0 { " " } else { " < " };
        write!(out, "{joint}{}", shown(frame))?;
    }
    writeln!(out)
}

/// A function, and where in the source.
fn shown(frame: &SourceFrame) -> String {
    let mut text = escaped(&frame.function).to_string();
    if let Some(offset) = frame.function_offset.filter(|_| !frame.inlined) {
        text.push_str(&format!("+{offset:#x}"));
    }
    if let Some(file) = &frame.file {
        text.push_str(&format!(" {}", escaped(file_name(file))));
        if let Some(line) = frame.line {
            text.push_str(&format!(":{line}"));
        }
    }
    text
}

/// `BUILDID+OFFSET` or `BUILDID OFFSET`.
fn place(text: &str) -> Option<BuildIdOffset> {
    let (build_id, offset) = text.split_once(['+', ' ', '\t'])?;
    let is_id = !build_id.is_empty() && build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then_some(())?;
    Some(BuildIdOffset {
        build_id: build_id.to_ascii_lowercase(),
        offset: number(offset.trim())?,
        return_address: false,
    })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A number, or a string of one.
fn offset<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Text(String),
    }
    match Either::deserialize(deserializer)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => number(&text)
            .ok_or_else(|| serde::de::Error::custom("offset is no number, such as \"0x1a40\"")),
    }
}

/// Adds names to a capsule.
fn name_capsule(path: &Path, files: &mut Files) -> anyhow::Result<ExitCode> {
    let file = open_regular(path, OpenOptions::new().read(true).write(true))?;
    let capsule = Capsule::read(file.try_clone()?, path)?;
    capsule.require_hits(path)?;
    let contents = &capsule.contents;
    let unnamed = contents.places.iter().filter(|place| {
        let known = contents.names.get(place);
        known.is_none_or(|name| name.functions.is_empty())
    });
    let mut names = Vec::new();
    let (mut wanted, mut missing) = (0, BTreeSet::new());
    for place in unnamed {
        wanted += 1;
        let object = contents.objects.get(&place.0);
        let Some(build_id) = object.and_then(build_id) else {
            continue;
        };
        match name_place(files, build_id, *place) {
            Some(name) => names.push(name),
            None => drop(missing.insert(build_id)),
        }
    }
    append(&capsule, file, &names).with_context(|| format!("cannot add to {}", path.display()))?;
    let found = names.iter().filter(|name| !name.functions.is_empty());
    let (found, path) = (found.count(), path.display().to_string());
    eprintln!(
        "nsprobe: {found} of {} without a name named in {}",
        counted(wanted, "place"),
        escaped(&path)
    );
    for build_id in missing {
        eprintln!(
            "nsprobe: no file with the build-id {} was found",
            escaped(build_id)
        );
    }
    Ok(ExitCode::from(u8::from(!contents.damages.is_empty())))
}

/// The build-id that an object's file is found by.
fn build_id(object: &Object) -> Option<&String> {
    let ids = [&object.build_id, &object.file_build_id];
    ids.into_iter().find(|id| !id.is_empty())
}

/// Names a place in a file; `None` if there is no such file.
fn name_place(
    files: &mut Files,
    build_id: &str,
    (object, offset, exact): (u32, u64, bool),
) -> Option<FrameName> {
    let named = files.name(build_id, FileOffset(offset), lookup(!exact));
    named.path.as_ref()?;
    Some(FrameName {
        object,
        offset,
        exact,
        functions: named.functions.iter().map(convert::function).collect(),
        source: named
            .source
            .map(|source| words::source_name(source).to_owned()),
        found_in: named
            .source
            .map(|_| words::found_in(&named.from).0.to_owned()),
        found_at: words::found_in(&named.from)
            .1
            .map(|path| convert::text(path.as_os_str())),
        doubtful: !exact && named.is_after_call == Some(false),
        function_start: named.function_start.map(|start| start.0),
        unresolved: named.unresolved,
    })
}

fn append(capsule: &Capsule, file: std::fs::File, names: &[FrameName]) -> anyhow::Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let (id, number) = capsule.reader.resume();
    let end = file.metadata()?.len();
    let mut writer = Writer::resumed(FileOutput::new(file, end, 0)?, id, number);
    for part in names.chunks(NAMES_AT_ONCE) {
        let names = RecordedNames {
            frames: part.to_vec(),
            ..RecordedNames::default()
        };
        if writer.json(ChunkKind::Names, part.len(), &names)? == Written::NoRoom {
            bail!("there is no room for the names");
        }
    }
    writer.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let wanted = |offset| {
            Some(BuildIdOffset {
                build_id: "abcd12".into(),
                offset,
                return_address: false,
            })
        };
        assert_eq!(place("abcd12+0x1f"), wanted(0x1f));
        assert_eq!(place("ABCD12 31"), wanted(31));
        assert_eq!(place("abcd12\t 0x1f"), wanted(0x1f));
        for bad in [
            "",
            "abcd12",
            "abcd12+",
            "+0x1",
            "xyz+0x1",
            "abcd12+0x",
            "abcd12+-1",
        ] {
            assert_eq!(place(bad), None, "{bad}");
        }
        let json = r#"{"build_id":"abcd12","offset":"0x1f"}"#;
        assert_eq!(serde_json::from_str::<BuildIdOffset>(json).ok(), wanted(31));
        let json = r#"{"build_id":"abcd12","offset":31}"#;
        assert_eq!(serde_json::from_str::<BuildIdOffset>(json).ok(), wanted(31));
    }
}
