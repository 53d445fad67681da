// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names, and what debug files say of them, through a child in its sandbox: compressed symbols,
//! symbol versions, labels, split DWARF, and frames that only a debug file describes.

use crate::probes::{here, open, probe_query};
use crate::support::package::package;
use crate::support::{file, options, Folder};
use nsprobe_probes::{ProbeQuery, Refused};
use nsprobe_symbolize::{
    Binary, DebugSet, FileOffset, FoundIn, Lookup, NamesFrom, OpenFile, OpenFiles,
};
use nsprobe_unwind::UnwindTable;
use nsprobe_worker::{Query, SandboxedBinary, Worker};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn found(path: &Path) -> OpenFile {
    OpenFile {
        file: file(path),
        path: Arc::new(path.to_owned()),
        found_in: FoundIn::Host,
    }
}

fn separate(path: &Path) -> OpenFiles {
    OpenFiles {
        separate: Some(found(path)),
        ..OpenFiles::default()
    }
}

/// A library of which `api` is exported, without other symbols, or with those of `packed`.
fn library(folder: &Folder, packed: Option<&[u8]>) -> Option<(PathBuf, PathBuf)> {
    const SOURCE: &str = "
        __attribute__((visibility(\"hidden\"), noipa)) int hidden_leaf(int a) { return a; }
        __attribute__((noipa)) int api(int a) { return hidden_leaf(a) + 1; }
    ";
    let flags = ["-O1", "-shared", "-fPIC", "-Wl,--build-id"];
    folder.program("whole", SOURCE, &flags)?;
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&folder.0);
        nsprobe_testing::success(&mut command)
    };
    let stripped = folder.0.join("stripped");
    assert!(run("objcopy", &["--strip-all", "whole", "stripped"]));
    // As rpm makes it.
    assert!(run("objcopy", &["--only-keep-debug", "whole", "mini"]));
    if !run("xz", &["--keep", "--force", "mini"]) {
        return None;
    }
    if let Some(packed) = packed {
        folder.file("mini.xz", packed);
    }
    let section = ".gnu_debugdata=mini.xz";
    assert!(run(
        "objcopy",
        &["--add-section", section, "stripped", "compressed"]
    ));
    Some((stripped, folder.0.join("compressed")))
}

#[test]
fn compressed_symbols_name_and_find_functions_in_the_sandbox() {
    let folder = Folder::new("probes-compressed");
    let Some((_, path)) = library(&folder, None) else {
        return;
    };
    let whole = folder.0.join("whole");
    let whole = Binary::open(file(&whole), &whole).unwrap();
    let offset = whole.find_functions("hidden_leaf")[0].file_offset;
    let worker = Worker::new(options());
    let object = open(&worker, &path);
    let lookup = Lookup::Instruction;
    let named = object.resolve_all(&[Query { offset, lookup }]).unwrap();
    let named = named[0].found.clone().unwrap();
    assert_eq!(named.frames[0].function, "hidden_leaf");
    assert_eq!(named.from, NamesFrom::DebugData);
    // The file says it itself: no debug file is asked for, and the place is proven.
    let found = object
        .probes(&probe_query("hidden_leaf%return"), None)
        .unwrap();
    assert_eq!(found.unwrap().probes[0].offset, offset);
    let listing = object.list(false, "/app", Some("hidden"), 0).unwrap();
    assert_eq!(listing.unwrap().functions[0].name, "hidden_leaf");
}

#[test]
fn compressed_symbols_that_cannot_be_read_leave_the_others() {
    let folder = Folder::new("probes-damaged");
    let Some((_, path)) = library(&folder, Some(b"this is no stream at all")) else {
        return;
    };
    let worker = Worker::new(options());
    let object = open(&worker, &path);
    let binary = Binary::open(file(&path), &path).unwrap();
    let offset = binary.find_functions("api")[0].file_offset;
    let lookup = Lookup::Instruction;
    let named = object.resolve_all(&[Query { offset, lookup }]).unwrap();
    assert_eq!(named[0].found.clone().unwrap().frames[0].function, "api");
    let failures = object.failures();
    assert!(failures[0].contains(".gnu_debugdata"), "{failures:?}");
    assert!(object.probes(&probe_query("api"), None).unwrap().is_ok());
}

#[test]
fn a_stripped_file_is_listed_with_its_debug_file() {
    let folder = Folder::new("probes-list");
    let Some((path, _)) = library(&folder, None) else {
        return;
    };
    let worker = Worker::new(options());
    let object = open(&worker, &path);
    let names = |searched| {
        let listing = object.list(searched, "/app", None, 0).unwrap();
        let functions = listing.map(|listing| listing.functions);
        functions.map(|all| all.into_iter().map(|one| one.name).collect::<Vec<_>>())
    };
    assert_eq!(names(false), Err(Refused::NeedsDebugFiles));
    assert_eq!(names(true), Ok(vec!["api".to_owned()]));
    let debug = folder.0.join("mini");
    object.attach(separate(&debug)).unwrap();
    let all = names(true).unwrap();
    let count = |name: &str| all.iter().filter(|one| *one == name).count();
    assert_eq!((count("hidden_leaf"), count("api")), (1, 1), "{all:?}");
}

#[test]
fn functions_of_several_versions_are_told_apart() {
    const SOURCE: &str = "
        __attribute__((noipa)) int f_old(int a) { return a + 1; }
        __attribute__((noipa)) int f_new(int a) { return a + 2; }
        __attribute__((noipa)) int g(int a) { return a + 3; }
        __asm__(\".symver f_old, f@V_1\"); __asm__(\".symver f_new, f@@V_2\");
    ";
    let folder = Folder::new("probes-versions");
    let map = folder.file(
        "map",
        b"V_1 { global: f; local: *; }; V_2 { global: f; g; } V_1;",
    );
    let script = format!("-Wl,--version-script={}", map.display());
    let flags = ["-O1", "-shared", "-fPIC", script.as_str()];
    let Some(path) = folder.program("app", SOURCE, &flags) else {
        return;
    };
    let set = DebugSet::default();
    let binary = Binary::open(file(&path), &path).unwrap();
    let listing = nsprobe_probes::list(&binary, Some(&set), "/app", None, 0).unwrap();
    let names = listing.functions.iter().map(|one| one.name.as_str());
    let names: Vec<&str> = names.filter(|name| name.starts_with(['f', 'g'])).collect();
    for name in ["f@V_1", "f@@V_2", "g"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let probes = |text: &str| {
        let found = here(&path, &probe_query(text)).unwrap().probes.into_iter();
        let mut found: Vec<String> = found.map(|probe| probe.function).collect();
        found.sort();
        found.join(" ")
    };
    assert_eq!(probes("f"), "f@@V_2 f@V_1");
    assert_eq!(probes("f@V_1%return"), "f");
    assert_eq!(probes("g"), "g");
}

#[test]
fn a_label_is_probed_by_its_name_where_a_frame_begins() {
    const SOURCE: &str = "
        __asm__(\".text\\nstarts: .cfi_startproc; mov %edi, %eax; ret; .cfi_endproc\\n\"
                \"data_in_code: .long 1, 2, 3\\n\");
        int main(void) { return 0; }
    ";
    let folder = Folder::new("probes-labels");
    let Some(path) = folder.program("app", SOURCE, &[]) else {
        return;
    };
    assert_eq!(here(&path, &probe_query("starts")).unwrap().probes.len(), 1);
    let Err(Refused::Because(why)) = here(&path, &probe_query("data_in_code")) else {
        panic!("not refused");
    };
    assert!(why[0].contains("no symbol"), "{why:?}");
}

#[test]
fn functions_are_found_by_the_names_of_debug_information() {
    const SOURCE: &str = "
        __attribute__((noipa)) int area(int a) __asm__(\"area_\");
        int area(int a) { return a * 2; }
        int main(void) { return area(3); }
    ";
    let folder = Folder::new("probes-dwarf-names");
    let Some(path) = folder.program("app", SOURCE, &["-g", "-O1"]) else {
        return;
    };
    let found = here(&path, &probe_query("area(a)")).unwrap();
    assert_eq!(
        (found.probes.len(), found.probes[0].function.as_str()),
        (1, "area")
    );
    assert!(found.probes[0].at_function);
    let Err(Refused::Because(why)) = here(&path, &probe_query("are")) else {
        panic!("not refused");
    };
    assert!(why[0].contains("did you mean area_"), "{why:?}");
}

/// Code that reads through structures, calls and inlines.
const SPLIT: &str = "
    struct request { int id; const char *path; struct request *next; };
    __attribute__((noipa)) int handle(struct request *r, int n) { return r->id + n; }
    static inline __attribute__((always_inline)) int twice(struct request *r) {
        return handle(r, r->id * 2);
    }
    int main(int argc, char **argv) {
        struct request second = { argc, argv[0], 0 }, first = { 1, argv[0], &second };
        return twice(&first);
    }
";

/// What the places of a split program are like: each spec, and whether it means inlined code.
const SPLIT_PLACES: [(&str, bool); 4] = [
    ("handle(r->id, r->next->path:string, $params)", false),
    ("handle%return($retval)", false),
    ("app.c:5(r->id)", false),
    ("twice(r->id)", true),
];

#[test]
fn split_debug_information_is_that_of_a_whole_file() {
    let worker = Worker::new(options());
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        // The names of the files are in their debug information.
        let (whole, folder) = (
            Folder::new(&format!("whole{version}")),
            Folder::new(&format!("split{version}")),
        );
        let flags = ["-O1", version];
        let Some(whole_path) = whole.program("app", SPLIT, &flags) else {
            return;
        };
        let split = [&flags[..], &["-gsplit-dwarf"]].concat();
        let path = folder.program("app", SPLIT, &split).unwrap();
        let unit = open(&worker, &path).split_units().unwrap().remove(0);
        let dwo = unit.folder.join(&unit.name);
        let mut files = vec![OpenFiles {
            split: vec![(unit.id, found(&dwo))],
            ..OpenFiles::default()
        }];
        let packed = match version {
            "-gdwarf-5" => Some(package(&folder, &[(unit.id, dwo.clone())])),
            _ => {
                let packed = folder.0.join("app.dwp");
                let mut dwp = Command::new("dwp");
                nsprobe_testing::success(dwp.arg("-o").args([&packed, &dwo])).then_some(packed)
            }
        };
        files.extend(packed.map(|packed| OpenFiles {
            packages: vec![found(&packed)],
            ..OpenFiles::default()
        }));
        for files in files {
            let object = open(&worker, &path);
            object.attach(files).unwrap();
            for (text, inlined) in SPLIT_PLACES {
                let probe_query = ProbeQuery {
                    inlined,
                    ..probe_query(text)
                };
                let ours = object.probes(&probe_query, Some(&[])).unwrap();
                let theirs = here(&whole_path, &probe_query);
                assert!(theirs.is_ok(), "{theirs:?}");
                assert_eq!(ours, theirs, "{text} {version}");
            }
        }
        // GCC leaves it in the folder of the tests.
        std::fs::remove_file(&dwo).unwrap();
        let object = open(&worker, &path);
        let Err(Refused::Spec(error)) = object
            .probes(&probe_query("handle(r->id)"), Some(&[]))
            .unwrap()
        else {
            panic!("not refused");
        };
        let name = unit.name.to_str().unwrap();
        assert!(error.message.contains(name), "{error}");
        assert!(error.message.contains("was not found"), "{error}");
        assert!(object
            .probes(&probe_query("app.c:3"), Some(&[]))
            .unwrap()
            .is_ok());
    }
}

/// As Alpine has musl: nothing in the mapped file describes its frames.
#[test]
fn frames_that_only_a_debug_file_describes_have_rows() {
    let folder = Folder::new("frames");
    let flags = [
        "-O2",
        "-g",
        "-shared",
        "-fPIC",
        "-nostdlib",
        "-fomit-frame-pointer",
        "-fno-asynchronous-unwind-tables",
        "-Wl,--build-id",
    ];
    let source = "
        __attribute__((noipa)) int leaf(int a) { volatile int of[9]; of[a & 7] = a; return of[3]; }
        int api(int a) { return leaf(a) + leaf(a + 1); }
    ";
    let Some(whole) = folder.program("whole", source, &flags) else {
        return;
    };
    let (path, debug) = (folder.0.join("stripped"), folder.0.join("debug"));
    for (kind, to) in [("--strip-all", &path), ("--only-keep-debug", &debug)] {
        let mut objcopy = Command::new("objcopy");
        objcopy.arg(kind).arg(&whole).arg(to);
        assert!(nsprobe_testing::success(&mut objcopy));
    }
    let binary = Binary::open(file(&whole), &whole).unwrap();
    let wanted = UnwindTable::of(&binary).unwrap();
    let worker = Worker::new(options());
    let object = SandboxedBinary::open_sections(&worker, file(&path), &path).unwrap();
    assert_eq!(object.rows(None, false).unwrap(), None);
    let error = object.rows(None, true).unwrap_err().to_string();
    assert!(error.contains("no debug file"), "{error}");
    object.attach(separate(&debug)).unwrap();
    assert_eq!(object.rows(None, true).unwrap(), Some((wanted, false)));
    // Of a file that describes its frames itself, no other is asked for.
    let flags = &flags[..flags.len() - 2];
    let own = folder.program("own", source, flags).unwrap();
    let object = SandboxedBinary::open_sections(&worker, file(&own), &own).unwrap();
    assert!(object.rows(None, false).unwrap().is_some());
}

#[test]
fn places_without_a_name_are_told_by_where_their_function_begins() {
    const SOURCE: &str = "
        __attribute__((noipa)) int leaf(int a) { return a * 3; }
        __attribute__((noipa)) int api(int a) { return leaf(a) + 1; }
        __asm__(\".text\\n nop\\n nop\\n frameless: nop\\n ret\\n\");
        int main(void) { return api(1); }
    ";
    let folder = Folder::new("starts");
    // What gcc links statically has no index of its frames.
    for (kind, flag) in [("static", "-static"), ("dynamic", "-pie")] {
        let Some(whole) = folder.program(kind, SOURCE, &["-O1", "-fPIE", flag]) else {
            return;
        };
        let path = folder.0.join(format!("{kind}-stripped"));
        let mut strip = Command::new("strip");
        assert!(nsprobe_testing::success(
            strip.arg("-o").args([&path, &whole])
        ));
        let whole = Binary::open(file(&whole), &whole).unwrap();
        let worker = Worker::new(options());
        let object = open(&worker, &path);
        let start = |offset, lookup| {
            let answer = object.resolve(Query { offset, lookup }).unwrap();
            assert!(answer.found.is_err(), "{answer:?}");
            answer.function_start
        };
        let api = whole.find_functions("api")[0];
        let (begin, end) = (api.file_offset, FileOffset(api.file_offset.0 + api.size));
        let inside = FileOffset(begin.0 + 4);
        assert_eq!(start(begin, Lookup::Instruction), Some(begin), "{kind}");
        assert_eq!(start(inside, Lookup::Instruction), Some(begin), "{kind}");
        assert_eq!(start(end, Lookup::ReturnAddress), Some(begin), "{kind}");
        let frameless = whole.find_functions("frameless")[0].file_offset;
        assert_eq!(start(frameless, Lookup::Instruction), None, "{kind}");
        assert_eq!(start(FileOffset(0), Lookup::Instruction), None, "{kind}");
    }
}
