// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text: mangled names, `/proc/PID/maps`, specs.

use crate::elf::is_shown_safely;
use nsprobe_spec::syntax::{Assignment, Field};
use nsprobe_spec::{Spec, SpecError};
use nsprobe_symbolize::demangle::{
    demangle as readable, demangle_without_parameters, READABLE_BYTES_MAX,
};
use nsprobe_text::{escaped, glob_fits};

/// A mangled name.
pub(crate) fn demangle(bytes: &[u8]) {
    let raw = String::from_utf8_lossy(bytes);
    for readable in [readable(&raw), demangle_without_parameters(&raw)] {
        assert!(readable == raw || readable.len() <= READABLE_BYTES_MAX);
        is_shown_safely(&readable);
    }
    let _ = escaped(bytes).to_string();
}

/// What the kernel says of mappings, with paths that their process has chosen.
pub(crate) fn maps(bytes: &[u8]) {
    for mapping in nsprobe_containers::mappings::parse(bytes) {
        for offset in [0, mapping.file_offset, u64::MAX] {
            let address = mapping.address_of(offset);
            assert!(address.is_none_or(|address| address < mapping.end));
        }
    }
}

/// A spec, fields, an assignment, a glob.
pub(crate) fn spec(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    is_in(&text, Spec::parse(&text));
    is_in(&text, Field::parse_list(&text));
    is_in(&text, Assignment::parse(&text));
    if let Some((glob, name)) = text.split_once('\n') {
        glob_fits(glob, name);
    }
}

/// What is wrong is shown at a place of the text.
fn is_in<T>(text: &str, parsed: Result<T, SpecError>) {
    if let Err(error) = parsed {
        let span = error.span.clone();
        assert!(text.get(span).is_some(), "{error:?} of {text:?}");
        assert!(!error.message.is_empty());
    }
}
