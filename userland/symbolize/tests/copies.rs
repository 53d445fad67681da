// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies and pieces that the compiler makes of functions: by a function's name its copies are
//! found, and its pieces never.

use crate::support::{open, Folder};
use nsprobe_symbolize::Binary;

/// The raw names of what is found.
fn found(binary: &Binary, name: &str) -> Vec<String> {
    let found = binary.find_functions(name).into_iter();
    let mut names: Vec<String> = found.map(|function| function.name.clone()).collect();
    names.sort();
    names
}

const QUOTA: &str = "_ZN4shop11check_quotaEiRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
const OF_KEY: &str = "_ZN4shop11check_quotaERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
const SCALED: &str = "_ZN4shopL6scaledEll.constprop.0.isra.0";

#[test]
fn pieces_have_no_name_but_their_own() {
    let folder = Folder::new("copies");
    let Some(path) = folder.built("copies", "g++", &["-O2"], "copies.cc") else {
        return;
    };
    let binary = open(&path).unwrap();
    let cold = format!("{QUOTA}.cold");
    let has = |name: &str| binary.functions().iter().any(|f| f.name == name);
    let pieces = [
        &*cold,
        &format!("{SCALED}.cold"),
        "_ZL10only_piecel.part.0",
        "_Z15whole_and_piecel.part.0",
    ];
    for piece in pieces {
        assert!(has(piece), "{piece} is not in {:?}", binary.functions());
        assert_eq!(found(&binary, piece), [piece]);
    }
    assert_eq!(found(&binary, "shop::check_quota"), [OF_KEY, QUOTA]);
    assert_eq!(found(&binary, "shop::scaled"), [SCALED]);
    assert_eq!(found(&binary, "shop::*"), [OF_KEY, QUOTA, SCALED]);
    assert_eq!(found(&binary, "*scaled*"), [SCALED]);
    assert_eq!(found(&binary, "whole_and_piece"), ["_Z15whole_and_piecel"]);
    assert!(found(&binary, "only_piece").is_empty());
    for glob in ["*piece*", "*cold*", "*.part.*", "_ZN4shop*", "*"] {
        let found = found(&binary, glob);
        let piece = found.iter().find(|name| pieces.contains(&name.as_str()));
        assert_eq!(piece, None, "{glob}");
    }
    let names = |name: &str| {
        let pieces = binary.pieces_of(name).into_iter();
        pieces.map(|piece| piece.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names("only_piece"), ["_ZL10only_piecel.part.0"]);
    assert_eq!(names("shop::check_quota"), [cold]);
    assert_eq!(names("main"), ["main.cold"]);
    assert!(!binary
        .nearest("only_piece", 3)
        .contains(&"only_piece".to_owned()));
    let scaled = binary.find_functions(SCALED)[0];
    assert!(scaled.changes_arguments() && !binary.is_piece(scaled));
    let main = binary.find_functions("main.cold")[0];
    assert!(binary.is_piece(main) && binary.is_jumped_to(main));
}

#[test]
fn signatures_are_found_as_people_write_them() {
    let folder = Folder::new("signatures");
    let Some(path) = folder.built("copies", "g++", &["-O2"], "copies.cc") else {
        return;
    };
    let binary = open(&path).unwrap();
    for (written, raw) in [
        ("shop::check_quota(int, std::string const&)", QUOTA),
        ("shop::check_quota(int, const std::string &)", QUOTA),
        ("shop::check_quota(std::string const&)", OF_KEY),
        (
            "shop::check_quota(std::__cxx11::basic_string<char, std::char_traits<char>, \
             std::allocator<char> > const&)",
            OF_KEY,
        ),
    ] {
        assert_eq!(found(&binary, written), [raw], "{written}");
    }
    for none in ["shop::check_quota(int)", "shop::check_quota(int, char*)"] {
        assert!(found(&binary, none).is_empty(), "{none}");
    }
}

#[test]
fn copies_in_c_are_found_by_the_name_of_the_source() {
    let folder = Folder::new("copies-c");
    let Some(path) = folder.built("copies", "gcc", &["-O3"], "copies.c") else {
        return;
    };
    let binary = open(&path).unwrap();
    let of = |name: &str| {
        let all = binary.functions().iter().map(|function| &function.name);
        let mut of: Vec<String> = all
            .filter(|found| *found == name || found.starts_with(&format!("{name}.")))
            .cloned()
            .collect();
        of.sort();
        of
    };
    assert!(!of("scaled").contains(&"scaled".to_owned()));
    for name in ["scaled", "both"] {
        assert!(of(name).iter().any(|found| found.contains(".constprop.")));
        assert_eq!(found(&binary, name), of(name));
        for copy in of(name).iter().filter(|copy| *copy != name) {
            assert_eq!(found(&binary, copy), [copy.as_str()]);
        }
    }
}
