// SPDX-License-Identifier: GPL-2.0-only
//! What a session wants to know of tasks: one request takes the place of the one before.

use crate::{
    common::abi::{TASKS_CPU, TASKS_UNFILTERED},
    context::Context,
    sys::{
        memory::GFP_REQUEST,
        task_points::Listening, //
    },
    tasks::{
        cpu_times::CpuTable,
        events::TaskEvents, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A request that has been checked.
pub(crate) struct Wanted {
    /// `TASKS_*`.
    pub(crate) flags: u32,
    /// Most bytes of arguments.
    pub(crate) args_bytes: u32,
    /// Rows of CPU times for each CPU.
    pub(crate) cpu_rows: u32,
}

/// Why a request failed.
pub(crate) enum Failed {
    /// The kernel does not tell of these `TASKS_*`.
    Missing(u32),
    /// Another reason.
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Error(error)
    }
}

/// Events on their way to a session. What listens goes first.
struct Running {
    listening: Listening,
    events: Arc<TaskEvents>,
}

/// A session's part in tasks.
pub(crate) struct TaskTrace(Option<Running>);

impl TaskTrace {
    /// Nothing is wanted.
    pub(crate) fn new() -> Self {
        TaskTrace(None)
    }

    /// The events, once some were wanted.
    pub(crate) fn events(&self) -> Option<Arc<TaskEvents>> {
        self.0.as_ref().map(|running| running.events.clone())
    }

    /// Wants this from now on. Task context, sleeps.
    pub(crate) fn set(&mut self, context: &Arc<Context>, wanted: &Wanted) -> Result<(), Failed> {
        let Running { listening, events } = self.running(context)?;
        let before = events.flags();
        let flags = wanted.flags | before & TASKS_CPU;
        if flags & TASKS_CPU != 0 && events.cpu_times.as_ref().is_none() {
            let table = CpuTable::new(wanted.cpu_rows as usize)?;
            events.cpu_times.populate(table);
        }
        events.set_args(wanted.args_bytes)?;
        // What ends does so before its tracepoint goes, and what begins after it has come.
        events.set_flags(before & (flags | TASKS_UNFILTERED));
        if let Err((error, missing)) = listening.want(flags & !TASKS_UNFILTERED) {
            events.set_flags(before);
            // Without memory nothing is said of what the kernel has.
            return Err(if error == ENOMEM {
                Failed::Error(error)
            } else {
                Failed::Missing(missing)
            });
        }
        events.set_flags(flags);
        if let (0, Some(table)) = (before & TASKS_CPU, events.cpu_times.as_ref()) {
            // Those that run now, and may for hours without a switch.
            if flags & TASKS_CPU != 0 {
                table.settle();
            }
        }
        Ok(())
    }

    fn running(&mut self, context: &Arc<Context>) -> Result<&mut Running> {
        let running = match self.0.take() {
            Some(running) => running,
            None => {
                let events = TaskEvents::new(context.clone())?;
                let events = Arc::new(events, GFP_REQUEST)?;
                Running {
                    listening: Listening::new(events.clone())?,
                    events,
                }
            }
        };
        Ok(self.0.insert(running))
    }
}
