// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module, loaded for as long as a test needs it.

use crate::oracle::{within, SOON};
use crate::sys;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The module's file.
pub(crate) const FILE: &str = "/payload/nsprobe.ko";
const NAME: &str = "nsprobe";

/// The loaded module; unloading it is part of every test, since a leaked
/// reference is seen there.
pub(crate) struct Module(());

impl Module {
    /// Loads it.
    pub(crate) fn load() -> Module {
        Module::load_with("")
    }

    /// Loads it with parameters.
    pub(crate) fn load_with(parameters: &str) -> Module {
        let file = File::open(FILE).expect("the module was built");
        sys::load_module(&file, parameters).expect("the module loads");
        let there = within(SOON, || Path::new(nsprobe_common::abi::DEVICE).exists());
        assert!(there, "the module is loaded and the device is missing");
        Module(())
    }

    /// Tries to unload it while it may be in use.
    pub(crate) fn try_unload(&self) -> io::Result<()> {
        sys::unload_module(NAME).map(drop)
    }

    /// Unloads it at once: nothing uses it any more.
    pub(crate) fn unload(self) {
        self.try_unload().expect("nothing uses it");
        std::mem::forget(self);
    }

    /// References that others hold.
    pub(crate) fn references(&self) -> u64 {
        let count = fs::read_to_string("/sys/module/nsprobe/refcnt").expect("it is loaded");
        count.trim().parse().expect("a number")
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // A process that was just killed may still be closing its files.
        let mut last = None;
        let gone = within(Duration::from_secs(30), || {
            last = sys::unload_module(NAME).err();
            last.is_none()
        });
        if !gone && !std::thread::panicking() {
            panic!("the module cannot be unloaded: {last:?}; {}", line());
        }
    }
}

/// Loads a module's file.
pub(crate) fn load(file: &str) -> io::Result<()> {
    let file = File::open(file)?;
    sys::load_module(&file, "").map(drop)
}

/// Whether it is loaded.
pub(crate) fn is_loaded() -> bool {
    !line().is_empty()
}

/// Its line of /proc/modules; empty when it is not loaded.
pub(crate) fn line() -> String {
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    let line = modules.lines().find(|line| line.starts_with("nsprobe "));
    line.unwrap_or_default().to_string()
}

/// After a failed test.
pub(crate) fn unload_if_possible() {
    // What holds it may be ended by now, or not: who asks tries again.
    let _ = sys::unload_module(NAME);
}
