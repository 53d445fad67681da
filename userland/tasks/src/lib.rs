// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks over time, from the kernel's records of them.
//!
//! [`Tasks`] takes the answers to a dump and the records of the rings, in any order that
//! keeps each of both streams, and knows which threads live, and what each was at a moment:
//! its name, its control group, its namespaces, its program ([`Task`]). A thread is named by
//! its number in the opener's pid namespace and its start time ([`TaskId`]), as numbers come
//! back.
//!
//! What decides is the time of a record, not when it came. Losses are reported, not smoothed
//! over: a thread whose fork is missing is [`Origin::Late`], one whose end is missing ends
//! with what shows that it is gone ([`EndCause`]).
//!
//! # Parents
//!
//! A record tells the parent of its moment. When that parent ends, the kernel chooses
//! another: the nearest ancestor that asked for it (`PR_SET_CHILD_SUBREAPER`), or the
//! namespace's first process. Which one asked cannot be told from records, so no new parent
//! is guessed: [`Tasks::parent`] says [`Parent::Ended`] until a record tells.
//!
//! Pure: no I/O, no unsafe code, bounded memory ([`HistoryLimits`]).
#![forbid(unsafe_code)]

mod history;
mod task;
mod tasks;
#[cfg(test)]
mod testing;
mod tree;

pub use history::{Change, History};
pub use task::{comm_of, End, EndCause, Namespaces, Origin, Program, Task, TaskId, Times};
pub use tasks::{HistoryLimits, Parent, Tasks};
pub use tree::{PidNamespace, Tree};
