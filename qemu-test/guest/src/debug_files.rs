// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug files of victims, made by the tools that distributions use, and traces whose frames
//! they name, against what binutils says of the victim with its own debug information.

use crate::binary;
use crate::command::{self, Output};
use object::{Object, ObjectSegment};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a tool prints; it must succeed.
pub(crate) fn tool(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

/// Writes `from` without symbols and debug information to `to`.
pub(crate) fn strip(from: &Path, to: &Path) {
    tool("objcopy", &["--strip-all", text(from), text(to)]);
}

/// Writes the debug information of `from` to `to`, whose folder is made.
pub(crate) fn debug_of(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("not the root")).expect("writable");
    tool("objcopy", &["--only-keep-debug", text(from), text(to)]);
}

/// Its build-id in hexadecimal.
pub(crate) fn build_id(file: &Path) -> String {
    let bytes = fs::read(file).expect("it is there");
    let elf = object::File::parse(&*bytes).expect("an ELF file");
    let id = elf.build_id().expect("well formed").expect("a build-id");
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where debug files of that build-id are installed, below `root`.
pub(crate) fn by_build_id(root: &Path, id: &str) -> PathBuf {
    let name = format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
    root.join(name)
}

/// Gives an ELF file the build-id of another one.
pub(crate) fn forge_build_id(file: &Path, of: &Path) {
    let note = |path: &Path| binary::section(path, ".note.gnu.build-id") + 16;
    let bytes = fs::read(of).expect("it is there");
    let id = &bytes[note(of) as usize..][..20];
    let at = note(file);
    let file = fs::File::options().write(true).open(file);
    let file = file.expect("it is there");
    file.write_all_at(id, at).expect("writable");
}

/// A file of the guest's own, gone with the value.
pub(crate) struct OnHost(pub(crate) PathBuf);

impl Drop for OnHost {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Traces the calls of `function` in a container's stripped program, with `more` on the
/// command line; `whole` is the program with everything.
pub(crate) fn trace(container: &str, program: &str, whole: &Path, more: &[&str]) -> Traced {
    Traced::new(command::output(&mut traces(container, program, whole, more)).succeeded())
}

/// The command line of such a trace.
pub(crate) fn traces(container: &str, program: &str, whole: &Path, more: &[&str]) -> Command {
    let offset = binary::function(whole, "charge").offset;
    let spec = format!("{program}:{offset:#x}");
    let mut words = vec![
        "trace", "-c", container, "--stack", "--json", "--count", "3",
    ];
    words.extend(["--timeout", "60"]);
    words.extend(more);
    words.push(&spec);
    command::nsprobe(&words)
}

/// A trace, in whose output no name of a decoy is.
pub(crate) struct Traced {
    hits: Vec<Value>,
    /// What it says of the sources of names.
    pub(crate) sources: Vec<String>,
    output: Output,
}

impl Traced {
    pub(crate) fn new(output: Output) -> Traced {
        for text in [&output.stdout, &output.stderr] {
            assert!(
                !text.contains("decoy_"),
                "a decoy was believed: {output:#?}"
            );
        }
        let lines = output
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        let lines: Vec<Value> = lines.collect();
        let summary = lines.iter().find(|line| line["type"] == "summary");
        let names = summary.map_or(&Value::Null, |summary| &summary["names"]);
        let sources = names.as_array().into_iter().flatten();
        Traced {
            sources: sources
                .map(|line| line.as_str().unwrap_or_default().to_owned())
                .collect(),
            hits: lines
                .into_iter()
                .filter(|line| line["type"] == "hit")
                .collect(),
            output,
        }
    }

    /// Asserts that the frames of the program are those that addr2line gives to `whole`,
    /// lines and inlined functions included, and that DWARF in the file at `path` of `place`
    /// told them.
    pub(crate) fn agrees(&self, whole: &Path, place: &str, path: &str) {
        assert!(!self.hits.is_empty(), "{:#?}", self.output);
        for hit in &self.hits {
            let frames = hit["stack"].as_array().expect("a stack");
            let mut names = Vec::new();
            for (index, frame) in frames.iter().enumerate() {
                let ours = functions(frame);
                names.extend(ours.iter().map(|(name, _)| name.clone()));
                if !names.iter().any(|name| name == "main") || ours.iter().any(|f| f.0 == "main") {
                    assert_eq!(ours, addr2line(whole, frame, index > 0), "{frame}");
                    assert_eq!(frame["names_from"], "dwarf", "{frame}");
                    assert_eq!(frame["source"]["in"], place, "{frame}");
                    assert_eq!(frame["source"]["path"], path, "{frame}");
                }
            }
            assert_eq!(
                names[..4],
                ["charge", "with_tax", "checkout", "main"],
                "{hit}"
            );
        }
        let told = match place {
            "container" => "in the container",
            "host" => "on the host",
            place => place,
        };
        let is_told = |line: &&String| line.contains(path) && line.contains(told);
        assert!(
            self.sources.iter().any(|line| is_told(&line)),
            "{:#?}",
            self.sources
        );
    }

    /// Asserts that no frame of the (static) program has a name, and that `parts` are told.
    pub(crate) fn is_nameless(&self, parts: &[&str]) {
        assert!(!self.hits.is_empty(), "{:#?}", self.output);
        for hit in &self.hits {
            let frames = hit["stack"].as_array().expect("a stack");
            // Those of charge, checkout and main at least.
            assert!(frames.len() >= 3, "{hit}");
            for frame in frames {
                assert_eq!(frame["functions"], Value::Array(Vec::new()), "{frame}");
                assert!(frame.get("names_from").is_none(), "{frame}");
            }
        }
        self.tells(parts);
    }

    /// Asserts that the sources of names tell all of `parts`.
    pub(crate) fn tells(&self, parts: &[&str]) {
        let told = self.sources.join("\n");
        for part in parts {
            assert!(told.contains(part), "no {part:?} in {told}");
        }
    }
}

/// Function and `file:line` of each that a frame of JSON has.
pub(crate) fn functions(frame: &Value) -> Vec<(String, String)> {
    let name = |function: &Value| {
        let file = function["file"].as_str().unwrap_or("?");
        let file = file.rsplit('/').next().unwrap_or(file);
        let line = function["line"].as_u64();
        let line = line.map_or("?".to_owned(), |line| line.to_string());
        let name = function["name"].as_str().expect("a name");
        (name.to_owned(), format!("{file}:{line}"))
    };
    let functions = frame["functions"].as_array().expect("functions");
    functions.iter().map(name).collect()
}

/// The same by `addr2line -f -i -C`.
pub(crate) fn addr2line(whole: &Path, frame: &Value, is_return: bool) -> Vec<(String, String)> {
    let offset = frame["file_offset"].as_str().expect("in a file");
    let offset = offset.trim_start_matches("0x");
    let offset = u64::from_str_radix(offset, 16).expect("a number") - u64::from(is_return);
    let bytes = fs::read(whole).expect("it is there");
    let elf = object::File::parse(&*bytes).expect("an ELF file");
    let address = elf.segments().find_map(|segment| {
        let (start, length) = segment.file_range();
        let into = offset.checked_sub(start)?;
        (into < length).then(|| segment.address() + into)
    });
    let address = format!("{:#x}", address.expect("it is loaded"));
    let words = ["-f", "-i", "-C", "-e", text(whole), &address];
    let told = tool("addr2line", &words);
    let lines: Vec<&str> = told.lines().collect();
    let pair = |pair: &[&str]| {
        let place = pair[1].split(" (discriminator").next().unwrap_or(pair[1]);
        let place = place.rsplit('/').next().unwrap_or(place);
        (pair[0].to_owned(), place.to_owned())
    };
    lines.chunks(2).map(pair).collect()
}
