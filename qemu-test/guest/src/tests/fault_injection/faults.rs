// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's fault injection (`Documentation/fault-injection` of its source), and what must
//! be so whatever has failed.

use crate::module::Module;
use crate::session::Session;
use crate::victim::Victim;
use nix::libc;
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

const DEBUGFS: &str = "/sys/kernel/debug";
/// More than any request has that can fail.
const MOST: u32 = 3000;
pub(super) const FUNCTION: &str = "begins_with_push";

/// Failures in the thread that has this.
struct Faults(File);

impl Faults {
    fn new() -> Faults {
        // All allocations, not only those that may not sleep, and without a stack in the log.
        for (file, value) in [
            ("failslab/ignore-gfp-wait", "N"),
            ("failslab/verbose", "0"),
            ("fail_page_alloc/ignore-gfp-wait", "N"),
            ("fail_page_alloc/ignore-gfp-highmem", "N"),
            ("fail_page_alloc/min-order", "0"),
            ("fail_page_alloc/verbose", "0"),
            ("fail_usercopy/verbose", "0"),
        ] {
            set(file, value);
        }
        let nth = File::options()
            .read(true)
            .write(true)
            .open("/proc/thread-self/fail-nth");
        Faults(nth.expect("it is there"))
    }

    /// Makes a request whose `n`th allocation or copy fails, and says whether it had that many.
    fn nth<T>(&self, n: u32, request: impl FnOnce() -> T) -> (T, bool) {
        let (text, none) = (n.to_string(), "0");
        let arm = |text: &str| (&self.0).write_all(text.as_bytes());
        arm(&text).expect("it takes a number");
        let result = request();
        let mut left = [0u8; 16];
        // That what was to fail is the read itself means that the request had less.
        let was_hit = self.0.read_at(&mut left, 0).is_ok() && left.starts_with(b"0");
        while arm(none).is_err() {}
        (result, was_hit)
    }
}

fn set(file: &str, value: &str) {
    fs::write(format!("{DEBUGFS}/{file}"), value).unwrap_or_else(|error| panic!("{file}: {error}"));
}

/// What must be so whatever has failed.
pub(super) struct Watch {
    faults: Faults,
    pub(super) victim: RefCell<Victim>,
    /// Where `FUNCTION` begins. Found beforehand: what a request does must not fail in the
    /// test's own reading of files.
    place: u64,
    session: Session,
    _module: Module,
}

impl Watch {
    pub(super) fn new() -> Watch {
        let faults = Faults::new();
        let module = Module::load();
        let victim = Victim::caller(FUNCTION);
        Watch {
            faults,
            place: victim.function(FUNCTION).offset,
            victim: RefCell::new(victim),
            session: Session::open(),
            _module: module,
        }
    }

    pub(super) fn place(&self) -> u64 {
        self.place
    }

    pub(super) fn file(&self) -> File {
        File::open(self.victim.borrow().file()).expect("the victim is there")
    }

    /// A session with rings that only wants the victim.
    pub(super) fn session(&self) -> Session {
        let session = Session::with_rings(64 << 10);
        let pid = self.victim.borrow().pid();
        session.only(&[pid]).expect("it lives");
        session
    }

    pub(super) fn call(&self, count: u64) {
        self.victim.borrow_mut().call(count);
    }

    pub(super) fn nothing_is_left(&self, after: &str) {
        let info = self.session.info();
        assert_eq!((info.sessions, info.probes), (1, 0), "{after}");
        let is_restored = self.victim.borrow().text_is_restored(self.place());
        assert!(is_restored, "{after}: a breakpoint is there");
    }

    /// Makes a request again and again, each time in a new state, and has the first of its
    /// allocations and copies fail, then the second, and so on, until it has no more. At
    /// least `least` of them must make it fail. What has failed is made again, and succeeds;
    /// then `check` looks at the state.
    pub(super) fn each<S, T>(
        &self,
        what: &str,
        least: u32,
        make: impl Fn() -> S,
        request: impl Fn(&mut S) -> io::Result<T>,
        check: impl Fn(S),
    ) {
        self.each_looked_at(what, least, make, request, |_, _| (), check);
    }

    /// As `each`; `look` sees the state after each request, when nothing is to fail any more.
    pub(super) fn each_looked_at<S, T>(
        &self,
        what: &str,
        least: u32,
        make: impl Fn() -> S,
        request: impl Fn(&mut S) -> io::Result<T>,
        look: impl Fn(&S, &io::Result<T>),
        check: impl Fn(S),
    ) {
        let mut failed = 0;
        for n in 1..MOST {
            let mut state = make();
            let before = descriptors();
            let (result, was_hit) = self.faults.nth(n, || request(&mut state));
            look(&state, &result);
            if let Err(error) = &result {
                let number = error.raw_os_error();
                let is_told = [Some(libc::ENOMEM), Some(libc::EFAULT)].contains(&number);
                assert!(was_hit && is_told, "{what}, {n}: {error}");
                assert_eq!(descriptors(), before, "{what}, {n}: descriptors");
                failed += 1;
                let again = request(&mut state);
                look(&state, &again);
                assert!(again.is_ok(), "{what}, {n}, again: {:?}", again.err());
            }
            drop(result);
            check(state);
            self.nothing_is_left(what);
            if !was_hit {
                println!("{what}: {failed} of {} made it fail", n - 1);
                assert!(failed >= least, "{what}: only {failed} made it fail");
                return;
            }
        }
        panic!("{what}: there is no end");
    }
}

/// How many descriptors this process has.
pub(super) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc").count()
}

/// Allocations of `uprobe_register` fail, in whichever task it runs, one after the other.
pub(super) struct InRegister;

impl InRegister {
    pub(super) fn new() -> InRegister {
        let symbols = fs::read_to_string("/proc/kallsyms").expect("tests run as root");
        let mut text: Vec<(u64, &str)> = symbols.lines().filter_map(code).collect();
        text.sort_unstable();
        let at = text.iter().position(|(_, name)| *name == "uprobe_register");
        let begin = text[at.expect("the kernel has it")].0;
        let end = text.iter().find(|(address, _)| *address > begin);
        for (file, value) in [
            ("require-start", format!("{begin:#x}")),
            ("require-end", format!("{:#x}", end.expect("more code").0)),
            ("stacktrace-depth", "32".into()),
            ("task-filter", "N".into()),
        ] {
            set_both(file, &value);
        }
        InRegister
    }

    /// One allocation fails: of slabs after this number of bytes of them, or after this number
    /// of pages.
    pub(super) fn fail(&self, kind: &str, space: u32) {
        set(&format!("{kind}/space"), &space.to_string());
        set(&format!("{kind}/times"), "1");
        set(&format!("{kind}/probability"), "100");
    }

    /// No more; whether one has failed.
    pub(super) fn has_failed(&self, kind: &str) -> bool {
        set(&format!("{kind}/probability"), "0");
        let times = fs::read_to_string(format!("{DEBUGFS}/{kind}/times")).expect("debugfs");
        times.trim() == "0"
    }
}

impl Drop for InRegister {
    fn drop(&mut self) {
        set_both("probability", "0");
        set_both("require-start", "0");
        set_both("require-end", "0xffffffffffffffff");
    }
}

fn set_both(file: &str, value: &str) {
    for kind in ["failslab", "fail_page_alloc"] {
        set(&format!("{kind}/{file}"), value);
    }
}

/// A line of /proc/kallsyms that is about code.
fn code(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_code = ["t", "T"].contains(&words.next()?);
    let name = words.next()?;
    // Those of modules have a third word.
    (is_code && words.next().is_none()).then_some((address, name))
}
