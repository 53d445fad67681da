// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: frames are named by the debug file that only the container has, whatever has made
//! the container.

use super::containers::process_elsewhere;
use crate::container::Root;
use crate::debug_files::{build_id, by_build_id, debug_of, strip, text, trace, OnHost};
use crate::module::Module;
use crate::oracle::within;
use crate::runtimes::{Bundle, Machine, Rootless};
use crate::victim;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PROGRAM: &str = "/usr/local/bin/named";

/// A root with the stripped program and its debug file; the host has another program, and
/// another build's debug file, at the very same paths.
struct Scene {
    root: Root,
    whole: PathBuf,
    debug: PathBuf,
    _decoys: [OnHost; 2],
}

impl Scene {
    fn new() -> Scene {
        let (whole, decoy) = (victim::path("named"), victim::path("named_decoy"));
        let root = Root::with("named", PROGRAM);
        let program = root.folder.join(&PROGRAM[1..]);
        fs::remove_file(&program).expect("it is there");
        strip(&whole, &program);
        let id = build_id(&whole);
        debug_of(&whole, &by_build_id(&root.folder, &id));
        let debug = by_build_id(Path::new("/"), &id);
        let decoys = [OnHost(PROGRAM.into()), OnHost(debug.clone())];
        fs::create_dir_all("/usr/local/bin").expect("the root is writable");
        fs::copy(&decoy, PROGRAM).expect("the root is writable");
        debug_of(&decoy, &debug);
        Scene {
            root,
            whole,
            debug,
            _decoys: decoys,
        }
    }

    /// Traces what runs in a container of that root.
    fn is_named(&self, container: &str) {
        let traced = trace(container, PROGRAM, &self.whole, &[]);
        traced.agrees(&self.whole, "container", text(&self.debug));
    }
}

test! { core, names_come_from_a_container_of_rootless_podman, seconds = 120 }
/// Of a user who is nobody in the guest.
fn names_come_from_a_container_of_rootless_podman() {
    let _module = Module::load();
    let scene = Scene::new();
    let _container = Rootless::run("named", &scene.root.folder, PROGRAM);
    scene.is_named("named");
}

test! { core, names_come_from_a_machine_of_systemd_nspawn, seconds = 120 }
fn names_come_from_a_machine_of_systemd_nspawn() {
    let _module = Module::load();
    let scene = Scene::new();
    let _machine = Machine::start(&scene.root.folder, "named", PROGRAM);
    let runs = || process_elsewhere("named").is_some();
    assert!(within(Duration::from_secs(30), runs), "it does not start");
    scene.is_named("named");
}

test! { core, names_come_from_a_container_of_crun_alone, seconds = 120 }
fn names_come_from_a_container_of_crun_alone() {
    let _module = Module::load();
    let scene = Scene::new();
    let _container = Bundle::run("crun", "named", &scene.root.folder, PROGRAM);
    scene.is_named("named");
}
