// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the objects and the stacks of a session are, by announcement or by asking.

use crate::error::Result;
use crate::session::Session;
use nsprobe_common::abi::ObjectIdentity;
use nsprobe_common::record::ObjectRecord;
use std::collections::HashMap;
use std::rc::Rc;

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

    /// The file with object id `id`, if it was announced.
    pub fn known(&self, id: u32) -> Option<ObjectIdentity> {
        self.known.get(&id).copied()
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

/// The stacks that records have named by their ids so far. There are no more of them than
/// the session has room for.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    known: HashMap<u32, Rc<[u64]>>,
}

impl Stacks {
    /// The frames' words of stack `id`; none when there is no such stack.
    pub fn frames(&mut self, session: &Session, id: u32) -> Result<Option<Rc<[u64]>>> {
        if let Some(words) = self.known.get(&id) {
            return Ok(Some(Rc::clone(words)));
        }
        let found: Option<Rc<[u64]>> = session.stack(id)?.map(Rc::from);
        if let Some(words) = &found {
            self.known.insert(id, Rc::clone(words));
        }
        Ok(found)
    }
}
