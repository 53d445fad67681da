// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the names of containers in a thread of its own, which all of a process share: that takes a
//! look at processes and at files, and the rings must not wait for it.

use super::{LivePlaces, NamedContainer, Places};
use anyhow::Context;
use libnsprobe::Reader;
use lru::LruCache;
use nix::sys::signal::{SigSet, SigmaskHow};
use nsprobe_containers::PidSpace;
use std::mem::take;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// After which times it is looked for a container: its runtime may write its files after
/// its first process has started.
const LOOKS: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(4),
];
/// The root of all control groups, which is no container's.
const ROOT_GROUP: u64 = 1;
/// How many times as long as a look takes the thread rests: a program that makes namespaces in a loop
/// costs at most a twentieth of a CPU.
const RESTS: u32 = 19;
/// Most containers that are looked for at a time; others get no name.
const PENDING_MAX: usize = 1 << 16;
/// Most containers that are remembered; the least recently used one is forgotten first.
pub(crate) const CONTAINERS_MAX: NonZeroUsize = match NonZeroUsize::new(1 << 14) {
    Some(most) => most,
    None => NonZeroUsize::MIN,
};

/// Identifies a container by the data of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ContainerKey {
    /// The control group; zero for one that is not known.
    pub(crate) cgroup: u64,
    /// The pid namespace; none for our own.
    pub(crate) pid_namespace: PidSpace,
}

/// A container that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundContainer {
    pub(crate) key: ContainerKey,
    pub(crate) known: NamedContainer,
    /// When, in the clock of the records.
    pub(crate) time_ns: u64,
}

/// Asks for the names of containers, once for each.
pub(crate) struct Namer {
    search: Arc<NameSearch>,
    client: u64,
    answers: Option<Sender<FoundContainer>>,
    found: Receiver<FoundContainer>,
    asked: LruCache<ContainerKey, ()>,
}

impl Namer {
    pub(crate) fn start() -> anyhow::Result<Namer> {
        let (answers, found) = mpsc::channel();
        let search = NameSearch::shared()?;
        Ok(Namer {
            client: search.clients.fetch_add(1, Ordering::Relaxed),
            search,
            answers: Some(answers),
            found,
            asked: LruCache::new(CONTAINERS_MAX),
        })
    }

    /// A task was seen there.
    pub(crate) fn want(&mut self, key: ContainerKey) {
        let is_nowhere = key.cgroup <= ROOT_GROUP && key.pid_namespace.id == 0;
        if !is_nowhere && self.asked.put(key, ()).is_none() {
            self.ask(Some(key));
        }
    }

    fn ask(&self, key: Option<ContainerKey>) {
        if let Some(answers) = self.answers.clone() {
            // When the thread is gone, there are no names.
            let _ = self.search.requests.send(NameRequest {
                client: self.client,
                key,
                answers,
            });
        }
    }

    /// Names found meanwhile.
    pub(crate) fn found(&mut self) -> Vec<FoundContainer> {
        self.found.try_iter().collect()
    }

    /// Has what is missing looked for once more; the rest of what is found.
    pub(crate) fn finish(&mut self) -> Vec<FoundContainer> {
        self.ask(None);
        self.answers = None;
        // Until the search has given its answers back.
        self.found.iter().collect()
    }
}

/// The search that all of this process share.
struct NameSearch {
    requests: Sender<NameRequest>,
    clients: AtomicU64,
}

/// What a client asks for: a container, or, before it ends, the last look for its others.
struct NameRequest {
    client: u64,
    key: Option<ContainerKey>,
    answers: Sender<FoundContainer>,
}

impl NameSearch {
    /// The thread ends with its last client.
    fn shared() -> anyhow::Result<Arc<NameSearch>> {
        static SHARED: Mutex<Weak<NameSearch>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(search) = shared.upgrade() {
            return Ok(search);
        }
        let (requests, asked) = mpsc::channel();
        let thread = thread::Builder::new().name("names".to_owned());
        // It has our signals blocked from its first instruction on: they are for the thread that
        // waits for them, and here would end the program.
        let ours = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let thread = thread.spawn(move || ContainerSearch::new().run(&asked));
        ours.thread_set_mask()?;
        thread.context("cannot start a thread")?;
        let search = Arc::new(NameSearch {
            requests,
            clients: AtomicU64::new(0),
        });
        *shared = Arc::downgrade(&search);
        Ok(search)
    }
}

/// A container that is looked for.
struct PendingName {
    request: NameRequest,
    key: ContainerKey,
    looks: usize,
    /// When it is looked for next.
    due: Instant,
}

impl PendingName {
    /// Sends the name, if there is one; returns whether there is.
    fn is_done(&self, places: &LivePlaces) -> bool {
        let key = self.key;
        let Some(known) = places.container(key.cgroup, key.pid_namespace.id) else {
            return false;
        };
        let found = FoundContainer {
            key,
            known: (*known).clone(),
            time_ns: Reader::now(),
        };
        // A client that has gone needs no names.
        let _ = self.request.answers.send(found);
        true
    }
}

/// State of the thread.
struct ContainerSearch {
    places: LivePlaces,
    pending: Vec<PendingName>,
    /// When it has rested from its last look.
    rested: Instant,
}

impl ContainerSearch {
    fn new() -> ContainerSearch {
        ContainerSearch {
            places: LivePlaces::default(),
            pending: Vec::new(),
            rested: Instant::now(),
        }
    }

    fn run(&mut self, asked: &Receiver<NameRequest>) {
        loop {
            let due = self.pending.iter().map(|one| one.due).min();
            let due = due.map(|due| due.max(self.rested));
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            let request = match left {
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(left) => asked.recv_timeout(left),
            };
            let first = match request {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut ending = Vec::new();
            for request in first.into_iter().chain(asked.try_iter()) {
                match request.key {
                    None => ending.push(request),
                    Some(key) if self.pending.len() < PENDING_MAX => {
                        self.pending.push(PendingName {
                            request,
                            key,
                            looks: 0,
                            due: Instant::now() + LOOKS[0],
                        })
                    }
                    Some(_) => {}
                }
            }
            self.look(&ending);
        }
    }

    /// Looks for what is due, and for all that is left of the clients that end.
    fn look(&mut self, ending: &[NameRequest]) {
        let begun = Instant::now();
        let is_last = |one: &PendingName| ending.iter().any(|end| end.client == one.request.client);
        let is_due = |one: &PendingName| (one.due.max(self.rested) <= begun) || is_last(one);
        let (mut due, later) = take(&mut self.pending).into_iter().partition(is_due);
        self.pending = later;
        if due.is_empty() {
            return;
        }
        let keys: Vec<ContainerKey> = due.iter().map(|one| one.key).collect();
        // A look at all takes long, and the runtime may not have written its files yet.
        let takes_all = due.iter().any(|one| one.looks > 0 || is_last(one));
        let mut is_sure = self.places.look_for(&keys);
        if !is_sure && takes_all {
            // What cannot be read names nothing.
            let _ = self.places.refresh();
            is_sure = true;
        }
        due.retain_mut(|one| {
            one.looks += 1;
            let next = LOOKS.get(one.looks).filter(|_| !is_last(one));
            one.due = begun + next.copied().unwrap_or_default();
            let is_done = is_sure && one.is_done(&self.places);
            next.is_some() && !is_done
        });
        self.pending.append(&mut due);
        let now = Instant::now();
        self.rested = now + (now - begun) * RESTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_ends_takes_its_own_requests_along() {
        let request = |client, key| {
            let (answers, found) = mpsc::channel();
            let request = NameRequest {
                client,
                key,
                answers,
            };
            (request, found)
        };
        let key = ContainerKey {
            cgroup: 0,
            pid_namespace: PidSpace {
                id: u64::MAX,
                inum: 0,
            },
        };
        let mut search = ContainerSearch::new();
        let (mine, my_names) = request(1, Some(key));
        let (others, _other_names) = request(2, Some(key));
        for request in [mine, others] {
            search.pending.push(PendingName {
                request,
                key,
                looks: 0,
                due: Instant::now() + Duration::from_secs(3600),
            });
        }
        search.look(&[request(1, None).0]);
        // Nobody is left who could send one.
        assert_eq!(my_names.recv(), Err(mpsc::RecvError));
        let left: Vec<u64> = search
            .pending
            .iter()
            .map(|one| one.request.client)
            .collect();
        assert_eq!(left, [2]);
    }

    #[test]
    fn all_clients_share_one_search() {
        let namers = [Namer::start().unwrap(), Namer::start().unwrap()];
        assert!(Arc::ptr_eq(&namers[0].search, &namers[1].search));
        assert_ne!(namers[0].client, namers[1].client);
    }
}
