// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers what specs need of a file, in the child.

use super::Parser;
use crate::protocol::{reason, Failure, Reply, CAUSES_MAX};
use nsprobe_probes::{DebugFiles, ProbeQuery, Refused};

impl Parser {
    pub(super) fn probes(
        &self,
        object: u32,
        probe_query: &ProbeQuery,
        notes: Option<&[String]>,
    ) -> Result<Reply, Failure> {
        let held = self.held(object)?;
        let files = notes.map(|notes| DebugFiles {
            set: &held.debug,
            notes,
        });
        let found = nsprobe_probes::plan(&held.binary, files, probe_query);
        Ok(Reply::Probes(found.map_err(short)))
    }

    pub(super) fn list(
        &self,
        object: u32,
        searched: bool,
        shown: &str,
        pattern: Option<&str>,
        from: u64,
    ) -> Result<Reply, Failure> {
        let held = self.held(object)?;
        let files = searched.then_some(&held.debug);
        let listing = nsprobe_probes::list(&held.binary, files, shown, pattern, from);
        Ok(Reply::Listing(listing.map_err(short)))
    }

    pub(super) fn function_at(&self, object: u32, address: u64) -> Result<Reply, Failure> {
        let name = nsprobe_probes::function_at(&self.held(object)?.binary, address);
        Ok(Reply::NameAt(name.map(|name| reason(&name))))
    }

    pub(super) fn variable_at(&self, object: u32, address: u64) -> Result<Reply, Failure> {
        let name = nsprobe_probes::variable_at(&self.held(object)?.binary, address);
        Ok(Reply::NameAt(name.map(|name| reason(&name))))
    }
}

/// A refusal that is not longer than it may be.
fn short(why: Refused) -> Refused {
    match why {
        Refused::NeedsDebugFiles => Refused::NeedsDebugFiles,
        Refused::Spec(mut error) => {
            error.message = reason(&error.message);
            Refused::Spec(error)
        }
        Refused::Because(causes) => {
            let causes = causes.iter().take(CAUSES_MAX);
            Refused::Because(causes.map(reason).collect())
        }
    }
}
