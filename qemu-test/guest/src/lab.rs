// SPDX-License-Identifier: MIT OR Apache-2.0
//! What most tests need, made by one line each and checked when it goes: the module unloads,
//! the text of victims is restored, and the hits of each probe are those that are accounted for.

use crate::binary::Function;
use crate::command::{self, Output, Running};
use crate::container::Container;
use crate::module::Module;
use crate::processes::has_ended;
use crate::session::{probe_at, Session};
use crate::victim::Victim;
use crate::witness::Witness;
use nsprobe_common::abi::Probe;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Mutex;

/// The loaded module, which has to unload in the end.
pub(crate) struct Lab {
    _module: Module,
    /// One for each file and offset: two would count each other's victims, too.
    witnesses: RefCell<Vec<(PathBuf, u64, Weak<Witness>)>>,
}

impl Lab {
    pub(crate) fn new() -> Lab {
        Lab {
            _module: Module::load(),
            witnesses: RefCell::default(),
        }
    }

    /// A victim that calls a function as often as [`Victim::call`] says.
    pub(crate) fn caller(&self, function: &str) -> Traced {
        self.traced(Victim::caller(function), function)
    }

    /// Another victim, and its function that is probed.
    pub(crate) fn victim(&self, name: &str, words: &[&str], function: &str) -> Traced {
        self.traced(Victim::start(name, words), function)
    }

    fn traced(&self, victim: Victim, function: &str) -> Traced {
        let function = victim.function(function);
        let (file, offset) = (victim.file().to_owned(), function.offset);
        let mut witnesses = self.witnesses.borrow_mut();
        let known = witnesses.iter().find(|of| (&of.0, of.1) == (&file, offset));
        let witness = known.and_then(|(.., witness)| witness.upgrade());
        let witness = witness.unwrap_or_else(|| {
            let witness = Rc::new(Witness::new(&file, offset));
            witnesses.push((file, offset, Rc::downgrade(&witness)));
            witness
        });
        Traced {
            victim,
            function,
            witness: Some(witness),
        }
    }

    /// A session with rings of this size for each CPU.
    pub(crate) fn session(&self, ring_bytes: u64) -> Watched {
        Watched {
            session: Session::with_rings(ring_bytes),
            probes: Mutex::default(),
        }
    }

    /// Debian's redis-server in a container of the test's image.
    pub(crate) fn redis(&self, name: &str) -> Container {
        Container::redis(name)
    }

    /// Runs nsprobe to its end.
    pub(crate) fn nsprobe(&self, words: &[&str]) -> Output {
        command::run(words)
    }

    /// Starts nsprobe, and waits until it has this number of probes.
    pub(crate) fn tracing(&self, probes: u32, words: &[&str]) -> Running {
        let mut running = Running::start(words);
        running.attached(probes);
        running
    }
}

/// A victim and its function that is probed, whose calls tracefs counts as well.
pub(crate) struct Traced {
    victim: Victim,
    pub(crate) function: Function,
    witness: Option<Rc<Witness>>,
}

impl Traced {
    /// What tracefs has counted there, of all processes.
    pub(crate) fn kernel_hits(&self) -> u64 {
        self.witness.as_ref().map_or(0, |witness| witness.hits())
    }

    /// From now on tracefs has no probe there, unless another victim's still counts.
    pub(crate) fn alone(&mut self) {
        self.witness = None;
    }

    pub(crate) fn text_is_restored(&self) -> bool {
        self.victim.text_is_restored(self.function.offset)
    }
}

impl Deref for Traced {
    type Target = Victim;

    fn deref(&self) -> &Victim {
        &self.victim
    }
}

impl DerefMut for Traced {
    fn deref_mut(&mut self) -> &mut Victim {
        &mut self.victim
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let is_last = self
            .witness
            .take()
            .is_none_or(|witness| Rc::strong_count(&witness) == 1);
        let has_text = !has_ended(self.victim.pid());
        if is_last && has_text && !std::thread::panicking() {
            // As far as a probe that became a call can be taken out.
            let is_out = self.victim.nop10_is_restored(self.function.offset);
            assert!(is_out, "a probe is left in {}", self.function.name);
        }
    }
}

/// A session whose probes' hits are all accounted for in the end.
pub(crate) struct Watched {
    session: Session,
    probes: Mutex<Vec<u32>>,
}

impl Watched {
    /// Attaches a probe at the entry of a victim's function; its id.
    pub(crate) fn probe(&self, traced: &Traced, flags: u32) -> u32 {
        self.attach(traced, probe_at(0, flags))
    }

    /// Attaches a probe of any kind to a victim's function; its id.
    pub(crate) fn attach(&self, traced: &Traced, probe: Probe) -> u32 {
        let offset = traced.function.offset;
        let attached = self
            .session
            .attach(traced.file(), Probe { offset, ..probe });
        let id = attached.unwrap_or_else(|refused| panic!("{}: {refused:?}", traced.function.name));
        self.probes.lock().expect("not poisoned").push(id);
        id
    }
}

impl Deref for Watched {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for &probe in self.probes.lock().expect("not poisoned").iter() {
            // It waits until no hit is under way, and panics unless all are accounted for.
            self.session.counters(probe);
        }
    }
}
