// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frames of the fixture, byte by byte, against binutils.

use super::{addr2line, open, output_of};
use nsprobe_symbolize::{
    Address, DebugSet, FoundIn, FrameSource, Lookup, NamesFrom, OpenFile, Resolution, SourceFrame,
};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn found(path: &Path) -> OpenFile {
    OpenFile {
        file: File::open(path).unwrap(),
        path: Arc::new(path.to_owned()),
        found_in: FoundIn::Container,
    }
}

/// Runs a tool to its success; false, with a printed reason, when it is not there.
pub(crate) fn run(program: &str, arguments: &[&str]) -> bool {
    output_of(program, arguments).is_some()
}

const FUNCTIONS: [&str; 4] = ["shop::Basket::add", "shop::Basket::remove", "plain", "main"];

fn lines(resolution: &Resolution) -> Vec<(String, String)> {
    let line = |frame: &SourceFrame| {
        let file = Path::new(frame.file.as_deref().unwrap_or("?"));
        let line = frame.line.map_or("?".to_owned(), |line| line.to_string());
        let file = file.file_name().unwrap().to_string_lossy();
        (frame.function.clone(), format!("{file}:{line}"))
    };
    resolution.frames.iter().map(line).collect()
}

/// Each byte of the functions of `whole` gets, in `program`, by its debug files, the frames
/// that addr2line gives it in `whole`, and they come from the file that `is_from` takes.
pub(crate) fn agrees(
    whole: &Path,
    program: &Path,
    debug: &DebugSet,
    is_from: impl Fn(&NamesFrom) -> bool,
) {
    let (complete, binary) = (open(whole).unwrap(), open(program).unwrap());
    let mut with_inlined = 0;
    for name in FUNCTIONS {
        let function = complete.find_functions(name)[0];
        let addresses: Vec<u64> = (0..function.size).map(|n| function.address.0 + n).collect();
        let Some(theirs) = addr2line(whole, &addresses) else {
            return;
        };
        for address in addresses {
            let offset = binary.offset_of(Address(address)).unwrap();
            let resolution = binary.resolve_with(debug, offset, Lookup::Instruction);
            let resolution = resolution.unwrap();
            assert_eq!(resolution.source, FrameSource::Dwarf, "{debug:?}");
            assert!(
                is_from(&resolution.from),
                "{resolution:?} {:?}",
                debug.failures(&binary)
            );
            let ours = lines(&resolution);
            let mut theirs = theirs[&address].clone();
            if ours.len() > 1 {
                theirs[0].0 = ours[0].0.clone();
            }
            assert_eq!(ours, theirs, "{name} at {address:#x}");
            let outermost = resolution.frames.last().unwrap();
            assert_eq!(
                outermost.function_offset,
                Some(address - function.address.0)
            );
            with_inlined += usize::from(ours.len() == 3);
        }
    }
    assert!(with_inlined > 0, "nothing was inlined twice");
}
