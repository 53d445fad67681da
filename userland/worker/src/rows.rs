// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unwind rows through a child, and how they are kept on disk although it is not trusted.
//!
//! What is kept must be right for other containers and later runs, so that a child which
//! has read any file cannot be asked for it: it says the digest of what rows are computed
//! from, and hands that over where there are no rows of this name. Then it is named anew,
//! here, and compiled by a new child which has seen nothing else. An attacker in the first
//! child gets the rows of an input of his own choice, under their right name; and who takes
//! over the second one, by its input, spoils the rows of that very input.

use crate::error::{Death, WorkerError};
use crate::process::Process;
use crate::protocol::{Failure, Reply, Request};
use crate::SandboxedBinary;
use nsprobe_unwind::{Cache, Digest, Input, UnwindTable};

impl SandboxedBinary {
    /// The unwind rows of the file and the debug files that are attached to it, and whether an
    /// earlier run has compiled them. Unless debug files were `searched` for, there are none where
    /// these may have more.
    pub fn rows(
        &self,
        cache: Option<&Cache>,
        searched: bool,
    ) -> Result<Option<(UnwindTable, bool)>, WorkerError> {
        let request = Request::Rows {
            object: self.subject().number,
            to_keep: cache.is_some(),
            searched,
        };
        match (self.ask(&request)?, cache) {
            (Reply::RowsNeedDebugFiles, _) if !searched => Ok(None),
            (Reply::Table(bytes), _) => {
                let table = UnwindTable::from_bytes(Digest::default(), &bytes);
                Ok(Some((table.ok_or_else(|| self.distrust())?, false)))
            }
            (Reply::Kept(digest), Some(cache)) => match cache.find(digest) {
                Some(table) => Ok(Some((table, true))),
                None => self.compile_to_keep(cache).map(Some),
            },
            _ => Err(self.distrust()),
        }
    }

    /// Has rows compiled and keeps them; whether they were kept already.
    fn compile_to_keep(&self, cache: &Cache) -> Result<(UnwindTable, bool), WorkerError> {
        let object = self.subject().number;
        let Reply::Input(input) = self.ask(&Request::Input { object })? else {
            return Err(self.distrust());
        };
        cache.table_by(&input, || self.compile(input.clone()))
    }

    /// Has a table compiled by a child that sees nothing else.
    fn compile(&self, input: Input) -> Result<UnwindTable, WorkerError> {
        let mut inner = self.worker().inner();
        let options = inner.options().clone();
        inner.check_deaths()?;
        let mut process = Process::start(&options).map_err(WorkerError::NoSandbox)?;
        let limit = inner.patience(options.limits.load);
        let asked = process.ask(&Request::Compile { input }, &[], limit);
        let death = match asked {
            Ok(Reply::Table(bytes)) => match UnwindTable::from_bytes(Digest::default(), &bytes) {
                Some(table) => return Ok(table),
                None => Death::Nonsense,
            },
            Ok(Reply::Failed(Failure::Refused(why))) => return Err(WorkerError::Refused(why)),
            Ok(Reply::Failed(Failure::Panicked)) => Death::Panicked,
            Ok(_) => Death::Nonsense,
            Err(death) => death,
        };
        inner.note_death(death);
        Err(inner.quarantine(self.subject(), death))
    }
}
