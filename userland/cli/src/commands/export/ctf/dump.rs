// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tasks that were there when a recording began.

use libnsprobe::common::record::Record;
use libnsprobe::common::task::TASK_ALIVE;
use nsprobe_capsule::CapsuleReader;
use std::fs::File;

/// The times of the first and the last of them; none when there is no dump.
pub(super) fn span(reader: &mut CapsuleReader<File>) -> anyhow::Result<Option<(u64, u64)>> {
    let mut span: Option<(u64, u64)> = None;
    reader.each_task_before(|record| -> anyhow::Result<()> {
        if let Record::Task(task, _) = record {
            if task.what == TASK_ALIVE {
                let (first, last) = span.unwrap_or((task.time_ns, task.time_ns));
                span = Some((first.min(task.time_ns), last.max(task.time_ns)));
            }
        }
        Ok(())
    })?;
    Ok(span)
}
