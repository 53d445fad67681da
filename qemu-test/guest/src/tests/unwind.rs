// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: stacks are whole without frame pointers, from the first hit on.

use crate::binary;
use crate::command::{self, nsprobe, Output, Running};
use crate::figures;
use crate::fresh::Fresh;
use crate::module::Module;
use crate::stack::{self, Stack};
use crate::victim::{self};
use serde_json::Value;
use std::fs::{self};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The stacks that a command line prints.
pub(super) fn stacks(words: &[&str]) -> (Vec<Stack>, Output) {
    let got = command::run(words).succeeded();
    (stack::all(&got), got)
}

test! { core, frames_of_all_kinds_are_followed }
fn frames_of_all_kinds_are_followed() {
    let _module = Module::load();
    let path = victim::path("no_frame_pointers");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:leaf");
    let outer = &["chosen", "main", "_start"][..];
    for (how, inner, outer) in [
        ("plain", &[][..], outer),
        ("vla", &["with_vla"], outer),
        ("aligned", &["with_alignment", "with_both"], outer),
        ("sort", &["compare", "with_sort"], outer),
        ("signal", &["on_signal", "with_signal"], outer),
        ("thread", &["in_thread"], &[]),
        ("vfork", &["with_vfork"], outer),
        ("context", &["coroutine"], &[]),
    ] {
        let words = [
            "trace",
            "--json",
            "--stack",
            "--children",
            &spec,
            "--",
            path,
            how,
            "3",
        ];
        let (stacks, got) = stacks(&words);
        assert!(stacks.len() >= 3, "{how}: {got:#?}");
        let wanted = [&["leaf", "plain"], inner, outer].concat();
        for Stack { frames, end } in &stacks {
            let own = frames.iter().filter(|frame| frame.path == path);
            let names: Vec<&str> = own.map(|frame| frame.name.as_str()).collect();
            assert_eq!(names, wanted, "{how}: {frames:#?}");
            // Nothing says of the C library's first code on a new stack how it is left.
            let wanted = if how == "context" {
                "no-row"
            } else {
                "outermost"
            };
            assert_eq!(end, wanted, "{how}: {frames:#?}");
            let by_rows = frames
                .iter()
                .skip(1)
                .all(|frame| ["unwind-row", "signal"].contains(&frame.how.as_str()));
            assert!(by_rows, "{how}: {frames:#?}");
        }
        let signals = stacks.iter().flat_map(|stack| &stack.frames);
        let signals = signals.filter(|frame| frame.how == "signal").count();
        assert_eq!(
            signals,
            if how == "signal" { stacks.len() } else { 0 },
            "{how}"
        );
    }
    // By frame pointers alone nothing of it is seen.
    let words = [
        "trace",
        "--json",
        "--stack",
        "--frame-pointers",
        &spec,
        "--",
        path,
        "vla",
        "3",
    ];
    let (stacks, _) = self::stacks(&words);
    assert!(stacks
        .iter()
        .all(|stack| stack.frames.len() < 5 || stack.end != "outermost"));
}

test! { full, each_instruction_of_a_linkage_entry_has_its_caller }
/// The first call through an entry of the procedure linkage table runs all three of its
/// instructions; after the second one, which pushes a number, the return address is a word
/// farther up.
fn each_instruction_of_a_linkage_entry_has_its_caller() {
    const ENTRY_BYTES: u64 = 16;
    const INSTRUCTIONS: [u64; 3] = [0, 6, 11];
    let _module = Module::load();
    let path = victim::path("no_frame_pointers");
    let table = binary::section_range(&path, ".plt");
    let path = path.to_str().expect("a plain name");
    // The first entry is that of all.
    let entries = (table.start + ENTRY_BYTES..table.end).step_by(ENTRY_BYTES as usize);
    let specs: Vec<String> = entries
        .flat_map(|entry| INSTRUCTIONS.map(|inside| format!("{path}:{:#x}", entry + inside)))
        .collect();
    let words = ["trace", "--json", "--stack"].into_iter();
    let words = words.chain(specs.iter().map(String::as_str));
    let words: Vec<&str> = words.chain(["--", path, "sort", "3"]).collect();
    let (stacks, got) = stacks(&words);
    let mut seen = [0; INSTRUCTIONS.len()];
    for Stack { frames, end } in &stacks {
        let inside = (frames[0].offset - table.start) % ENTRY_BYTES;
        let which = INSTRUCTIONS.iter().position(|offset| *offset == inside);
        seen[which.expect("one of them")] += 1;
        let own = frames.iter().skip(1).filter(|frame| frame.path == path);
        let names: Vec<&str> = own.map(|frame| frame.name.as_str()).collect();
        let is_whole = names.ends_with(&["main", "_start"]) && end == "outermost";
        assert!(is_whole, "{end}: {frames:#?}");
        // What called it is one of the program's functions, not what is after it.
        assert!(
            frames[1].path == path && frames[1].how == "unwind-row",
            "{frames:#?}"
        );
    }
    println!("{seen:?} at {INSTRUCTIONS:?}");
    assert!(
        seen.iter().all(|count| *count > 1),
        "{seen:?}: {}",
        got.stderr
    );
}

test! { full, callers_by_rbp_are_told_apart_and_numbers_in_it_do_no_harm }
/// What is kept of stacks is told apart by `rbp` where that matters, and only there.
fn callers_by_rbp_are_told_apart_and_numbers_in_it_do_no_harm() {
    const TIMES: usize = 100;
    let _module = Module::load();
    let path = victim::path("uses_rbp");
    let path = path.to_str().expect("a plain name");
    let (spec, times) = (format!("{path}:leaf"), TIMES.to_string());
    let words = ["trace", "--json", "--stack", &spec, "--", path, &times];
    let (stacks, got) = stacks(&words);
    assert_eq!(stacks.len(), 4 * TIMES, "{}", got.stderr);
    let callers: [&[&str]; 4] = [
        &["low", "one"],
        &["low", "two"],
        &["counting", "three"],
        &["counting", "three"],
    ];
    for (Stack { frames, end }, callers) in stacks.iter().zip(callers.iter().cycle()) {
        let own = frames.iter().filter(|frame| frame.path == path);
        let names: Vec<&str> = own.map(|frame| frame.name.as_str()).collect();
        let wanted = [&["leaf"], *callers, &["main", "_start"]].concat();
        assert_eq!((names, end.as_str()), (wanted, "outermost"), "{frames:#?}");
    }
}

test! { full, first_stacks_of_fresh_containers_are_whole, seconds = 480 }
/// Containers, two hundred in the long run, each with a file system and a program of its own, which
/// makes one call and ends at once; then all of it is gone. The C library is known, as
/// it is that of the image; the program is not.
fn first_stacks_of_fresh_containers_are_whole() {
    let programs = 200 / figures::parts(25);
    let _module = Module::load();
    let fresh = Fresh::new();
    let words = [
        "trace",
        "-v",
        "--json",
        "--stack",
        "--comm",
        "fresh",
        "libc.so.6:write",
    ];
    let mut trace = Running::start(&words);
    // It traces once its own first line could be seen: the first program shows that.
    let mut first = 0;
    while trace.next_line(Duration::from_millis(100)).is_none() {
        fresh.run(&["write", "1"]);
        first += 1;
        assert!(first < 100, "nothing is traced");
    }
    (0..programs).for_each(|_| fresh.run(&["write", "1"]));
    std::thread::sleep(Duration::from_millis(500));
    let (code, lines, errors) = trace.finish();
    println!("{errors}");
    assert_eq!(code, Some(0));
    let hits = lines
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut whole = 0;
    for hit in hits.filter(|line| line["type"] == "hit") {
        let Stack { frames, end } = Stack::of(&hit);
        assert_eq!(end, "outermost", "{frames:#?}");
        let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(names.last(), Some(&"_start"), "{frames:#?}");
        // The other call is that of the C library itself at the end.
        if names[1..4] == ["with_write", "chosen", "main"] {
            assert_eq!(frames[1].path, "/fresh");
            whole += 1;
        }
    }
    println!("{whole} whole stacks");
    // Of those that showed whether it traces yet the last was seen.
    assert!((programs..=programs + first).contains(&whole), "{whole}");
    assert!(errors.contains("finished from copies"), "{errors}");
}

test! { full, frame_pointers_lead_where_a_file_says_little }
fn frame_pointers_lead_where_a_file_says_little() {
    let _module = Module::load();
    let path = victim::path("few_rows");
    let bare = format!("/var/tmp/few-rows-{}", std::process::id());
    let mut objcopy = Command::new("objcopy");
    let made = objcopy
        .args(["-R", ".debug_frame"])
        .arg(&path)
        .arg(&bare)
        .status();
    assert!(made.expect("binutils is in the guest").success());
    // The debug information tells of all frames; without it, what keeps a frame pointer.
    for (path, how) in [
        (path.to_str().expect("a plain name"), "unwind-row"),
        (&bare, "frame-pointer"),
    ] {
        let spec = format!("{path}:few_leaf");
        let (stacks, got) = stacks(&["trace", "--json", "--stack", &spec, "--", path, "3"]);
        assert_eq!(stacks.len(), 3, "{got:#?}");
        for Stack { frames, end } in stacks {
            let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
            assert_eq!(
                names[..3],
                ["few_leaf", "few_middle", "main"],
                "{frames:#?}"
            );
            // The C library's own have rows in any case.
            assert_eq!(frames.last().map(|last| last.name.as_str()), Some("_start"));
            assert_eq!((frames[2].how.as_str(), end.as_str()), (how, "outermost"));
        }
    }
    let _ = fs::remove_file(&bare);
}

test! { core, sframe_leads_where_there_is_nothing_else }
fn sframe_leads_where_there_is_nothing_else() {
    let _module = Module::load();
    let path = victim::path("only_sframe");
    let bare = format!("/var/tmp/only-sframe-{}", std::process::id());
    let mut objcopy = Command::new("objcopy");
    let removed = ["-R", ".eh_frame", "-R", ".eh_frame_hdr"];
    let made = objcopy.args(removed).arg(&path).arg(&bare).status();
    assert!(made.expect("binutils is in the guest").success());
    let spec = format!("{bare}:sframe_leaf");
    let (stacks, got) = stacks(&["trace", "--json", "--stack", &spec, "--", &bare, "3"]);
    assert_eq!(stacks.len(), 3, "{got:#?}");
    for Stack { frames, .. } in stacks {
        let own = frames.iter().filter(|frame| frame.path == bare);
        let names: Vec<&str> = own.map(|frame| frame.name.as_str()).collect();
        let wanted = ["sframe_leaf", "sframe_plain", "sframe_with_vla", "main"];
        // The start-up code is not from that assembler.
        assert_eq!(names, [&wanted[..], &["_start"]].concat(), "{frames:#?}");
        let by_rows = frames.iter().skip(1).all(|frame| frame.how == "unwind-row");
        assert!(by_rows, "{frames:#?}");
    }
    let _ = fs::remove_file(&bare);
}

test! { core, rows_are_compiled_once_and_a_forged_entry_changes_nothing }
/// What is in the cache is used, when it is right and nobody else could write it.
fn rows_are_compiled_once_and_a_forged_entry_changes_nothing() {
    let _module = Module::load();
    let path = victim::path("no_frame_pointers");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:leaf");
    let folder = format!("/var/tmp/rows-{}", std::process::id());
    let run = |more: &[&str]| {
        let words = ["trace", "-v", "--json", "--stack"].iter().chain(more);
        let rest = [&spec, "--", path, "plain", "3"];
        let words: Vec<&str> = words.copied().chain(rest).collect();
        let got = command::output(nsprobe(&words).env("NSPROBE_CACHE", &folder)).succeeded();
        let hits = got.lines().filter(|line| line.contains("\"type\":\"hit\""));
        let whole = hits.filter(|line| line.contains("\"stack_end\":\"outermost\""));
        assert_eq!(whole.count(), 3, "{got:#?}");
        got.stderr
    };
    let entries = || -> Vec<_> {
        let found = fs::read_dir(&folder).into_iter().flatten();
        found.map(|entry| entry.expect("readable").path()).collect()
    };
    assert!(!run(&["--no-cache"]).contains("from the cache"));
    assert!(!Path::new(&folder).exists());
    assert!(!run(&[]).contains("from the cache"));
    assert!(!entries().is_empty(), "the C library is large enough");
    let errors = run(&[]);
    assert!(errors.contains("from the cache"), "{errors}");
    for entry in entries() {
        let mut bytes = fs::read(&entry).expect("it is ours");
        let last = bytes.last_mut().expect("an entry has bytes");
        *last ^= 1;
        fs::write(&entry, bytes).expect("it is ours");
    }
    assert!(!run(&[]).contains("from the cache"));
    assert!(run(&[]).contains("from the cache"), "written anew");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let errors = run(&[]);
    assert!(errors.contains("can be written to by others"), "{errors}");
    assert!(!errors.contains("from the cache"), "{errors}");
    fs::remove_dir_all(&folder).expect("it is ours");
}
