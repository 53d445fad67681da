// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why debug information has no answer.

use nsprobe_symbolize::Address;
use std::fmt;

/// Why debug information has no answer. The messages name variables and types as the file does:
/// print them escaped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DwarfError {
    /// The file has no DWARF.
    #[error("the file has no debug information")]
    Absent,
    /// The DWARF cannot be read.
    #[error("the debug information is damaged: {0}")]
    Damaged(String),
    /// Reading the DWARF would take more than is reasonable.
    #[error("the debug information is too big: {0}")]
    TooBig(&'static str),
    /// The compiler has put it into a file that was not found.
    #[error(
        "the debug information of this place is in {0}, which was not found, or has type units \
         (-fdebug-types-section), which are not read there; put it where the program names it, or \
         a package of it (.dwp) beside the program"
    )]
    Elsewhere(String),
    /// The debug information belongs to another file.
    #[error("the debug information has the build-id {found}, but the file has {wanted}")]
    OtherFile {
        /// The build-id of the program or library.
        wanted: String,
        /// The build-id of the file with the debug information.
        found: String,
    },
    /// There is no such thing.
    #[error("there is no {what} `{name}`{}", Suggested(.nearest))]
    Unknown {
        /// What was looked for.
        what: &'static str,
        /// Its name.
        name: String,
        /// Similar names, best first.
        nearest: Vec<String>,
    },
    /// There are several things of that name.
    #[error("there are several `{name}`: {}; name one in backquotes", .choices.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// Names that distinguish them.
        choices: Vec<String>,
    },
    /// The variable has no value at this place.
    #[error("`{name}` is optimized out at this place{}", ShownRanges(.available))]
    OptimizedOut {
        /// The variable.
        name: String,
        /// Where it has a value: addresses from, and up to but not including.
        available: Vec<(Address, Address)>,
    },
    /// The variable has a value, but not one that can be computed here.
    #[error("`{name}` cannot be read: {why}")]
    Unreadable {
        /// The variable.
        name: String,
        /// What stands in the way.
        why: String,
    },
}

impl From<gimli::Error> for DwarfError {
    fn from(error: gimli::Error) -> DwarfError {
        DwarfError::Damaged(error.to_string())
    }
}

struct Suggested<'a>(&'a [String]);

impl fmt::Display for Suggested<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            let separator = if index == 0 { "; similar: " } else { ", " };
            write!(f, "{separator}`{name}`")?;
        }
        Ok(())
    }
}

/// Most ranges that a message lists.
const RANGES_SHOWN: usize = 4;

struct ShownRanges<'a>(&'a [(Address, Address)]);

impl fmt::Display for ShownRanges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (from, to)) in self.0.iter().take(RANGES_SHOWN).enumerate() {
            let separator = if index == 0 {
                "; it has a value at "
            } else {
                ", "
            };
            write!(f, "{separator}{from} to {to}")?;
        }
        if self.0.len() > RANGES_SHOWN {
            f.write_str(" and more")?;
        }
        Ok(())
    }
}
