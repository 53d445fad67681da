// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a trace could not be written.

use std::path::PathBuf;

/// Why a trace could not be written. Nothing is left of it then.
#[derive(Debug, thiserror::Error)]
pub enum CtfError {
    /// Something has the trace's name already.
    #[error("{0} exists: a trace needs a folder of its own")]
    Exists(PathBuf),
    /// The name has no last part, as `/` and `..` have none.
    #[error("{0} is no name for a new folder")]
    NoName(PathBuf),
    /// The file system refused.
    #[error("cannot write {path}: {source}")]
    Io {
        /// The path that could not be written.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// There are more CPUs than Linux has: what says so is damaged.
    #[error("there are events of more than {0} CPUs: what they come from is damaged")]
    TooManyCpus(usize),
    /// Events were given in no order at all.
    #[error("events of CPU {0} are in no order: what they come from is damaged")]
    Disorder(u32),
    /// A value is none of its field's type.
    #[error("the event {event} has no such {field}")]
    Mismatch {
        /// The class.
        event: String,
        /// The field.
        field: String,
    },
    /// There is no such class of events.
    #[error("no such class of events")]
    NoClass,
}

impl CtfError {
    /// The same of the folder that the user named, which has another name meanwhile.
    pub(crate) fn of(self, destination: &std::path::Path) -> CtfError {
        match self {
            CtfError::Io { source, .. } => CtfError::at(destination)(source),
            error => error,
        }
    }

    /// A refusal at `path`.
    pub(crate) fn at(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> CtfError + '_ {
        move |source| CtfError::Io {
            path: path.to_owned(),
            source,
        }
    }
}
