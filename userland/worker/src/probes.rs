// SPDX-License-Identifier: MIT OR Apache-2.0
//! What specs need of a file, through a child. The outer error is about the parser, the
//! inner one is what the spec or the file lacks.

use crate::protocol::{Reply, Request};
use crate::sandboxed_binary::SandboxedBinary;
use crate::WorkerError;
use nsprobe_probes::{Listing, ProbeQuery, Probes, Refused};

/// What a file has, or why that is not what was asked for.
type FileAnswer<T> = Result<Result<T, Refused>, WorkerError>;

impl SandboxedBinary {
    /// The probes that a query means in this file and the debug files that are attached to
    /// it. `notes` is what there is to say where debug information is missed; without it
    /// debug files were not looked for, and the answer may be that they are needed.
    pub fn probes(&self, probe_query: &ProbeQuery, notes: Option<&[String]>) -> FileAnswer<Probes> {
        let request = Request::Probes {
            object: self.subject().number,
            probe_query: Box::new(probe_query.clone()),
            notes: notes.map(<[String]>::to_vec),
        };
        match self.ask(&request)? {
            Reply::Probes(Ok(found)) if found.is_sound(probe_query) => Ok(Ok(found)),
            Reply::Probes(Err(Refused::NeedsDebugFiles)) if notes.is_some() => Err(self.distrust()),
            Reply::Probes(Err(why)) => Ok(Err(why)),
            _ => Err(self.distrust()),
        }
    }

    /// The functions from the so-many-th on, and the static probes, that fit a pattern, in this
    /// file and the debug files that are attached to it; `shown` is how errors call the file.
    /// Unless debug files were `searched` for, the answer may be that they are needed.
    pub fn list(
        &self,
        searched: bool,
        shown: &str,
        pattern: Option<&str>,
        from: u64,
    ) -> FileAnswer<Listing> {
        let request = Request::List {
            object: self.subject().number,
            searched,
            shown: shown.to_owned(),
            pattern: pattern.map(str::to_owned),
            from,
        };
        match self.ask(&request)? {
            Reply::Listing(Ok(listing)) if goes_on(&listing, from) => Ok(Ok(listing)),
            Reply::Listing(Err(Refused::NeedsDebugFiles)) if searched => Err(self.distrust()),
            Reply::Listing(Err(why)) => Ok(Err(why)),
            _ => Err(self.distrust()),
        }
    }

    /// The function that holds an address by the file's own count, and the distance from
    /// its beginning; or the type of Go that is described there.
    pub fn function_at(&self, address: u64) -> Result<Option<String>, WorkerError> {
        let request = Request::FunctionAt {
            object: self.subject().number,
            address,
        };
        self.name_of(&request)
    }

    /// The variable that holds an address by the file's own count, and the distance from its
    /// beginning.
    pub fn variable_at(&self, address: u64) -> Result<Option<String>, WorkerError> {
        let request = Request::VariableAt {
            object: self.subject().number,
            address,
        };
        self.name_of(&request)
    }

    fn name_of(&self, request: &Request) -> Result<Option<String>, WorkerError> {
        match self.ask(request)? {
            Reply::NameAt(name) => Ok(name),
            _ => Err(self.distrust()),
        }
    }
}

/// Whether what is there from a function on comes to an end some time.
fn goes_on(listing: &Listing, from: u64) -> bool {
    let is_empty = listing.functions.is_empty();
    listing.next.is_none_or(|next| next > from && !is_empty)
}
