// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done with capsules where there is no module: they are printed, reported, named,
//! and what is none, or is damaged, is told. The golden text lies in `tests/golden`; after a
//! wanted change, `UPDATE_GOLDEN=1 cargo test -p nsprobe` writes it anew.

pub(crate) mod sample;

use crate::support::{check_golden, Scratch};
use sample::write_sample;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nsprobe");

fn nsprobe(scratch: &Scratch, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(arguments)
        .current_dir(&scratch.0)
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// What a user sees of a run: the command, all output, the exit code.
fn transcript(scratch: &Scratch, arguments: &[&str]) -> String {
    let output = nsprobe(scratch, arguments);
    let mut text = format!("$ nsprobe {}\n", arguments.join(" "));
    text.push_str(&String::from_utf8(output.stdout).unwrap());
    text.push_str(&String::from_utf8(output.stderr).unwrap());
    writeln!(text, "[exit {}]\n", output.status.code().unwrap()).unwrap();
    text
}

#[test]
fn a_capsule_is_printed_reported_and_told_of() {
    let scratch = Scratch::new("capsule");
    write_sample(Path::new(&scratch.path("x")));
    let mut text = String::new();
    for arguments in [
        &["script", "x"][..],
        &["script", "x", "--json"],
        &["report", "x"],
        &["report", "x", "--folded", "-q"],
        &[
            "report", "x", "--by", "tid,comm", "--json", "--top", "2", "-q",
        ],
        &["report", "x", "--by", "f,$comm,text", "--folded", "-q"],
        &["report", "x", "--by", "f", "--json", "--top", "2", "-q"],
        &["report", "x", "--by", "size"],
        &["script", "x", "-v"],
        &["info", "x"],
        &["info", "x", "--json"],
    ] {
        text.push_str(&transcript(&scratch, arguments));
    }
    check_golden("capsule.txt", &text);
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn what_is_no_capsule_or_is_damaged_is_told_with_code_1() {
    let scratch = Scratch::new("damaged");
    write_sample(Path::new(&scratch.path("whole")));
    let whole = fs::read(scratch.path("whole")).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(scratch.path(name), bytes).unwrap();
    write("empty", b"");
    write(
        "text",
        b"This is no capsule, but some text that is longer than its header.\n",
    );
    write("short", &whole[..20]);
    let mut bytes = whole.clone();
    bytes[8] = 9;
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    write("later", &bytes);
    write("cut", &whole[..whole.len() * 2 / 3]);
    let mut bytes = whole.clone();
    let place = whole
        .windows(8)
        .rposition(|bytes| bytes == b"\x8anschunk")
        .unwrap();
    bytes.truncate(place);
    write("unfinished", &bytes);
    let mut bytes = whole;
    // In the first of the chunks with records: its second hit.
    let place = bytes
        .windows(4)
        .position(|bytes| bytes == b"app\0")
        .unwrap();
    bytes[place] = b'A';
    write("flipped", &bytes);
    fs::create_dir(scratch.path("folder")).unwrap();
    let made = Command::new("mkfifo").arg(scratch.path("fifo")).status();
    assert!(made.unwrap().success());
    let mut text = String::new();
    for file in ["none", "folder", "fifo", "empty", "text", "short", "later"] {
        text.push_str(&transcript(&scratch, &["script", file]));
    }
    for file in ["cut", "unfinished", "flipped"] {
        text.push_str(&transcript(&scratch, &["script", "-q", file]));
    }
    text.push_str(&transcript(&scratch, &["info", "flipped"]));
    check_golden("capsule-damaged.txt", &text);
}

/// A place in this program.
fn place_of_main(scratch: &Scratch) -> (String, String) {
    place_of("main", PROGRAM, scratch)
}

/// A function's place in a file, as `nsprobe list` and readelf tell it.
fn place_of(function: &str, file: &str, scratch: &Scratch) -> (String, String) {
    let listed = nsprobe(scratch, &["list", "--json", &format!("{file}:{function}")]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let is_it = |line: &&str| line.contains(&format!("\"symbol\":\"{function}\""));
    let line = listed.lines().find(is_it);
    let line: serde_json::Value = serde_json::from_str(line.unwrap()).unwrap();
    let offset = line["file_offset"].as_str().unwrap().to_owned();
    let notes = Command::new("readelf").args(["-n", file]).output().unwrap();
    let notes = String::from_utf8(notes.stdout).unwrap();
    let id = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    (id.expect("a build-id").to_owned(), offset)
}

fn symbolize(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(PROGRAM)
        .arg("symbolize")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn places_are_named_from_files_of_their_build_ids() {
    let scratch = Scratch::new("symbolize");
    let (build_id, offset) = place_of_main(&scratch);
    let by_id = scratch.0.join(".build-id").join(&build_id[..2]);
    fs::create_dir_all(&by_id).unwrap();
    std::os::unix::fs::symlink(PROGRAM, by_id.join(&build_id[2..])).unwrap();
    let somewhere = scratch.0.join("a/b");
    fs::create_dir_all(&somewhere).unwrap();
    fs::copy(PROGRAM, somewhere.join("any name")).unwrap();
    // A file that only claims, by its name, to be the one.
    let liar = scratch.0.join("liar/.build-id").join(&build_id[..2]);
    fs::create_dir_all(&liar).unwrap();
    fs::copy("/bin/true", liar.join(&build_id[2..])).unwrap();
    let input = format!("{build_id}+{offset}\n\n{build_id} {offset}\n00ff+0x10\n");
    for directory in [&scratch.0, &somewhere] {
        let directory = directory.to_str().unwrap();
        let output = symbolize(&["--debug-dir", directory], &input);
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let [first, second, third] = lines.as_slice() else {
            panic!("{text}")
        };
        assert!(
            first.starts_with(&format!("{build_id}+{offset} main+0x0")),
            "{text}"
        );
        assert_eq!(first, second);
        assert_eq!(*third, "00ff+0x10 ? (no file with that build-id was found)");
    }
    let liar = scratch.0.join("liar");
    let output = symbolize(&["--debug-dir", liar.to_str().unwrap()], &input);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.lines().all(|line| line.ends_with("was found)")),
        "{text}"
    );
}

/// As central servers have them: the program itself is on other machines.
#[test]
fn a_debug_file_alone_names_places() {
    let scratch = Scratch::new("symbolize-alone");
    let (build_id, offset) = place_of_main(&scratch);
    let debug = scratch.path("some.debug");
    let words = ["--only-keep-debug", PROGRAM, &debug];
    let made = Command::new("objcopy").args(words).status().unwrap();
    assert!(made.success());
    let input = format!("{build_id}+{offset}\n{build_id}+0xffffffff\n");
    let output = symbolize(&["--debug-dir", scratch.0.to_str().unwrap()], &input);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with(&format!("{build_id}+{offset} main+0x0")),
        "{text}"
    );
    assert!(text.lines().nth(1).unwrap().contains(" ? ("), "{text}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.matches("without its program").count(), 1, "{errors}");
}

/// Names by symbols alone have a reason where there is more.
#[test]
fn debug_information_that_is_not_used_has_a_reason() {
    let scratch = Scratch::new("symbolize-damaged");
    let (build_id, offset) = place_of_main(&scratch);
    fs::write(scratch.path("garbage"), [0xff; 64]).unwrap();
    let update = format!("--update-section=.debug_abbrev={}", scratch.path("garbage"));
    let words = [&update, PROGRAM, &scratch.path("damaged")];
    assert!(Command::new("objcopy")
        .args(words)
        .status()
        .unwrap()
        .success());
    let input = format!("{build_id}+{offset}\n{build_id}+{offset}\n");
    let output = symbolize(&["--debug-dir", scratch.0.to_str().unwrap()], &input);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("main+0x0\n").count(), 2, "{text}");
    let errors = String::from_utf8(output.stderr).unwrap();
    let reason = "damaged: its debug information is not used: ";
    assert_eq!(errors.matches(reason).count(), 1, "{errors}");
}

#[test]
fn places_are_read_and_named_as_json() {
    let scratch = Scratch::new("symbolize-json");
    let (build_id, offset) = place_of_main(&scratch);
    fs::copy(PROGRAM, scratch.path("program")).unwrap();
    let place =
        |more: &str| format!("{{\"build_id\":\"{build_id}\",\"offset\":\"{offset}\"{more}}}\n");
    let input = place("") + &place(",\"return_address\":true");
    let scratch_path = scratch.0.to_str().unwrap();
    let output = symbolize(&["--json", "--debug-dir", scratch_path], &input);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["functions"][0]["name"], "main", "{text}");
    assert_eq!(lines[0]["type"], "place");
    // In front of main is another function, or none.
    assert_ne!(lines[1]["functions"][0]["name"], "main", "{text}");
    let words = ["--json", "--return-addresses", "--debug-dir", scratch_path];
    let output = symbolize(&words, &place(""));
    let all = String::from_utf8(output.stdout).unwrap();
    assert_eq!(all.lines().next(), text.lines().nth(1));
    for (input, part) in [("nonsense\n", "line 1"), ("ab+0x1\nab\n", "line 2")] {
        let output = symbolize(&["--debug-dir", scratch_path], input);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(part), "{errors}");
    }
    let output = symbolize(&["--debug-dir", "/no/such/directory"], "");
    assert_eq!(output.status.code(), Some(1));
}

/// RES-03: each file with a build-id of its own, one after the other, with room for a part of
/// them.
#[test]
fn places_of_thousands_of_files_are_named_in_bounded_memory() {
    const FILES: u32 = 3000;
    let scratch = Scratch::new("symbolize-many");
    let (source, first) = (scratch.path("f.c"), scratch.path("first"));
    fs::write(&source, "int only_function(void) { return 1; }").unwrap();
    let words = [
        "-shared",
        "-nostdlib",
        "-Wl,--build-id",
        "-o",
        &first,
        &source,
    ];
    if !nsprobe_testing::success(nsprobe_testing::compiler("gcc").args(words)) {
        return;
    }
    let (build_id, offset) = place_of("only_function", &first, &scratch);
    let mut bytes = fs::read(&first).unwrap();
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let at = bytes.windows(20).position(|bytes| hex(bytes) == build_id);
    let at = at.expect("its build-id has 20 bytes");
    let mut input = String::new();
    for number in 0..FILES {
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        fs::write(scratch.path(&number.to_string()), &bytes).unwrap();
        writeln!(input, "{}+{offset}", hex(&bytes[at..at + 20])).unwrap();
    }
    fs::write(scratch.path("input"), &input).unwrap();
    // Open files, and KiB of memory.
    let limited = "ulimit -n 200 -v 262144 && exec \"$0\" symbolize --debug-dir . < input";
    let mut shell = Command::new("bash");
    let shell = shell.args(["-c", limited, PROGRAM]).current_dir(&scratch.0);
    let output = shell.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let wanted: String = input
        .lines()
        .map(|line| format!("{line} only_function+0x0\n"))
        .collect();
    assert!(text == wanted, "{} of {FILES}", text.lines().count());
}

/// A trace for babeltrace2: the hits with their context, fields and stacks.
#[test]
fn a_capsule_is_exported_with_its_hits() {
    let scratch = Scratch::new("exported");
    write_sample(Path::new(&scratch.path("x")));
    let output = nsprobe(&scratch, &["export", "ctf", "x", "t"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(
        told.contains("9 events in 2 streams, 5 discarded: t\n"),
        "{told}"
    );
    let mut command = Command::new("babeltrace2");
    // It escapes backslashes once more.
    let Some(output) = nsprobe_testing::output(command.arg(scratch.path("t"))) else {
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let context = "{ procname = \"app\", pid = 100, tid = 100, vpid = 1, vtid = 1, \
                   pid_ns = 4026532000, container = \"web\" }";
    let first = text
        .lines()
        .find(|line| line.contains("nsprobe:app:parse: "));
    let first = first.unwrap();
    assert!(first.contains(context), "{first}");
    for part in [
        "text = \"GET /\\\\x1b[3\", f = 0x7FFF00001100, f_name = \"handler\", absent = \"\"",
        "stack_objects = [ [0] = 1, [1] = 1 ]",
        "stack_offsets = [ [0] = 0x1000, [1] = 0x2000 ]",
        "stack_names = [ [0] = \"parse+0x12\", [1] = \"read<char\\\\x1b> in serve+0x12\" ]",
        "stack_end = \"outermost\"",
        "kernel_stack_names = [ [0] = \"do_syscall_64+0x10\" ]",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    assert!(text.contains("nsprobe:app:reply%return: "), "{text}");
    assert!(
        text.contains("elapsed_ns = 1234567, absent = \"\""),
        "{text}"
    );
    assert!(text.contains("absent = \"f\""), "{text}");
    assert!(text.contains("path = \"/usr/bin/app\\\\n\""), "{text}");
}
