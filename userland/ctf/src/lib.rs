// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes traces of the Common Trace Format, version 1.8 (CTF, <https://diamon.org/ctf/v1.8.3/>),
//! laid out as those of LTTng's kernel tracer, lttng-modules.
//!
//! [`Trace`] is the writer: a folder with the text `metadata`, which says what events look
//! like, and one stream of packets for each channel and CPU. It shows up under its name when
//! it is finished, and not before. [`kernel`] has the events of lttng-modules that tell of
//! tasks.
//!
//! Numbers are little-endian, and everything is aligned to bytes, as lttng-modules does on
//! x86. Text comes from traced programs: it is escaped here, whatever the caller did.
#![forbid(unsafe_code)]

mod encode;
mod error;
mod folder;
pub mod kernel;
mod packet;
mod pending;
mod streams;
mod trace;
mod tsdl;
mod types;

pub use error::CtfError;
pub use trace::{Description, EnvironmentValue, Totals, Trace, UNKNOWN_OFFSET};
pub use types::{Channel, ChannelId, EventClass, EventId, Field, FieldNames, Type, Value};
