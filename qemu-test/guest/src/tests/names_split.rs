// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: split DWARF names frames, from `.dwo` files as from packages of these, in the
//! container alone, and only when it is of the same build.

use crate::binary;
use crate::container::{Container, Root};
use crate::debug_files::{text, tool, trace};
use crate::module::Module;
use crate::victim;
use std::fs;
use std::path::{Path, PathBuf};

const PROGRAM: &str = "/usr/local/bin/named";

/// The program whose debug information is in a `.dwo` file, that file as the host made it,
/// and where the program says it is.
fn split() -> (PathBuf, PathBuf, PathBuf) {
    let program = victim::path("named_split");
    let whole = victim::path("named");
    // The witness: the same code, with its debug information in itself.
    let offset = |file: &Path| binary::function(file, "charge").offset;
    assert_eq!(offset(&program), offset(&whole));
    let info = tool("readelf", &["--debug-dump=info", text(&program)]);
    let value = |attribute: &str| {
        let line = info.lines().find(|line| line.contains(attribute));
        let line = line.unwrap_or_else(|| panic!("no {attribute}: {info}"));
        line.rsplit(": ")
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let told = Path::new(&value("DW_AT_comp_dir")).join(value("DW_AT_GNU_dwo_name"));
    let name = told.file_name().expect("a file");
    let file = Path::new("/payload/victims").join(name);
    assert!(file.exists(), "{}", file.display());
    (whole, file, told)
}

fn copy(from: &Path, root: &Root, to: &Path) {
    let to = root.folder.join(to.strip_prefix("/").expect("absolute"));
    fs::create_dir_all(to.parent().expect("a folder")).expect("writable");
    fs::copy(from, to).expect("writable");
}

test! { full, dwo_files_of_the_container_name_frames, seconds = 120 }
fn dwo_files_of_the_container_name_frames() {
    let _module = Module::load();
    let (whole, file, told) = split();
    let root = Root::with("named_split", PROGRAM);
    copy(&file, &root, &told);
    let container = Container::over("named", &root.folder, &[PROGRAM]);
    let traced = trace("named", PROGRAM, &whole, &[]);
    traced.agrees(&whole, "container", text(&told));
    drop(container);
    drop(root);
    // On the host it lies at that path, too, and no path of a container's is opened there.
    let on_host = crate::debug_files::OnHost(told.clone());
    fs::create_dir_all(told.parent().expect("a folder")).expect("writable");
    fs::copy(&file, &on_host.0).expect("writable");
    let root = Root::with("named_split", PROGRAM);
    let _container = Container::over("named", &root.folder, &[PROGRAM]);
    let traced = trace("named", PROGRAM, &whole, &[]);
    traced.tells(&["1 of 1 file with split DWARF not found"]);
    let hosts = |line: &String| line.contains("on the host");
    assert!(!traced.sources.iter().any(hosts), "{:#?}", traced.sources);
}

test! { full, a_dwp_package_of_the_container_names_frames, seconds = 120 }
fn a_dwp_package_of_the_container_names_frames() {
    let _module = Module::load();
    let (whole, file, _) = split();
    let root = Root::with("named_split", PROGRAM);
    let package = root.folder.join("usr/local/bin/named.dwp");
    tool("dwp", &["-o", text(&package), text(&file)]);
    let _container = Container::over("named", &root.folder, &[PROGRAM]);
    let traced = trace("named", PROGRAM, &whole, &[]);
    traced.agrees(&whole, "container", "/usr/local/bin/named.dwp");
}
