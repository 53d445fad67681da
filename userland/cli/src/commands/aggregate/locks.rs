// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for locks: which lock, and who held it. What the module found is proven here by the stack
//! of the wait, where it needs that.

use super::addresses::{AddressPlace, Addresses};
use super::joined::Numbered;
use crate::output::tables::Counterpart;
use libnsprobe::common::record::{Details, Hit};
use libnsprobe::common::wait::Proof;
use libnsprobe::{Rows, Session, TableRow};
use nsprobe_text::counted;
use nsprobe_trace::hits::lookup::Lookup;
use nsprobe_trace::hits::view::FrameView;
use std::collections::{HashMap, VecDeque};

/// Most threads that have a name, and most locks whose releases are kept.
const KEPT_MAX: usize = 1 << 16;
/// Most releases of one lock that are kept.
const RELEASES_MAX: usize = 64;
/// Frames in which the function is that proves a holder: the system call's own is the first.
const PROOF_FRAMES: usize = 3;
/// Frames in which the function is that says what is waited for.
const KIND_FRAMES: usize = 6;
/// No thread, or nothing that ended a wait.
const NONE: u64 = u64::MAX;

/// Functions of C libraries, without leading underscores, and what a thread waits for in them.
const FUNCTIONS: [(&str, &str); 20] = [
    ("pthread_mutex_lock", MUTEX),
    ("pthread_mutex_timedlock", MUTEX),
    ("pthread_mutex_clocklock", MUTEX),
    ("pthread_cond_wait", CONDITION),
    ("pthread_cond_timedwait", CONDITION),
    ("pthread_cond_clockwait", CONDITION),
    ("pthread_join", JOIN),
    ("pthread_clockjoin_ex", JOIN),
    ("pthread_timedjoin_np", JOIN),
    ("pthread_barrier_wait", BARRIER),
    ("sem_wait", "semaphore"),
    ("new_sem_wait", "semaphore"),
    ("sem_timedwait", "semaphore"),
    ("sem_clockwait", "semaphore"),
    ("pthread_rwlock_rdlock", "rwlock"),
    ("pthread_rwlock_wrlock", "rwlock"),
    ("pthread_rwlock_timedrdlock", "rwlock"),
    ("pthread_rwlock_timedwrlock", "rwlock"),
    ("pthread_rwlock_clockrdlock", "rwlock"),
    ("pthread_rwlock_clockwrlock", "rwlock"),
];
const MUTEX: &str = "mutex";
const CONDITION: &str = "condition";
const JOIN: &str = "join";
const BARRIER: &str = "barrier";

/// A wait in `futex(2)`, as it was recorded.
#[derive(Default)]
pub(super) struct LockWait {
    pid: u32,
    address: u64,
    proof: u64,
    holder: u32,
    began_ns: u64,
}

impl LockWait {
    pub(super) fn of(hit: &Hit, details: &Details<'_>, address: u64, holder: u64) -> LockWait {
        LockWait {
            pid: hit.pid,
            address,
            proof: holder >> 32,
            holder: holder as u32,
            began_ns: hit.time_ns.saturating_sub(details.elapsed_ns.unwrap_or(0)),
        }
    }
}

/// The end of a wait by a thread: when, which one, and its number among the wakers.
type Release = (u64, u32, u64);

/// The locks that were waited for.
pub(crate) struct Locks {
    /// Also what is no lock.
    all: bool,
    with_tids: bool,
    threads: HashMap<u32, String>,
    /// By process and address, the latest last.
    releases: HashMap<(u32, u64), VecDeque<Release>>,
    addresses: Addresses,
    locks: Numbered<AddressPlace>,
    names: Vec<String>,
    kinds: Numbered<&'static str>,
    /// Waits for what is no lock, and their nanoseconds.
    others: (u64, u64),
}

impl Locks {
    pub(super) fn new(all: bool, with_tids: bool, addresses: Addresses) -> Locks {
        Locks {
            all,
            with_tids,
            threads: HashMap::new(),
            releases: HashMap::new(),
            addresses,
            locks: Numbered::default(),
            names: Vec::new(),
            kinds: Numbered::default(),
            others: (0, 0),
        }
    }

    /// Remembers the name of a thread.
    pub(super) fn name_thread(&mut self, hit: &Hit) {
        if self.threads.len() >= KEPT_MAX {
            self.threads.clear();
        }
        let comm = String::from_utf8_lossy(&hit.comm);
        let comm = comm.trim_end_matches('\0').to_owned();
        self.threads.insert(hit.tid, comm);
    }

    /// What a wait's key has of its lock: the lock, the proof, the holder and the number of its
    /// stack.
    pub(super) fn join(&mut self, wait: &LockWait, released: Option<Release>) -> [u64; 4] {
        let lock = self.addresses.find(wait.pid, wait.address);
        let lock = self.locks.number(lock);
        if self.releases.len() >= KEPT_MAX {
            self.releases.clear();
        }
        let all = self.releases.entry((wait.pid, wait.address)).or_default();
        all.extend(released);
        if all.len() > RELEASES_MAX {
            all.pop_front();
        }
        // The holder's first release since then, be it for another thread that waited.
        let by_holder = |(at_ns, tid, _): &&Release| *tid == wait.holder && *at_ns >= wait.began_ns;
        let stack = all
            .iter()
            .filter(by_holder)
            .min_by_key(|(at_ns, ..)| *at_ns);
        let stack = stack.map_or(NONE, |(_, _, number)| *number);
        match wait.holder {
            0 => [lock, Proof::None as u64, 0, NONE],
            holder => [lock, wait.proof, holder.into(), stack],
        }
    }

    /// Rows by what is proven: their keys end with the kind, the lock and the other side.
    pub(super) fn rows(
        &mut self,
        names: &mut impl Lookup,
        rows: Rows,
        sides: &mut Numbered<Counterpart>,
    ) -> Rows {
        self.others = (0, 0);
        let mut proven = Vec::new();
        for row in rows.rows {
            let Some((key, [lock, proof, holder, stack, waker])) = row.key.split_last_chunk()
            else {
                continue;
            };
            let views = names.views(&row.stack);
            let is_proven = match proof {
                _ if *proof == Proof::Word as u64 => true,
                _ if *proof == Proof::Caller as u64 => is_in_mutex(&views),
                _ => false,
            };
            let kind = match is_proven {
                true => MUTEX,
                false => kind(&views),
            };
            let is_lock = ![CONDITION, JOIN, BARRIER].contains(&kind);
            if !is_lock && !self.all {
                self.others.0 += row.count;
                self.others.1 += row.sum.max(0) as u64;
                continue;
            }
            let side = match is_proven {
                true => sides.number(self.holder(*holder as u32, sides.get(*stack))),
                false => *waker,
            };
            let mut key = key.to_vec();
            key.extend([self.kinds.number(kind), *lock, side]);
            proven.push(TableRow { key, ..row });
        }
        Rows {
            rows: proven,
            ..rows
        }
        .added_up()
    }

    /// A holder, with the stack by which it released the lock.
    fn holder(&self, tid: u32, released: Option<&Counterpart>) -> Counterpart {
        let name = match self.threads.get(&tid) {
            Some(comm) if self.with_tids => format!("{comm}/{tid}"),
            Some(comm) => comm.clone(),
            None => format!("thread {tid}"),
        };
        Counterpart {
            name,
            is_holder: true,
            ..released.cloned().unwrap_or_default()
        }
    }

    /// The names of kinds, by their numbers in keys.
    pub(super) fn kinds(&self) -> &[&'static str] {
        self.kinds.all()
    }

    /// The names of locks, by their numbers in keys.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Names the locks that have no name yet.
    pub(super) fn name_locks(&mut self, session: &Session) {
        for place in self.locks.all().get(self.names.len()..).unwrap_or_default() {
            self.names.push(self.addresses.name(session, place));
        }
    }

    /// What is said of waits that are for no lock.
    pub(super) fn note(&self, duration: impl Fn(u64) -> String) -> Option<String> {
        let (count, ns) = self.others;
        (count > 0).then(|| {
            format!(
                "{}, {}, for condition variables, joins and barriers: --all shows them",
                counted(count, "wait"),
                duration(ns)
            )
        })
    }
}

/// The function that a frame is in, without leading underscores and version: not one that is inlined
/// there.
fn function(view: &FrameView) -> Option<&str> {
    let function = view.named.functions.last()?;
    let name = function.function.split('@').next()?;
    Some(name.trim_start_matches('_'))
}

/// What a thread waits for in this function of a C library.
fn kind_of(name: &str) -> Option<&'static str> {
    let known = FUNCTIONS.iter().find(|(known, _)| *known == name);
    known.map(|(_, kind)| *kind)
}

/// What a thread with this stack waits for.
fn kind(views: &[FrameView]) -> &'static str {
    let functions = views.iter().take(KIND_FRAMES).filter_map(function);
    functions.filter_map(kind_of).next().unwrap_or("futex")
}

/// Whether a thread with this stack waits in a function of a `pthread_mutex_t`, that has called
/// nothing but what calls the kernel.
fn is_in_mutex(views: &[FrameView]) -> bool {
    let own = views.iter().take(PROOF_FRAMES).filter_map(function);
    let mut callers = own.filter(|name| !name.ends_with("lll_lock_wait"));
    callers.next().and_then(kind_of) == Some(MUTEX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use libnsprobe::common::record::Frame;
    use nsprobe_symbolize::SourceFrame;
    use nsprobe_trace::names::named::NamedFrame;
    use std::rc::Rc;

    fn stack(names: &[&str]) -> Vec<FrameView> {
        let view = |name: &&str| FrameView {
            frame: Frame::Object {
                id: 1,
                offset: 1,
                method: 1,
            },
            named: Rc::new(NamedFrame {
                functions: match *name {
                    "" => Vec::new(),
                    name => vec![SourceFrame {
                        function: name.to_owned(),
                        function_offset: None,
                        file: None,
                        line: None,
                        inlined: false,
                    }],
                },
                ..NamedFrame::default()
            }),
        };
        names.iter().map(view).collect()
    }

    #[test]
    fn a_stack_says_what_is_waited_for() {
        for (names, is_mutex, wanted) in [
            (&["", "pthread_mutex_lock", "main"][..], true, MUTEX),
            (
                &["__lll_lock_wait", "___pthread_mutex_lock", "main"],
                true,
                MUTEX,
            ),
            (&["", "__pthread_mutex_timedlock@@GLIBC_2.34"], true, MUTEX),
            // A lock of its own, that a mutex's owner waits for.
            (&["", "own_lock", "pthread_mutex_lock"], false, MUTEX),
            (
                &["syscall", "own_lock", "callback", "pthread_mutex_lock"],
                false,
                MUTEX,
            ),
            (&["", "pthread_mutex_lock_of_mine"], false, "futex"),
            (&["", "", "pthread_cond_wait"], false, CONDITION),
            (&["", "__pthread_clockjoin_ex"], false, JOIN),
            (
                &["futex_wait", "__new_sem_wait_slow64", "__new_sem_wait"],
                false,
                "semaphore",
            ),
            (&[], false, "futex"),
        ] {
            let stack = stack(names);
            assert_eq!(
                (is_in_mutex(&stack), kind(&stack)),
                (is_mutex, wanted),
                "{names:?}"
            );
        }
    }

    #[test]
    fn a_release_is_the_holders_first_since_the_wait_began() {
        let addresses = Addresses::new(nsprobe_worker::Worker::new(
            nsprobe_worker::Options::default(),
        ));
        let mut locks = Locks::new(false, true, addresses);
        let wait = LockWait {
            pid: 0,
            address: 0x10,
            proof: Proof::Word as u64,
            holder: 5,
            began_ns: 100,
        };
        // Before it, by another thread, and of another lock.
        let other = LockWait {
            address: 0x20,
            ..LockWait::default()
        };
        locks.join(&other, Some((110, 5, 1)));
        let unknown = LockWait {
            address: 0x10,
            ..LockWait::default()
        };
        locks.join(&unknown, Some((90, 5, 2)));
        let [_, _, holder, stack] = locks.join(&wait, Some((110, 6, 3)));
        assert_eq!((holder, stack), (5, NONE));
        locks.join(&unknown, Some((130, 5, 4)));
        locks.join(&unknown, Some((120, 5, 5)));
        assert_eq!(locks.join(&wait, None)[3], 5);
        assert_eq!(locks.join(&unknown, None)[1..], [0, 0, NONE]);
    }
}
