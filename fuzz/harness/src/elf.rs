// SPDX-License-Identifier: MIT OR Apache-2.0
//! ELF files: headers, symbols, notes, links to other files, compressed sections.

use crate::image::{self, split, Section, COMPRESSED, TEXT_BYTES, TEXT_OFFSET};
use nsprobe_common::elf_note;
use nsprobe_symbolize::{Binary, FileOffset, Lookup};
use nsprobe_text::escaped;
use std::path::{Component, Path};

/// Most functions of a file that are asked for.
const ASKED: usize = 16;

/// A whole file.
pub(crate) fn elf(bytes: &[u8]) {
    let label = Path::new("seam");
    let _ = Binary::open_supplementary(image::file(bytes), label);
    let _ = Binary::open_sections(image::file(bytes), label);
    let Ok(binary) = Binary::open(image::file(bytes), label) else {
        return;
    };
    let functions = binary.functions().iter();
    let asked = functions.map(|function| function.file_offset.0);
    let asked: Vec<u64> = asked.chain([0, 0x80, u64::MAX]).take(ASKED).collect();
    for at in asked {
        ask(&binary, FileOffset(at));
        ask(&binary, FileOffset(at.wrapping_add(9)));
    }
    for function in binary.functions().iter().take(ASKED) {
        is_shown_safely(&function.name);
        let _ = binary.code_of(function);
    }
    binary.find_functions("*a*");
    binary.nearest("main", 3);
    let _ = (binary.find_data("data"), binary.usdt(), binary.is_go());
    let _ = (binary.split_units(), binary.check_debug_file(&binary));
    links(&binary);
}

/// Asks what is at an offset.
pub(crate) fn ask(binary: &Binary, at: FileOffset) {
    let _ = (binary.code_at(at), binary.is_after_call(at));
    let _ = binary.is_function_entry(at);
    for lookup in [Lookup::Instruction, Lookup::ReturnAddress] {
        if let Ok(found) = binary.resolve(at, lookup) {
            found.frames.iter().for_each(|frame| {
                is_shown_safely(&frame.function);
                is_shown_safely(frame.file.as_deref().unwrap_or_default());
            });
        }
    }
}

/// Nothing that is shown of a name moves a terminal's cursor, or turns its text round.
pub(crate) fn is_shown_safely(name: &str) {
    let shown = escaped(name).to_string();
    let is_harmful = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!shown.contains(is_harmful), "{shown:?}");
}

/// Where a file's debug information may be: never where the file alone leads to.
fn links(binary: &Binary) {
    if let Some(link) = binary.debug_link() {
        let mut parts = Path::new(&link.name).components();
        let is_name = matches!(parts.next(), Some(Component::Normal(_)));
        assert!(is_name && parts.next().is_none(), "{link:?}");
    }
    let _ = binary.debug_file_names(Path::new("/usr/bin/seam"));
    if let Some(link) = binary.supplementary() {
        let _ = link.names(Path::new("/usr/lib/debug/folder"));
        for name in link.usual_names() {
            let plain = |part| !matches!(part, Component::ParentDir);
            assert!(name.components().all(plain), "{name:?}");
            assert!(name.starts_with("/usr/lib/debug"), "{name:?}");
        }
    }
}

/// A file in which a build-id is looked for, as the kernel module does.
pub(crate) fn notes(bytes: &[u8]) {
    let found = elf_note::find(|offset, out| {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = at.checked_add(out.len());
        let part = end.and_then(|end| bytes.get(at..end));
        part.map(|part| out.copy_from_slice(part)).is_some()
    });
    if let Ok(id) = found {
        assert_eq!(id.as_bytes().len(), id.len() as usize);
        assert!(!id.as_bytes().is_empty());
    }
}

/// The sections `.gnu_debuglink`, `.gnu_debugaltlink` and `.note.stapsdt`.
pub(crate) fn debug_link(bytes: &[u8]) {
    let parts = split(bytes, 3);
    let sections = [".gnu_debuglink", ".gnu_debugaltlink", ".note.stapsdt"];
    let sections = sections.iter().zip(&parts);
    let sections: Vec<_> = sections
        .map(|(name, part)| Section::plain(name, part))
        .collect();
    let binary = image::open(&sections);
    links(&binary);
    let _ = binary.usdt();
}

/// Compressed sections: DWARF, with ELF's header or that of `.zdebug`, and symbols.
pub(crate) fn compressed(bytes: &[u8]) {
    let parts = split(bytes, 4);
    let [abbreviations, info, strings, symbols] = parts[..] else {
        return;
    };
    let packed = |name, bytes| Section {
        name,
        flags: COMPRESSED,
        bytes,
    };
    let binary = image::open(&[
        packed(".debug_info", info),
        packed(".debug_abbrev", abbreviations),
        Section::plain(".zdebug_str", strings),
        Section::plain(".gnu_debugdata", symbols),
    ]);
    ask(&binary, FileOffset(TEXT_OFFSET));
    let _ = binary.dwarf_sections();
}

/// Go's own table of functions, with the data that its names of inlined functions are in.
pub(crate) fn go(bytes: &[u8]) {
    let parts = split(bytes, 3);
    let [table, data, build] = parts[..] else {
        return;
    };
    let binary = image::open(&[
        Section::loaded(".gopclntab", table),
        Section::loaded(".rodata", data),
        Section::loaded(".go.buildinfo", build),
    ]);
    for into in (0..TEXT_BYTES).step_by(0x55) {
        ask(&binary, FileOffset(TEXT_OFFSET + into));
    }
    binary.find_functions("main.*");
    let _ = binary.is_go();
}
