// SPDX-License-Identifier: MIT OR Apache-2.0
//! `.sframe` says the same as the `.eh_frame` of the same program, at every instruction
//! that it describes.
//!
//! `NSPROBE_SFRAME` names a program with both: `scripts/check-full.sh` makes one.

use nsprobe_common::unwind::{Base, Rule};
use nsprobe_symbolize::Binary;
use nsprobe_unwind::UnwindTable;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder that is removed with everything in it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Binary {
    let file = File::open(path).expect("readable");
    Binary::open_sections(file, path).expect("a program")
}

fn succeeds(command: &mut Command) {
    let output = command.output().expect("it can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}

#[test]
#[ignore = "full run: most assemblers write no version 2"]
fn sframe_agrees_with_eh_frame() {
    let name = format!("nsprobe-sframe-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    fs::create_dir(&folder.0).expect("a new folder");
    let Some(both) = std::env::var_os("NSPROBE_SFRAME") else {
        return nsprobe_testing::lacking("NSPROBE_SFRAME names no program");
    };
    let both = PathBuf::from(both);
    let alone = folder.0.join("alone");
    let mut objcopy = Command::new("objcopy");
    let removed = [
        "-R",
        ".eh_frame",
        "-R",
        ".eh_frame_hdr",
        "-R",
        ".debug_frame",
    ];
    succeeds(objcopy.args(removed).arg(&both).arg(&alone));
    let with = UnwindTable::of(&open(&both)).expect("it has .eh_frame");
    let without = UnwindTable::of(&open(&alone)).expect("it has .sframe");
    // The one is what ld 2.44 writes for .plt.got, which is wrong.
    let left_out = without.left_out.unreadable;
    assert!(left_out <= 1, "{left_out} functions cannot be read");
    let (mut places, mut rules) = (0, Vec::<Rule>::new());
    for offset in 0..fs::metadata(&both).expect("it is there").len() {
        let rule = without.table().find(offset);
        // The program's first code, and the bytes after it, are known without a section.
        let untold = [Base::Unknown, Base::Outermost].map(|base| base as u8);
        let Some(rule) = rule.filter(|rule| !untold.contains(&rule.base)) else {
            continue;
        };
        assert_eq!(Some(rule), with.table().find(offset), "at {offset:#x}");
        places += 1;
        if !rules.contains(rule) {
            rules.push(*rule);
        }
    }
    println!("{places} bytes of code with {} rules", rules.len());
    let has = |base: Base| rules.iter().any(|rule| rule.base == base as u8);
    assert!(
        places > 100 && has(Base::Rsp) && has(Base::Rbp),
        "{rules:?}"
    );
    assert!(has(Base::Linkage), "of the linkage table: {rules:?}");
}
