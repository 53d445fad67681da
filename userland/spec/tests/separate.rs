// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug information that is not in the program's own file.

use crate::support::{open, path, stop, Folder, Stop};
use nsprobe_spec::dwarf::{symbol, DebugInfo, DwarfError};
use nsprobe_spec::{Scope, Value, ValuePlace};
use nsprobe_symbolize::Binary;
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(program: &str, arguments: &[&str]) -> bool {
    nsprobe_testing::success(Command::new(program).args(arguments))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The program without its debug information, and the file with it.
fn apart(folder: &Folder, whole: &Path) -> Option<(PathBuf, PathBuf)> {
    let (program, debug) = (folder.path("stripped"), folder.path("stripped.debug"));
    let split = run("objcopy", &["--only-keep-debug", text(whole), text(&debug)])
        && run("objcopy", &["--strip-all", text(whole), text(&program)]);
    split.then_some((program, debug))
}

#[test]
fn a_separate_file_tells_of_a_stripped_program() {
    let folder = Folder::new("separate");
    for flags in [&["-O0", "-g"][..], &["-O2", "-g", "-gz=zlib"]] {
        let whole = folder.build("gcc", "values.c", flags).unwrap();
        let Some((program, debug)) = apart(&folder, &whole) else {
            return;
        };
        let (binary, debug) = (open(&program), open(&debug));
        assert_eq!(
            DebugInfo::new(&binary, None, None).unwrap_err(),
            DwarfError::Absent
        );
        let info = DebugInfo::new(&binary, Some(&debug), None).unwrap();
        let function = &info.functions_named("pointers").unwrap()[0];
        let Some(stopped) = stop(&program, &Stop::At(function.entry.0), &[]) else {
            return;
        };
        let scope = info.scope(function, function.entry).unwrap();
        let typed = path(&scope, &stopped, "n.next.color").unwrap();
        assert_eq!(stopped.number(&typed).map(|n| n as i64), Some(-3));
        let scope: &dyn Scope = &scope;
        assert!(scope.variable("static_name").unwrap().value.is_ok());
    }
}

/// dwz moves what several files have in common to a file of its own, and within
/// a file to partial units.
#[test]
fn what_dwz_moved_is_found() {
    let folder = Folder::new("dwz");
    let one = folder.build("g++", "values.cc", &["-O0", "-g"]).unwrap();
    let two = folder.build("g++", "values.cc", &["-O2", "-g"]).unwrap();
    let shared = folder.path("shared");
    let arguments = ["-m", text(&shared), text(&one), text(&two)];
    if !run("dwz", &arguments) {
        return;
    }
    let binary = open(&one);
    let file = std::fs::File::open(&shared).unwrap();
    let shared = Binary::open_supplementary(file, &shared).unwrap();
    let link = binary.supplementary().unwrap();
    assert_eq!(Some(link.build_id.as_slice()), shared.build_id());
    let missing = DebugInfo::new(&binary, None, None);
    let missing = missing.and_then(|info| info.functions_named("by_value"));
    assert!(!matches!(missing, Ok(found) if found.len() == 1));
    let info = DebugInfo::new(&binary, None, Some(&shared)).unwrap();
    let function = &info.functions_named("shop::Item::cost").unwrap()[0];
    let Some(stopped) = stop(&one, &Stop::At(function.entry.0), &[]) else {
        return;
    };
    let scope = info.scope(function, function.entry).unwrap();
    let typed = path(&scope, &stopped, "this.name._M_string_length").unwrap();
    assert_eq!(stopped.number(&typed), Some(43));
}

#[test]
fn a_global_is_found_by_its_symbol_alone() {
    let folder = Folder::new("symbol");
    let program = folder
        .build("gcc", "values.c", &["-O0", "-no-pie"])
        .unwrap();
    let binary = open(&program);
    let typed = symbol(&binary, "global_number").unwrap().unwrap();
    assert_eq!(typed.kind.bytes(), Some(4));
    let ValuePlace::Memory(Value::Image(address)) = typed.place else {
        panic!("{typed:?}");
    };
    let entry = binary.find_functions("scalars")[0].address;
    if let Some(stopped) = stop(&program, &Stop::At(entry.0), &[]) {
        assert_eq!(stopped.read(address, 4), Some(&4711u32.to_le_bytes()[..]));
    }
    assert_eq!(symbol(&binary, "no_such").unwrap(), None);
}
