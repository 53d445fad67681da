// SPDX-License-Identifier: GPL-2.0-only
//! A session's request for task events and CPU times; a new request replaces the previous one.

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

/// A request that was checked.
pub(crate) struct Wanted {
    /// `TASKS_*`.
    pub(crate) flags: u32,
    /// The maximum number of bytes of arguments.
    pub(crate) args_bytes: u32,
    /// Rows for CPU times on each CPU.
    pub(crate) cpu_rows: u32,
}

/// Why a request failed.
pub(crate) enum Failed {
    /// The kernel lacks the tracepoints for these `TASKS_*`.
    Missing(u32),
    /// Another reason.
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Error(error)
    }
}

/// Events that are being delivered to a session. The listeners are dropped first.
struct Running {
    listening: Listening,
    events: Arc<TaskEvents>,
}

/// The task events of a session, if any.
pub(crate) struct TaskTrace(Option<Running>);

impl TaskTrace {
    /// Without a request.
    pub(crate) fn new() -> Self {
        TaskTrace(None)
    }

    /// The events, once some were requested.
    pub(crate) fn events(&self) -> Option<Arc<TaskEvents>> {
        self.0.as_ref().map(|running| running.events.clone())
    }

    /// Applies a request. Task context, sleeps.
    pub(crate) fn set(&mut self, context: &Arc<Context>, wanted: &Wanted) -> Result<(), Failed> {
        let Running { listening, events } = self.running(context)?;
        let before = events.flags();
        let flags = wanted.flags | before & TASKS_CPU;
        if flags & TASKS_CPU != 0 && events.cpu_times.as_ref().is_none() {
            let table = CpuTable::new(wanted.cpu_rows as usize)?;
            events.cpu_times.populate(table);
        }
        events.set_args(wanted.args_bytes)?;
        // Events stop before their tracepoint is removed, and start after it was added.
        events.set_flags(before & (flags | TASKS_UNFILTERED));
        if let Err((error, missing)) = listening.want(flags & !TASKS_UNFILTERED) {
            events.set_flags(before);
            // An allocation failure says nothing about the kernel's tracepoints.
            return Err(if error == ENOMEM {
                Failed::Error(error)
            } else {
                Failed::Missing(missing)
            });
        }
        events.set_flags(flags);
        if let (0, Some(table)) = (before & TASKS_CPU, events.cpu_times.as_ref()) {
            // Count the tasks that run now: they may run for hours without a switch.
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
