// SPDX-License-Identifier: GPL-2.0-only
//! The description of a task in records of events and of the dump.

use crate::{
    common::{
        record::body_of,
        task::{
            TaskLevel,
            TaskRecord,
            TASK_BARE,
            TASK_ENDING,
            TASK_KERNEL,
            TASK_LEVELS_MAX,
            TASK_ZOMBIE, //
        }, //
    },
    filter::SessionOwner,
    sys::{
        any_task::{AnyTask, Look},
        scratch::Words, //
    }, //
};
use zerocopy::{transmute, transmute_ref};

const TASK_WORDS: usize = size_of::<TaskRecord>() / 8;
const LEVEL_WORDS: usize = size_of::<TaskLevel>() / 8;

/// The levels of a task and of its maker. Separate from the rest, so that they are not copied
/// around: they are a thousand bytes, of which most tasks use few.
pub(crate) type Levels = Words<{ 2 * LEVEL_WORDS * TASK_LEVELS_MAX }>;

/// A task at one moment.
pub(crate) struct Described {
    pub(crate) record: TaskRecord,
    /// Its process id in the session owner's pid namespace.
    pub(crate) pid: u32,
}

impl Described {
    /// Describes `task` as the session owner sees it, and puts its levels into `levels`, which are
    /// empty; `None` if the owner does not see it.
    pub(crate) fn new(
        session_owner: &SessionOwner,
        task: &AnyTask<'_>,
        how: Look,
        now_ns: u64,
        levels: &mut Levels,
    ) -> Option<Self> {
        let (count, outer) = put_levels(levels, session_owner, task);
        let pid = outer?.pid;
        let namespaces = task.namespaces(how);
        let (user_ns, system_ns) = task.times();
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let record = TaskRecord {
            time_ns: now_ns,
            start_ns: task.start_ns(),
            cpu_ns: task.cpu_ns(),
            user_ns,
            system_ns,
            cgroup: task.cgroup_id(),
            levels: count,
            flags: flag(task.is_kernel(), TASK_KERNEL)
                | flag(task.is_ending(), TASK_ENDING)
                | flag(task.is_zombie(), TASK_ZOMBIE)
                | flag(namespaces.is_bare, TASK_BARE),
            cpu: task.cpu(),
            uid: task.uid(),
            priority: task.priority(),
            namespaces: namespaces.inums,
            comm: task.comm(),
            ..TaskRecord::default()
        };
        Some(Described { record, pid })
    }

    /// Adds the task that made it.
    pub(crate) fn add_maker(
        &mut self,
        session_owner: &SessionOwner,
        maker: &AnyTask<'_>,
        levels: &mut Levels,
    ) {
        (self.record.parent_levels, _) = put_levels(levels, session_owner, maker);
    }

    /// Passes the words after the header, without the levels and the arguments, to `put`.
    pub(crate) fn with_words<R>(&self, put: impl FnOnce(&[u64]) -> R) -> R {
        let words: &[u64; TASK_WORDS] = transmute_ref!(&self.record);
        put(body_of(words))
    }

    /// Words of the record, with its header, before the levels.
    pub(crate) const WORDS: usize = TASK_WORDS;
}

/// Appends the levels of a task; returns their number and the first.
fn put_levels(
    levels: &mut Levels,
    session_owner: &SessionOwner,
    task: &AnyTask<'_>,
) -> (u8, Option<TaskLevel>) {
    let (mut count, mut outer) = (0u8, None);
    task.levels(session_owner.namespace(), |level| {
        let words: [u64; LEVEL_WORDS] = transmute!(level);
        if levels.extend(&words) {
            count = count.wrapping_add(1);
            outer = outer.or(Some(level));
        }
    });
    (count, outer)
}
