// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names do not depend on where a linker puts code and how it packs debug information,
//! against what binutils says.

use crate::support::frames::{agrees, text};
use crate::support::{open, output_of, Folder};
use nsprobe_symbolize::{DebugSet, NamesFrom};
use std::fs;
use std::path::Path;

/// `program` has the code of `whole`, of which addr2line is asked.
fn is_named_like(whole: &Path, program: &Path) {
    agrees(whole, program, &DebugSet::default(), |from| {
        *from == NamesFrom::Program
    });
}

/// Code in segments of its own or not, at addresses that are not those of the file's offsets,
/// fixed ones or such as prelink gives to shared objects.
#[test]
fn names_do_not_depend_on_where_code_is_linked() {
    for flags in [
        &["-Wl,-z,separate-code"][..],
        &["-Wl,-z,noseparate-code"],
        &["-no-pie", "-Wl,-z,noseparate-code"],
        &["-no-pie", "-Wl,-Ttext-segment=0x3e000000"],
        &["-pie", "-Wl,-Ttext-segment=0x3e00000000"],
        &["-static"],
        &["-static-pie", "-Wl,-z,max-page-size=0x200000"],
    ] {
        let folder = Folder::new("layouts");
        let Some(program) = folder.fixture("program", &[&["-g"], flags].concat()) else {
            return;
        };
        is_named_like(&program, &program);
    }
}

/// The kinds of `ch_type` and the older `.zdebug` sections (ELF gABI, "Section Compression";
/// binutils' manual of objcopy).
#[test]
fn names_do_not_depend_on_how_debug_information_is_packed() {
    let folder = Folder::new("packed");
    let Some(whole) = folder.fixture("whole", &["-g"]) else {
        return;
    };
    let plain = fs::metadata(&whole).unwrap().len();
    for kind in ["zlib", "zlib-gabi", "zlib-gnu", "zstd"] {
        let packed = folder.0.join(kind);
        let option = format!("--compress-debug-sections={kind}");
        output_of("objcopy", &[&option, text(&whole), text(&packed)]);
        // An objcopy that does not know the kind writes nothing, and says so.
        let Ok(found) = fs::metadata(&packed) else {
            nsprobe_testing::lacking(format_args!("objcopy does not know {kind}"));
            continue;
        };
        assert!(found.len() < plain, "{kind}: nothing is packed");
        assert!(open(&packed).unwrap().has_debug_info(), "{kind}");
        // binutils need not be able to read what its objcopy writes.
        is_named_like(&whole, &packed);
    }
}
