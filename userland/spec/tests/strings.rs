// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strings of C++ and Rust, as programs that fetch them find them in a stopped program.
//!
//! Debian has no libc++ for GCC: its strings are hand-made structs of the same names and
//! layouts.

use crate::support::fields::{case, check_all, compiled, shown, Case, When};
use crate::support::{open, stops, Folder, Stop};
use nsprobe_spec::decode::{self, FieldValue};
use nsprobe_spec::dwarf::DebugInfo;
use nsprobe_spec::Plain;

fn text(text: &str) -> FieldValue {
    FieldValue::Text {
        bytes: text.into(),
        cut: false,
    }
}

const LONG: &str = "a name that does not fit into the object";

const CXX: [Case; 6] = [
    case(
        "by_reference",
        &[
            ("text", LONG),
            ("right", "brief"),
            ("*pointer", LONG),
            ("holder.name", "brief"),
            ("holder.other", LONG),
            ("text:string[100]", LONG),
            ("right == \"brief\"", "true"),
            ("right == \"brie\"", "false"),
            ("right == \"briefs\"", "false"),
            ("text ~ \"a name*\"", "true"),
            ("*pointer ~ \"b*\"", "false"),
            ("holder.name != \"brief\"", "false"),
        ],
    ),
    case(
        "by_value",
        &[
            ("text", "a\0b"),
            ("view", "view"),
            ("view == \"view\"", "true"),
            ("view ~ \"viewe*\"", "false"),
        ],
    ),
    case(
        "in_path",
        &[("path", "/tmp/path"), ("path ~ \"/tmp/*\"", "true")],
    ),
    case(
        "of_libcxx",
        &[
            ("short14", "one"),
            ("long14", LONG),
            ("short15", "two"),
            ("long15", LONG),
            ("short14 == \"one\"", "true"),
            ("long15 ~ \"a name*\"", "true"),
            ("long15 == \"a name\"", "false"),
        ],
    ),
    case(
        "of_libcxx_too",
        &[
            ("short20", "three"),
            ("long20", LONG),
            ("short_alternate", "four"),
            ("long_alternate", LONG),
            ("emptied", ""),
            ("emptied == \"\"", "true"),
        ],
    ),
    Case {
        at: When::Return,
        ..case("give", &[("$retval", "zzzzzzzzzzzzzzzzzzzz")])
    },
];

#[test]
fn strings_of_cxx_are_strings() {
    let folder = Folder::new("strings-cxx");
    for flags in [
        &[
            "-std=c++17",
            "-g",
            "-O2",
            "-gdwarf-4",
            "-fdebug-types-section",
        ][..],
        &["-std=c++17", "-g", "-O0", "-D_GLIBCXX_USE_CXX11_ABI=0"],
    ] {
        println!("{flags:?}");
        if let Some(program) = folder.build("g++", "strings.cc", flags) {
            // Of one pointer it is not recorded how it is returned.
            let is_old = flags.contains(&"-D_GLIBCXX_USE_CXX11_ABI=0");
            check_all(&program, &CXX[..CXX.len() - usize::from(is_old)]);
        }
    }
}

/// Another compiler's opinion, which leaves out what a file does not construct. Made by clang 14:
/// `clang++ -w -g -O0 -gz=zlib -std=c++17 -ffile-prefix-map=$PWD/= -o strings-clang strings.cc`.
#[test]
fn strings_of_clang_are_strings() {
    let folder = Folder::new("strings-clang");
    let program = folder.path("program");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/testdata/strings-clang");
    std::fs::copy(fixture, &program).unwrap();
    check_all(&program, &CXX);
}

const RUST: [Case; 3] = [
    case(
        "borrowed",
        &[
            ("text", "a text"),
            ("text == \"a text\"", "true"),
            ("text == \"a text \"", "false"),
            ("owned", "a text that is followed by others"),
            ("owned ~ \"a text*\"", "true"),
            ("path", "/tmp"),
        ],
    ),
    case(
        "bytes",
        &[
            ("slice:string", "\u{1}\u{2}\u{3}"),
            ("vector:string", "bytes"),
            ("vector == \"bytes\"", "true"),
        ],
    ),
    case(
        "of_system",
        &[("name", "system"), ("path", "/usr"), ("part", "part")],
    ),
];

#[test]
fn strings_of_rust_are_strings() {
    let folder = Folder::new("strings-rust");
    for flags in [&["-g", "-Copt-level=0"][..], &["-g", "-Copt-level=2"]] {
        if let Some(program) = folder.build("rustc", "strings.rs", flags) {
            println!("{flags:?}");
            check_all(&program, &RUST);
        }
    }
}

#[test]
fn casts_name_strings_where_there_is_no_debug_information() {
    let folder = Folder::new("strings-cast");
    let libstdcxx = [
        ("by_reference", "*(std::string *)arg1", text(LONG)),
        ("by_reference", "*(std::string *)arg2", text("brief")),
        (
            "by_reference",
            "*(std::string *)arg2 == \"brief\"",
            FieldValue::Bool(true),
        ),
        ("in_path", "*(std::string *)arg1", text("/tmp/path")),
    ];
    let libcxx = [
        ("of_libcxx", "*(std::string *)arg1", text("one")),
        ("of_libcxx", "*(std::string *)arg2", text(LONG)),
        ("of_libcxx", "*(std::string *)arg3", text("two")),
        ("of_libcxx", "*(std::string *)arg4", text(LONG)),
    ];
    for (flags, library, cases) in [
        (&["-g", "-O2", "-std=c++17"][..], "libstdc++", libstdcxx),
        (
            &["-g", "-O2", "-std=c++17", "-DWITH_LIBCXX"],
            "libc++",
            libcxx,
        ),
    ] {
        let Some(program) = folder.build("g++", "strings.cc", flags) else {
            return;
        };
        let binary = open(&program);
        let address = |function: &str| binary.find_functions(function)[0].address.0;
        let places = cases.each_ref().map(|(function, ..)| {
            let none: &[&str] = &[];
            (Stop::At(address(function)), none)
        });
        let Some(stopped) = stops(&program, &places) else {
            return;
        };
        for ((function, field, expected), stopped) in cases.into_iter().zip(stopped) {
            let address = address(function);
            let scope = Plain {
                address,
                at_function: true,
                changes_arguments: false,
                binary: Some(&binary),
                why: "there is none".into(),
            };
            let found = shown(&scope, &stopped.unwrap(), field);
            assert_eq!(found, Ok(expected), "{function} {field}");
            let notes = compiled(&scope, &format!("f({field})"), false)
                .unwrap()
                .notes;
            assert!(notes[0].contains(library), "{notes:?}");
        }
    }
}

#[test]
fn what_is_no_string_is_shown_as_before() {
    let folder = Folder::new("strings-none");
    let Some(program) = folder.build("g++", "strings.cc", &["-g", "-O0", "-std=c++17"]) else {
        return;
    };
    let binary = open(&program);
    let debug = DebugInfo::new(&binary, None, None).unwrap();
    let scope = |name: &str| {
        let function = debug.functions_named(name).unwrap().remove(0);
        let entry = function.entry;
        debug.scope(&function, entry).unwrap()
    };
    let shape = |name: &str, spec: &str| {
        let compiled = compiled(&scope(name), spec, false).unwrap();
        compiled.fields[0].shape.clone()
    };
    let is_text = |shape| matches!(shape, decode::WordShape::Slice { .. });
    // Characters of four bytes; a pointer, which is shown as one.
    assert!(!is_text(shape("wide", "f(text)")));
    assert!(!is_text(shape("by_reference", "f(pointer)")));
    assert!(is_text(shape("by_reference", "f(*pointer)")));
    // The string may be freed by then; but it is compared in time.
    let by_value = scope("by_value");
    let error = compiled(&by_value, "f%return(text)", true).unwrap_err();
    assert!(error.contains("may be gone"), "{error}");
    let at_return = compiled(&by_value, "f%return($retval) if text == \"a\"", true).unwrap();
    assert!(at_return.entry.is_some());
}
