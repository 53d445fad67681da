// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of the containers that hits come from, while a trace runs.

use super::{Key, LivePlaces, Namer};
use nsprobe_target::Process;
use std::collections::HashMap;

/// Knows containers by the pid namespaces of hits. Those that start later are looked for by a
/// thread of their own: their first hits may be printed before there is a name.
pub(crate) struct HitNames {
    /// Our own pid namespace, which is no container's.
    own: u32,
    names: HashMap<u32, String>,
    namer: Namer,
}

impl HitNames {
    /// With the containers that run now.
    pub(crate) fn start() -> anyhow::Result<HitNames> {
        let mut places = LivePlaces::default();
        places.refresh()?;
        Ok(HitNames {
            own: Process::open(std::process::id())?.pid_namespace()?,
            names: places.namespaces(),
            namer: Namer::start()?,
        })
    }

    /// The name of the container of a pid namespace. Not escaped.
    pub(crate) fn name(&mut self, pid_namespace: u32) -> Option<String> {
        if pid_namespace == self.own || pid_namespace == 0 {
            return None;
        }
        if !self.names.contains_key(&pid_namespace) {
            self.namer.want(Key {
                cgroup: 0,
                pid_namespace,
            });
            let found = self.namer.found().into_iter();
            let found = found.map(|found| (found.key.pid_namespace, found.known.name));
            self.names.extend(found);
        }
        self.names.get(&pid_namespace).cloned()
    }
}
