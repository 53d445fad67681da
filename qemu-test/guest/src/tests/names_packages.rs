// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a debug package that is installed in a container's image, and nowhere else, names
//! the frames of the program that it is for.

use crate::command;
use crate::container::Container;
use crate::debug_files::{addr2line, build_id, by_build_id, functions, text, tool};
use crate::module::Module;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A server in C++, of Debian; the package dibbler-server-dbg is in the image, too, with
/// DWARF 5 in compressed sections.
const PROGRAM: &str = "/usr/sbin/dibbler-server";
/// A function of it that is only in the debug package, as the program is stripped.
const FUNCTION: &str = "init";

/// The program with its debug information back in it, for the witness.
struct Whole(PathBuf);

impl Whole {
    /// Takes both out of the container.
    fn of(container: &str) -> Whole {
        let folder = PathBuf::from(format!("/var/tmp/whole-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("/var/tmp is writable");
        let whole = Whole(folder);
        let (program, debug) = (whole.0.join("program"), whole.0.join("debug"));
        let copy = |from: &Path, to: &Path| {
            let from = format!("{container}:{}", from.display());
            tool("podman", &["cp", &from, text(to)]);
        };
        copy(Path::new(PROGRAM), &program);
        copy(&by_build_id(Path::new("/"), &build_id(&program)), &debug);
        let words = [text(&program), text(&debug), "-o"];
        tool("eu-unstrip", &[&words[..], &[text(&whole.file())]].concat());
        whole
    }

    fn file(&self) -> PathBuf {
        self.0.join("whole")
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Names without parameters, in which demanglers differ; of inlined functions, in which
/// binutils does not tell the innermost by its own name, the lines alone.
fn comparable(mut functions: Vec<(String, String)>) -> (String, Vec<String>) {
    let (name, _) = functions.last().cloned().expect("a function");
    let name = name.split('(').next().unwrap_or_default().to_owned();
    (name, functions.drain(..).map(|(_, line)| line).collect())
}

test! { full, a_debug_package_of_debian_in_the_image_names_its_program, seconds = 120 }
fn a_debug_package_of_debian_in_the_image_names_its_program() {
    let _module = Module::load();
    let script = format!("while :; do {PROGRAM} run; sleep 0.2; done");
    let _container = Container::run("dhcp", &["sh", "-c", &script]);
    let whole = Whole::of("dhcp");
    let file = whole.file();
    let id = build_id(&file);
    let debug = by_build_id(Path::new("/"), &id);
    assert!(!debug.exists(), "the guest has it itself");
    let spec = format!("{PROGRAM}:{FUNCTION}");
    let words = ["trace", "-c", "dhcp", "--stack", "--json", "--count", "3"];
    let words = [&words[..], &["--timeout", "60", &spec]].concat();
    let got = command::run(&words).succeeded();
    let lines = got.lines().map(serde_json::from_str::<Value>);
    let lines = lines.map(|line| line.expect("JSON"));
    let hits: Vec<Value> = lines.filter(|line| line["type"] == "hit").collect();
    assert_eq!(hits.len(), 3, "{got:#?}");
    for hit in &hits {
        assert_eq!(hit["stack_end"], "outermost", "{hit}");
        let frames = hit["stack"].as_array().expect("a stack");
        let own = frames.iter().enumerate();
        let own = own.filter(|(_, frame)| frame["build_id"] == *id);
        let mut names = Vec::new();
        for (index, frame) in own {
            let (name, lines) = comparable(functions(frame));
            names.push(name.clone());
            if name == "_start" {
                continue;
            }
            let theirs = comparable(addr2line(&file, frame, index > 0));
            assert_eq!((name, lines), theirs, "{frame}");
            assert_eq!(frame["names_from"], "dwarf", "{frame}");
            assert_eq!(frame["source"]["in"], "container", "{frame}");
            assert_eq!(frame["source"]["path"], text(&debug), "{frame}");
        }
        assert_eq!(names[0], FUNCTION, "{names:?}");
        assert!(names.contains(&"main".to_owned()), "{names:?}");
    }
}
