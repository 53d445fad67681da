// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process without privileges that parses the files of containers for us.
//!
//! ELF, DWARF and unwind tables of a container are hostile, and their parsers are large.
//! So they are parsed in a child that can do nothing else: it is the same program, started
//! anew ([`serve`]), gives up whatever it could do (`sandbox.rs`), and is then sent open
//! files and questions over one socket. It can read those files, compute, and answer.
//!
//! What comes back is hostile as well: an attacker in the child can answer anything.
//! Every answer is bounded and checked, and none of them is a path to open, a size to
//! trust or a reason to panic. What a file in the child's hands can spoil is the names, rows
//! and probes that the same child gives for other files, and nothing else: the prober has
//! a child for each file ([`Worker::another`]).
//!
//! A parser that dies or does not answer costs the file that it was asked about
//! ([`Worker`]): that file is asked about no more, and a new child goes on with the others.
#![forbid(unsafe_code)]

mod channel;
mod child;
mod debug;
mod error;
mod filter;
mod generated;
mod parser;
mod probes;
mod process;
mod protocol;
mod quarantine;
mod rows;
mod sandbox;
mod sandboxed_binary;
mod worker;

pub use child::{is_asked_for, serve, serve_with, Parse};
pub use error::{Death, WorkerError};
pub use generated::{Generated, ReadUpTo};
pub use parser::Parser;
pub use process::{ChildLimits, Options, Sandbox};
pub use protocol::{
    Attached, DebugRole, Facts, Failure, Form, GeneratedFile, GeneratedName, Holder, Query, Reply,
    Reported, Request, SharedDebugFile, SourceFrames, SplitUnitMessage,
};
pub use sandbox::enter;
pub use sandboxed_binary::{Answer, SandboxedBinary};
pub use worker::Worker;
