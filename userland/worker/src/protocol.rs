// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a child is asked and what it answers, as postcard's encoding of serde's types.
//! Both sides are the same program: there are no versions.

mod debug;
mod generated;

pub use debug::{
    Attached, DebugRole, Form, Holder, SharedDebugFile, SourceFrames, SplitUnitMessage,
};
pub(crate) use debug::{FAILURES_MAX, UNITS_BYTES_MAX, UNITS_MAX};
pub use generated::{GeneratedFile, GeneratedName};

use nsprobe_probes::{Listing, ProbeQuery, Probes, Refused};
use nsprobe_symbolize::{FileOffset, Lookup, Segment, Unresolved};
use nsprobe_unwind::{Digest, Input};
use serde::{Deserialize, Serialize};

/// Most bytes of a request: all that describes the frames of a file.
pub(crate) const REQUEST_BYTES_MAX: usize = 1 << 30;
/// Most bytes of an answer with what describes the frames of a file.
pub(crate) const INPUT_BYTES_MAX: usize = 1 << 30;
/// Most bytes of an answer with unwind rows.
pub(crate) const TABLE_BYTES_MAX: usize = 128 << 20;
/// Most bytes of an answer with probes or functions.
pub(crate) const PROBES_BYTES_MAX: usize = 256 << 20;
/// Most bytes of any other answer.
pub(crate) const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Most queries of one request.
pub(crate) const QUERIES_MAX: usize = 512;
/// Most frames at one offset.
const FRAMES_MAX: usize = 512;
/// Most parts that a file is loaded in.
const SEGMENTS_MAX: usize = 256;
/// Longest build-id, in bytes.
const BUILD_ID_BYTES_MAX: usize = 64;
/// Most causes of a refusal.
pub(crate) const CAUSES_MAX: usize = 16;
/// Longest spec, in bytes.
const SPEC_BYTES_MAX: usize = 1 << 20;
/// Longest reason, in bytes: a path and a sentence.
const REASON_BYTES_MAX: usize = 8 << 10;

/// A question.
#[derive(Debug, Deserialize, Serialize)]
pub enum Request {
    /// Reads a file that comes with it; it has this number from now on.
    Open {
        /// The number.
        object: u32,
        /// How errors call it: bytes of a path.
        label: Vec<u8>,
        /// As what it is read.
        form: Form,
    },
    /// Takes debug files of a program that come with it, besides those that it has.
    Attach {
        /// The program's number.
        object: u32,
        /// The files.
        files: Vec<Attached>,
    },
    /// Whether a file holds the debug information of a program.
    Check {
        /// The program's number.
        program: u32,
        /// The file's.
        object: u32,
    },
    /// The units whose DWARF is elsewhere.
    SplitUnits {
        /// The number.
        object: u32,
    },
    /// What is at some offsets.
    Resolve {
        /// The number.
        object: u32,
        /// The offsets.
        queries: Vec<Query>,
    },
    /// The probes that a query means in a program.
    Probes {
        /// The number.
        object: u32,
        /// The query.
        probe_query: Box<ProbeQuery>,
        /// What there is to say where debug information is missed; none when debug files
        /// were not looked for.
        notes: Option<Vec<String>>,
    },
    /// Functions and static probes of a program, and its debug files when it has any.
    List {
        /// The number.
        object: u32,
        /// Whether debug files were looked for; else the answer may be that they are needed.
        searched: bool,
        /// How errors call it.
        shown: String,
        /// A glob, or a part of the name; none for all.
        pattern: Option<String>,
        /// From which function on.
        from: u64,
    },
    /// The function that holds an address by the file's own count, or the type of Go that is
    /// described there.
    FunctionAt {
        /// The number.
        object: u32,
        /// The address.
        address: u64,
    },
    /// The variable that holds an address by the file's own count.
    VariableAt {
        /// The number.
        object: u32,
        /// The address.
        address: u64,
    },
    /// The unwind rows of a file.
    Rows {
        /// The number.
        object: u32,
        /// Whether they are kept on disk, if they are worth it: then the answer is the name of
        /// what they are computed from.
        to_keep: bool,
        /// Whether debug files were looked for; else the answer may be that they are needed.
        searched: bool,
    },
    /// What the unwind rows of a file are computed from.
    Input {
        /// The number.
        object: u32,
    },
    /// The unwind rows that come of this.
    Compile {
        /// What they are computed from.
        input: Input,
    },
    /// Continues to read a file that is sent along, and reports generated code.
    ReadGenerated {
        /// Which file.
        kind: GeneratedFile,
        /// From where on, in bytes.
        from: u64,
        /// To where.
        to: u64,
    },
    /// What is at an address of generated code.
    Generated {
        /// The address.
        address: u64,
        /// When (CLOCK_MONOTONIC, in nanoseconds).
        time_ns: u64,
    },
    /// Lets a file go.
    Close {
        /// The number.
        object: u32,
    },
}

/// A place in a file.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Query {
    /// The place.
    pub offset: FileOffset,
    /// How it came about.
    pub lookup: Lookup,
}

/// What is at a place.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Reported {
    /// Its source frames, or why there are none.
    pub found: Result<SourceFrames, Unresolved>,
    /// Whether a call may end there; none when it is not in code.
    pub is_after_call: Option<bool>,
    /// Where the function begins that it is in, if that has no name and a frame.
    pub function_start: Option<FileOffset>,
}

/// What is known of a file as a whole.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The build-id that it claims.
    pub build_id: Option<Vec<u8>>,
    /// Whether it names any function.
    pub has_symbols: bool,
    /// Whether it holds DWARF.
    pub has_debug_info: bool,
    /// Whether it names functions or lines that a program without them could use.
    pub has_debug_names: bool,
    /// The name that its debug link says.
    pub debug_link: Option<Vec<u8>>,
    /// What it shares with other debug files.
    pub supplementary: Option<SharedDebugFile>,
    /// The parts that are loaded into memory.
    pub segments: Vec<Segment>,
}

/// Why a question has no answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Failure {
    /// The file cannot be used: the parser's own words.
    Refused(String),
    /// The parser panicked.
    Panicked,
    /// There is no file with this number.
    UnknownObject,
    /// The sandbox could not be entered: no questions are taken.
    NoSandbox(String),
}

/// An answer.
#[derive(Debug, Deserialize, Serialize)]
pub enum Reply {
    /// Privileges are gone: the first thing that is said.
    Ready,
    /// To `Open`.
    Opened(Facts),
    /// To `Attach`.
    Attached,
    /// To `Check`: why it does not.
    Checked(Result<(), String>),
    /// To `SplitUnits`; or why they cannot be listed.
    SplitUnits(Result<Vec<SplitUnitMessage>, String>),
    /// To `Resolve`.
    Answers {
        /// In the same order: of the first, at least, and of all unless that took long.
        answers: Vec<Reported>,
        /// Why debug files could not be used, if there are more reasons than last time.
        failures: Option<Vec<String>>,
    },
    /// To `Probes`: what comes of the query.
    Probes(Result<Probes, Refused>),
    /// To `List`.
    Listing(Result<Listing, Refused>),
    /// To `FunctionAt` and `VariableAt`.
    NameAt(Option<String>),
    /// To `Rows`: its debug files may describe more.
    RowsNeedDebugFiles,
    /// To `ReadGenerated`.
    ReadGenerated {
        /// Up to where it was read, in bytes.
        to: u64,
        /// Whether that is all.
        is_all: bool,
        /// Pieces without room, in all.
        left_out: u64,
    },
    /// To `Generated`.
    Generated(GeneratedName),
    /// To `Rows` and `Compile`: [`nsprobe_unwind::UnwindTable::to_bytes`].
    Table(#[serde(with = "serde_bytes")] Vec<u8>),
    /// To `Rows`: those of this input are kept.
    Kept(Digest),
    /// To `Input`.
    Input(Input),
    /// To `Close`.
    Closed,
    /// To everything.
    Failed(Failure),
}

impl Reply {
    /// Whether all that is said is within what a sound child would say. Its numbers and
    /// texts may still be wrong.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            Reply::Opened(facts) => facts.is_sound(),
            Reply::Answers { answers, failures } => {
                let failures = failures.as_deref().unwrap_or_default();
                answers.iter().all(Reported::is_sound)
                    && failures.len() <= FAILURES_MAX
                    && failures.iter().all(|why| is_short(why))
            }
            Reply::SplitUnits(Ok(units)) => {
                units.len() <= UNITS_MAX && units.iter().all(SplitUnitMessage::is_sound)
            }
            Reply::Failed(Failure::Refused(why) | Failure::NoSandbox(why))
            | Reply::Checked(Err(why))
            | Reply::SplitUnits(Err(why)) => is_short(why),
            Reply::NameAt(name) => name.as_deref().is_none_or(is_short),
            Reply::Probes(Err(why)) | Reply::Listing(Err(why)) => is_sound_refusal(why),
            // The reader checks these.
            Reply::Table(_) | Reply::Input(_) => true,
            Reply::Probes(Ok(_)) | Reply::Listing(Ok(_)) => true,
            Reply::Generated(name) => name.is_sound(),
            // It is compared with what was asked.
            Reply::ReadGenerated { .. } => true,
            // Under another one's name it finds rows that it could make up as well.
            Reply::Kept(_) => true,
            Reply::Ready | Reply::Closed | Reply::Attached | Reply::RowsNeedDebugFiles => true,
            Reply::Checked(Ok(())) | Reply::Failed(_) => true,
        }
    }
}

impl Facts {
    fn is_sound(&self) -> bool {
        let id = self.build_id.as_deref();
        self.segments.len() <= SEGMENTS_MAX
            && id.is_none_or(|id| (1..=BUILD_ID_BYTES_MAX).contains(&id.len()))
            && self.debug_link.as_deref().is_none_or(debug::is_link)
            && self
                .supplementary
                .as_ref()
                .is_none_or(SharedDebugFile::is_sound)
    }
}

impl Reported {
    fn is_sound(&self) -> bool {
        let Ok(found) = &self.found else {
            return true;
        };
        (1..=FRAMES_MAX).contains(&found.frames.len()) && found.note.as_deref().is_none_or(is_short)
    }
}

fn is_sound_refusal(why: &Refused) -> bool {
    match why {
        Refused::NeedsDebugFiles => true,
        Refused::Spec(error) => {
            let span = &error.span;
            span.start <= span.end && span.end <= SPEC_BYTES_MAX && is_short(&error.message)
        }
        Refused::Because(causes) => {
            (1..=CAUSES_MAX).contains(&causes.len()) && causes.iter().all(|why| is_short(why))
        }
    }
}

fn is_short(text: &str) -> bool {
    text.len() <= REASON_BYTES_MAX
}

/// A message as bytes; none when memory is short.
pub(crate) fn encode(message: &impl Serialize) -> Option<Vec<u8>> {
    postcard::to_stdvec(message).ok()
}

/// The message that bytes are; none when they are something else, or more.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// A reason that is not longer than it may be.
pub(crate) fn reason(why: &impl ToString) -> String {
    let mut why = why.to_string();
    let end = (0..=REASON_BYTES_MAX.min(why.len()))
        .rev()
        .find(|&at| why.is_char_boundary(at));
    why.truncate(end.unwrap_or(0));
    why
}

#[cfg(test)]
mod tests;
