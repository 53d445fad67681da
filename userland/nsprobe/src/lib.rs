// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user-space half of `/dev/nsprobe`: sessions, probes, rings and records.
//!
//! ```no_run
//! use libnsprobe::{Device, Filter, Probe, Reader, SetupOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open()?;
//! let (mut session, mut reader) = device.setup(&SetupOptions::default())?;
//! session.filter(&Filter::pids([1234]))?;
//! let file = std::fs::File::open("/usr/bin/true")?;
//! session.attach(&[Probe::entry(&file, 0x1234).with_stack()])?;
//! session.wait(std::time::Duration::from_secs(1))?;
//! for record in reader.collect(Reader::settled())?.records() {
//!     println!("{record:?}");
//! }
//! # Ok(()) }
//! ```
//!
//! The session owns everything made through it; dropping the [`Session`] and
//! its [`Reader`] (whose mappings hold the open file too) detaches its probes.
//!
//! What the caller must do: run as root, or with `CAP_PERFMON` and
//! `CAP_SYS_PTRACE`; find the file and the offset to probe (crates
//! `nsprobe-containers` and `nsprobe-symbolize`); read the rings often enough.

mod counters;
mod device;
mod error;
mod fdinfo;
mod filter;
mod objects;
mod probe;
mod reader;
mod session;
mod start_gate;
mod sys;
mod table;
mod tasks;
mod unwind;

pub use counters::Counters;
pub use device::{Device, Features, Info, SetupOptions};
pub use error::{Error, Result};
pub use fdinfo::{sessions, ProbeStatus, SessionStatus};
pub use filter::Filter;
pub use nsprobe_common as common;
pub use objects::{Objects, Stacks};
pub use probe::{CallId, HitLimits, Probe, ProgramId, Sink};
pub use reader::{Batch, Copied, Ordered, Reader, SETTLE_NS};
pub use session::{Detacher, ProbeId, Session};
pub use start_gate::{HeldProgram, HoldReport, StartGate};
pub use table::{Rows, Table, TableId, TableKind, TableRow, TableSpec};
pub use tasks::{CpuTimes, DumpOptions, TaskCounters, TaskDump, TaskOptions};
pub use unwind::{UnwindRows, Unwinder};
