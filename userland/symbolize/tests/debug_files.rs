// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where debug information lies that is not in the file, against binutils.

use crate::support::{open, output_of, Folder};
use std::fs;
use std::path::{Path, PathBuf};

/// A program without debug information, and the file that holds it.
fn apart(folder: &Folder, flags: &[&str]) -> Option<(PathBuf, PathBuf)> {
    let whole = folder.fixture("whole", flags)?;
    let (program, debug) = (folder.0.join("program"), folder.0.join("program.debug"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let link = format!("--add-gnu-debuglink={}", text(&debug));
    output_of(
        "objcopy",
        &["--only-keep-debug", &text(&whole), &text(&debug)],
    )?;
    output_of(
        "objcopy",
        &["--strip-all", &link, &text(&whole), &text(&program)],
    )?;
    Some((program, debug))
}

#[test]
fn debug_files_are_named_by_build_id_and_link() {
    let folder = Folder::new("debug-names");
    let Some((program, debug)) = apart(&folder, &["-g"]) else {
        return;
    };
    let binary = open(&program).unwrap();
    assert!(!binary.has_debug_info());
    assert!(open(&debug).unwrap().has_debug_info());
    let hex: String = binary
        .build_id()
        .unwrap()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let names = binary.debug_file_names(Path::new("/opt/shop/bin/program"));
    let names: Vec<String> = names.iter().map(|n| n.display().to_string()).collect();
    assert_eq!(
        names,
        [
            format!("/usr/lib/debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..]),
            "/opt/shop/bin/program.debug".to_owned(),
            "/opt/shop/bin/.debug/program.debug".to_owned(),
            "/usr/lib/debug/opt/shop/bin/program.debug".to_owned(),
        ]
    );
    let link = binary.debug_link().unwrap();
    let path = program.to_str().unwrap();
    let theirs = output_of("readelf", &["--debug-dump=links", path]).unwrap();
    assert!(theirs.contains(&format!("{:#x}", link.crc)), "{theirs}");
    assert!(binary.supplementary().is_none());
}

#[test]
fn a_debug_file_belongs_to_one_program() {
    let folder = Folder::new("debug-belongs");
    for flags in [&["-g"][..], &["-g", "-Wl,--build-id=none"]] {
        let Some((program, debug)) = apart(&folder, flags) else {
            return;
        };
        let binary = open(&program).unwrap();
        assert!(open(&debug).unwrap().is_debug_file_of(&binary), "{flags:?}");
        let other = folder.fixture("other", &["-O0", "-g"]).unwrap();
        assert!(
            !open(&other).unwrap().is_debug_file_of(&binary),
            "{flags:?}"
        );
        // Without a build-id, a byte is enough to tell.
        let mut bytes = fs::read(&debug).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let changed = folder.file("changed", &bytes);
        let same = binary.build_id().is_some();
        assert_eq!(open(&changed).unwrap().is_debug_file_of(&binary), same);
    }
}

#[test]
fn a_link_does_not_lead_out_of_the_folders() {
    let folder = Folder::new("debug-link");
    let Some((program, _)) = apart(&folder, &["-g"]) else {
        return;
    };
    let bytes = fs::read(&program).unwrap();
    let at = bytes
        .windows(13)
        .position(|window| window == b"program.debug")
        .unwrap();
    for name in [*b"../pr/m.debug", *b"/rogram.debug"] {
        let mut changed = bytes.clone();
        changed[at..at + 13].copy_from_slice(&name);
        let binary = open(&folder.file("changed", &changed)).unwrap();
        assert_eq!(binary.debug_link(), None);
    }
}

#[test]
fn variables_of_the_symbol_table_are_those_of_nm() {
    let folder = Folder::new("variables");
    let Some(program) = folder.fixture("variables", &[]) else {
        return;
    };
    let binary = open(&program).unwrap();
    let Some(text) = output_of("nm", &["-S", program.to_str().unwrap()]) else {
        return;
    };
    let mut checked = 0;
    for line in text.lines() {
        let parts: Vec<&str> = line.split_whitespace().collect();
        let [address, size, kind, name] = parts[..] else {
            continue;
        };
        if !"BbDdRr".contains(kind) || name.starts_with('_') {
            continue;
        }
        let number = |digits| u64::from_str_radix(digits, 16).unwrap();
        let found = binary.find_data(name).unwrap();
        let wanted = (number(address), number(size));
        let fits =
            |symbol: &nsprobe_symbolize::DataSymbol| (symbol.address.0, symbol.size) == wanted;
        assert!(found.iter().any(fits), "{line} {found:?}");
        let last = nsprobe_symbolize::Address(wanted.0 + wanted.1 - 1);
        let at = binary.variable_at(last).unwrap();
        let name = name.split('@').next().unwrap().to_owned();
        assert_eq!(at, Some((name, wanted.1 - 1)), "{line}");
        checked += 1;
    }
    assert!(checked > 0, "{text}");
    assert!(binary.find_data("no_such_variable").unwrap().is_empty());
    assert_eq!(
        binary.variable_at(nsprobe_symbolize::Address(0)).unwrap(),
        None
    );
}
