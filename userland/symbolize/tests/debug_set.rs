// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names from debug files apart from the program, made by the tools that distributions use,
//! against what binutils says of the program before it was taken apart.

use crate::support::frames::{agrees, found, run, text};
use crate::support::package::package;
use crate::support::{open, Folder};
use nsprobe_symbolize::{
    Binary, DebugSet, FileOffset, FoundIn, FrameSource, Lookup, NamesFrom, OpenFiles,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn separate(path: &Path) -> DebugSet {
    DebugSet::new(OpenFiles {
        separate: Some(found(path)),
        ..OpenFiles::default()
    })
}

/// The program without debug information and symbols.
fn stripped(folder: &Folder, whole: &Path) -> PathBuf {
    let program = folder.0.join("stripped");
    run("objcopy", &["--strip-all", text(whole), text(&program)]);
    program
}

/// The whole fixture, it without debug information, and the file that holds that.
fn apart(folder: &Folder, flags: &[&str]) -> Option<(PathBuf, PathBuf, PathBuf)> {
    let whole = folder.fixture("whole", flags)?;
    let debug = folder.0.join("stripped.debug");
    run(
        "objcopy",
        &["--only-keep-debug", text(&whole), text(&debug)],
    );
    let program = stripped(folder, &whole);
    Some((whole, program, debug))
}

#[test]
fn a_separate_file_names_a_stripped_program() {
    for flags in [
        &["-g", "-gdwarf-5"][..],
        &["-g", "-gdwarf-4", "-gz=zlib"],
        &["-g", "-no-pie", "-Wl,--build-id=none"],
    ] {
        let folder = Folder::new("separate-file");
        let Some((whole, program, debug)) = apart(&folder, flags) else {
            return;
        };
        let binary = open(&program).unwrap();
        let before = binary.functions().len();
        let from = |from: &NamesFrom| {
            *from == NamesFrom::File(Arc::new(debug.clone()), FoundIn::Container)
        };
        agrees(&whole, &program, &separate(&debug), from);
        assert_eq!(open(&program).unwrap().functions().len(), before);
    }
}

/// Without DWARF, a separate file still has the symbols that were stripped.
#[test]
fn a_separate_file_of_symbols_alone_is_used() {
    let folder = Folder::new("separate-symbols");
    let Some((whole, program, debug)) = apart(&folder, &[]) else {
        return;
    };
    let binary = open(&program).unwrap();
    let plain = open(&whole).unwrap().find_functions("plain")[0].file_offset;
    assert!(binary.resolve(plain, Lookup::Instruction).is_err());
    assert!(open(&debug).unwrap().has_debug_names());
    let named = binary.resolve_with(&separate(&debug), plain, Lookup::Instruction);
    let named = named.unwrap();
    assert_eq!(
        (named.source, named.frames[0].function.as_str()),
        (FrameSource::Symbols, "plain")
    );
    assert!(matches!(named.from, NamesFrom::File(_, FoundIn::Container)));
}

#[test]
fn what_dwz_moved_is_found() {
    let folder = Folder::new("dwz-frames");
    let Some((whole, program, debug)) = apart(&folder, &["-g", "-gdwarf-5"]) else {
        return;
    };
    let (other, shared) = (folder.0.join("other"), folder.0.join("shared"));
    fs::copy(
        folder.fixture("o3", &["-g", "-gdwarf-5", "-O3"]).unwrap(),
        &other,
    )
    .unwrap();
    if !run("dwz", &["-m", text(&shared), text(&debug), text(&other)]) || !shared.exists() {
        panic!("dwz made no shared file");
    }
    let holder = open(&debug).unwrap();
    let link = holder.supplementary().unwrap();
    let file = Binary::open_supplementary(File::open(&shared).unwrap(), &shared).unwrap();
    assert_eq!(file.build_id(), Some(link.build_id.as_slice()));
    holder.check_debug_file(&holder).unwrap();
    let set = DebugSet::new(OpenFiles {
        separate: Some(found(&debug)),
        supplementary: Some(found(&shared)),
        ..OpenFiles::default()
    });
    agrees(&whole, &program, &set, |from| {
        matches!(from, NamesFrom::File(..))
    });
    // Without it there are names all the same, though fewer lines.
    let plain = open(&whole).unwrap().find_functions("plain")[0].file_offset;
    let without = open(&program).unwrap();
    let named = without.resolve_with(&separate(&debug), plain, Lookup::Instruction);
    assert_eq!(named.unwrap().frames[0].function, "plain");
}

/// The fixture with split DWARF, and the same without: their code is the same.
fn split(folder: &Folder, version: &str) -> Option<(PathBuf, PathBuf, PathBuf)> {
    let whole = folder.fixture("whole", &["-g", version])?;
    let program = folder.fixture("split", &["-g", version, "-gsplit-dwarf"])?;
    let plain = |path: &Path| open(path).unwrap().find_functions("plain")[0].clone();
    assert_eq!(plain(&whole), plain(&program));
    let units = open(&program).unwrap().split_units().unwrap();
    assert_eq!(units.len(), 1, "{units:?}");
    let file = units[0].folder.join(&units[0].name);
    assert!(file.exists(), "{file:?}");
    assert_eq!(open(&whole).unwrap().split_units(), Ok(Vec::new()));
    Some((whole, program, file))
}

#[test]
fn split_dwarf_is_read_from_its_files_and_packages() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let folder = Folder::new("split-dwarf");
        let Some((whole, program, file)) = split(&folder, version) else {
            return;
        };
        let id = open(&program).unwrap().split_units().unwrap()[0].id;
        let is_split = |from: &NamesFrom| match from {
            NamesFrom::File(path, _) => **path != program,
            _ => false,
        };
        let set = DebugSet::new(OpenFiles {
            split: vec![(id, found(&file))],
            ..OpenFiles::default()
        });
        agrees(&whole, &program, &set, is_split);
        // binutils' dwp leaves units of DWARF 5 out.
        let package = match version {
            "-gdwarf-4" => {
                let package = folder.0.join("split.dwp");
                if !run("dwp", &["-o", text(&package), text(&file)]) {
                    continue;
                }
                package
            }
            _ => package(&folder, &[another_unit(&folder), (id, file)]),
        };
        let set = DebugSet::new(OpenFiles {
            packages: vec![found(&package)],
            ..OpenFiles::default()
        });
        agrees(&whole, &program, &set, is_split);
    }
}

/// A unit that is in front of the wanted one: the same source without optimization.
fn another_unit(folder: &Folder) -> (u64, PathBuf) {
    let flags = ["-g", "-gdwarf-5", "-gsplit-dwarf", "-O0"];
    let other = folder.fixture("front", &flags).unwrap();
    let unit = open(&other).unwrap().split_units().unwrap().remove(0);
    (unit.id, unit.folder.join(&unit.name))
}

/// A `.dwo` of another build lies at the same path, and is not believed.
#[test]
fn a_unit_of_another_build_is_not_believed() {
    let folder = Folder::new("split-other");
    let Some((whole, program, _)) = split(&folder, "-gdwarf-5") else {
        return;
    };
    let id = open(&program).unwrap().split_units().unwrap()[0].id;
    let other = folder
        .fixture(
            "other",
            &["-g", "-gdwarf-5", "-gsplit-dwarf", "-Dadd=subtract"],
        )
        .unwrap();
    let units = open(&other).unwrap().split_units().unwrap();
    assert_ne!(units[0].id, id);
    let set = DebugSet::new(OpenFiles {
        split: vec![(id, found(&units[0].folder.join(&units[0].name)))],
        ..OpenFiles::default()
    });
    let binary = open(&program).unwrap();
    let add = open(&whole).unwrap().find_functions("shop::Basket::add")[0].file_offset;
    let named = binary.resolve_with(&set, add, Lookup::Instruction).unwrap();
    assert_eq!(named.frames.len(), 1, "{named:?}");
    assert_eq!(named.from, NamesFrom::Program);
    assert!(named.frames[0].function.starts_with("shop::Basket::add"));
    assert!(
        set.failures(&binary)[0].contains("another unit's"),
        "{set:?}"
    );
}

/// As the gdb manual makes `.gnu_debugdata`.
fn with_debugdata(folder: &Folder, whole: &Path, packed: &Path) -> PathBuf {
    let program = stripped(folder, whole);
    let out = folder.0.join("with-debugdata");
    let section = format!(".gnu_debugdata={}", text(packed));
    run(
        "objcopy",
        &["--add-section", &section, text(&program), text(&out)],
    );
    out
}

#[test]
fn compressed_symbols_name_what_the_dynamic_ones_do_not() {
    let folder = Folder::new("debugdata");
    let Some((whole, _, debug)) = apart(&folder, &["-g"]) else {
        return;
    };
    let mini = folder.0.join("mini");
    run(
        "objcopy",
        &[
            "-S",
            "--remove-section",
            ".comment",
            "--keep-symbol",
            "plain",
            text(&debug),
            text(&mini),
        ],
    );
    if !run("xz", &["--keep", text(&mini)]) {
        return;
    }
    let program = with_debugdata(&folder, &whole, &folder.0.join("mini.xz"));
    let binary = open(&program).unwrap();
    let plain = open(&whole).unwrap().find_functions("plain")[0].clone();
    let named = binary
        .resolve(plain.file_offset, Lookup::Instruction)
        .unwrap();
    assert_eq!(
        (named.source, named.from),
        (FrameSource::Symbols, NamesFrom::DebugData)
    );
    assert_eq!(named.frames[0].function, "plain");
    let behind = FileOffset(plain.file_offset.0 + plain.size);
    assert!(binary.resolve(behind, Lookup::Instruction).is_err());
}

#[test]
fn a_bomb_of_compressed_symbols_is_refused() {
    let folder = Folder::new("debugdata-bomb");
    let Some((whole, ..)) = apart(&folder, &[]) else {
        return;
    };
    let zeros = folder.0.join("zeros");
    File::create(&zeros).unwrap().set_len(65 << 20).unwrap();
    if !run("xz", &["-0", text(&zeros)]) {
        return;
    }
    let bomb = folder.0.join("zeros.xz");
    assert!(fs::metadata(&bomb).unwrap().len() < 1 << 20);
    let not_xz = folder.file("not-xz", b"this is no stream at all");
    for (packed, why) in [(bomb, "too big"), (not_xz, ".gnu_debugdata")] {
        let program = with_debugdata(&folder, &whole, &packed);
        let binary = open(&program).unwrap();
        let set = DebugSet::default();
        let plain = open(&whole).unwrap().find_functions("plain")[0].file_offset;
        binary
            .resolve_with(&set, plain, Lookup::Instruction)
            .unwrap_err();
        let failures = set.failures(&binary);
        assert!(failures[0].contains(why), "{failures:?}");
    }
}

/// A build-id is a claim: a file that makes the same one for other code is not taken.
#[test]
fn the_same_build_id_is_not_enough() {
    let folder = Folder::new("same-id");
    let id = "-Wl,--build-id=0x00112233445566778899aabbccddeeff00112233";
    let Some((whole, program, debug)) = apart(&folder, &["-g", id]) else {
        return;
    };
    let binary = open(&program).unwrap();
    binary.check_debug_file(&open(&debug).unwrap()).unwrap();
    binary.check_debug_file(&open(&whole).unwrap()).unwrap();
    for flags in [
        &["-g", "-O0"][..],
        &["-g", "-no-pie"],
        &["-g", "-O3", "-funroll-loops"],
    ] {
        let other = folder.fixture("other", &[flags, &[id]].concat()).unwrap();
        let decoy = folder.0.join("decoy.debug");
        run(
            "objcopy",
            &["--only-keep-debug", text(&other), text(&decoy)],
        );
        let (decoy, same) = (open(&decoy).unwrap(), open(&other).unwrap());
        assert_eq!(decoy.build_id(), binary.build_id());
        if same.find_functions("main") == open(&whole).unwrap().find_functions("main") {
            continue;
        }
        let why = binary.check_debug_file(&decoy).unwrap_err();
        assert!(
            why.contains("not where the program's is") || why.contains("elsewhere"),
            "{why}"
        );
    }
    let other = folder.fixture("other", &["-g"]).unwrap();
    let why = binary.check_debug_file(&open(&other).unwrap()).unwrap_err();
    assert!(why.contains("its build-id is "), "{why}");
}
