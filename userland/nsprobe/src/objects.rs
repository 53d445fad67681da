// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the objects of a session are, by announcement or by asking.

use crate::error::Result;
use crate::session::Session;
use nsprobe_common::abi::ObjectIdentity;
use nsprobe_common::record::ObjectRecord;
use std::collections::HashMap;

/// The objects that a session has named so far.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    known: HashMap<u32, ObjectIdentity>,
}

impl Objects {
    /// Remembers an announcement.
    pub fn note(&mut self, record: &ObjectRecord) {
        self.known.insert(record.id, record.identity);
    }

    /// Which file `id` is: from its announcement, or, when that was lost, from
    /// the session.
    pub fn identity(&mut self, session: &Session, id: u32) -> Result<Option<ObjectIdentity>> {
        if let Some(&identity) = self.known.get(&id) {
            return Ok(Some(identity));
        }
        let found = session.object(id)?;
        if let Some(identity) = found {
            self.known.insert(id, identity);
        }
        Ok(found)
    }
}
