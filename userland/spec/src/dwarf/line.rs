// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source lines and addresses, by the line table (DWARF 5, section 6.2).

use super::calls::InlinedCall;
use super::error::DwarfError;
use super::function::DebugFunction;
use super::units::{Die, GimliUnit};
use super::DebugInfo;
use nsprobe_symbolize::Address;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

/// Most rows of a unit's table.
const ROWS_MAX: usize = 8_000_000;
/// Units whose tables are kept.
const TABLES_KEPT: usize = 16;

/// A row of the line table.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineRow {
    pub(super) address: u64,
    file: u32,
    /// 0: made by the compiler, from no line.
    pub(super) line: u32,
    /// 0: the beginning of the line, or not known.
    column: u32,
    is_statement: bool,
    prologue_end: bool,
    end_sequence: bool,
}

/// Where a line's code is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineCode {
    /// The line that was found: the requested one, or the next that has code.
    pub line: u32,
    /// Where its first statement begins, in each function, or place where it was inlined, that
    /// the line is a part of; by rising address.
    pub places: Vec<LinePlace>,
    /// All code of the line, as ranges of addresses.
    pub code: Vec<Range<u64>>,
    /// Whether the compiler marked statements once for each copy of them: else a statement whose
    /// code is mixed with that of other lines looks like several.
    pub is_marked: bool,
    /// Whether some copies of it may be indistinguishable: several begin at one address, or an
    /// inlined call begins where code of other lines does.
    pub is_doubtful: bool,
}

/// A place where the code of a line begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinePlace {
    /// Where.
    pub address: Address,
    /// The innermost function there.
    pub function: Option<DebugFunction>,
}

/// A place where a statement of a line begins.
struct Beginning {
    column: u32,
    is_moved: bool,
    is_call: bool,
    place: LinePlace,
}

/// The rows of a line.
struct LineRows {
    line: u32,
    /// Where stretches of it begin, each with its column.
    begins: BTreeMap<u64, u32>,
    code: Vec<Range<u64>>,
    is_marked: bool,
    is_doubtful: bool,
}

impl LineRows {
    fn new(line: u32, is_marked: bool) -> LineRows {
        LineRows {
            line,
            begins: BTreeMap::new(),
            code: Vec::new(),
            is_marked,
            is_doubtful: false,
        }
    }
}

/// The line rules of a unit's compiler.
struct Compiler {
    /// It marks each copy of a statement once (`-gstatement-frontiers`, the default of GCC since
    /// version 8).
    marks_statements: bool,
    /// As far as GCC says.
    optimizes: bool,
}

/// A file that code comes from, as its unit numbers it.
type FileOfUnit = (u32, BTreeSet<u32>);

impl<'a> DebugInfo<'a> {
    /// Where the code of `file:line` is. The file's name is that of the compiler,
    /// or the end of it: `conn.c`, `src/conn.c`.
    pub fn line(&self, file: &str, line: u32) -> Result<LineCode, DwarfError> {
        self.guarded(|| {
            let files = self.files_named(file)?;
            if files.is_empty() {
                return Err(DwarfError::Unknown {
                    what: "source file",
                    name: file.to_owned(),
                    nearest: Vec::new(),
                });
            }
            let calls = self.calls_in(&files, line)?;
            let found = match self.rows_of(&files, line)? {
                Some(found) if calls.is_empty() || found.line == line => found,
                _ if !calls.is_empty() => LineRows::new(line, false),
                _ => {
                    return Err(DwarfError::Unknown {
                        what: "code at or after line",
                        name: format!("{file}:{line}"),
                        nearest: Vec::new(),
                    })
                }
            };
            let calls = match found.line == line {
                true => calls,
                false => self.calls_in(&files, found.line)?,
            };
            let (places, by_calls) = self.first_statements(&found.begins, calls)?;
            Ok(LineCode {
                line: found.line,
                places,
                code: found.code,
                is_marked: found.is_marked,
                is_doubtful: found.is_doubtful || by_calls && !found.is_marked,
            })
        })
    }

    /// The inlined calls in a line that the compiler gives no row of their own.
    fn calls_in(&self, files: &[FileOfUnit], line: u32) -> Result<Vec<InlinedCall>, DwarfError> {
        let mut found = Vec::new();
        for (unit, numbers) in files {
            let compiler = self.compiler(*unit)?;
            // Entries in a file of their own count files by a table that is there, too.
            let is_split = self.units.is_split(*unit);
            if !(is_split || compiler.marks_statements && compiler.optimizes) {
                found.extend(self.inlined_calls(*unit, numbers, line)?);
            }
        }
        Ok(found)
    }

    /// The first line at or after the requested one that has code, and its rows.
    fn rows_of(&self, files: &[FileOfUnit], wanted: u32) -> Result<Option<LineRows>, DwarfError> {
        let mut best: Option<LineRows> = None;
        for (unit, numbers) in files {
            let rows = self.rows(*unit)?;
            let is_marked = self.compiler(*unit)?.marks_statements;
            let mut previous = (0, 0);
            for (index, row) in rows.iter().enumerate() {
                self.units.step()?;
                // A line's further rows of one stretch are inside of a statement.
                let here = match row.end_sequence {
                    true => (0, 0),
                    false => (row.file, row.line),
                };
                let begins = std::mem::replace(&mut previous, here) != here;
                let fits = !row.end_sequence
                    && row.address != 0
                    && row.line >= wanted.max(1)
                    && numbers.contains(&row.file);
                let is_known = best.as_ref().is_some_and(|best| best.line <= row.line);
                if !fits || !row.is_statement && !is_known {
                    continue;
                }
                let best = match &mut best {
                    Some(best) if best.line < row.line => continue,
                    Some(best) if best.line == row.line => best,
                    best => best.insert(LineRows::new(row.line, true)),
                };
                best.is_marked &= is_marked;
                if let Some(next) = rows.get(index + 1) {
                    best.code.push(row.address..next.address);
                }
                if row.is_statement && (begins || best.begins.is_empty()) {
                    let known = best.begins.insert(row.address, row.column);
                    best.is_doubtful |= is_marked && known == Some(row.column);
                }
            }
        }
        Ok(best)
    }

    fn compiler(&self, unit: u32) -> Result<Compiler, DwarfError> {
        let producer = self.units.producer(unit)?;
        let of_gnu = producer.and_then(|producer| producer.strip_prefix("GNU "));
        let mut words = of_gnu.unwrap_or_default().split(' ');
        let version = words.find_map(|word| word.split_once('.')?.0.parse::<u32>().ok());
        let level = words.rfind(|word| word.starts_with("-O"));
        Ok(Compiler {
            marks_statements: version.is_some_and(|version| version >= 8),
            optimizes: level.is_some_and(|level| level != "-O0"),
        })
    }

    /// Where the first statement of a line begins, and whether inlined calls tell some of that: of
    /// one line there may be several statements, and of a statement several copies. The part of a
    /// function that was moved elsewhere goes on with what began in the function, unless the whole
    /// line was moved.
    fn first_statements(
        &self,
        begins: &BTreeMap<u64, u32>,
        calls: Vec<InlinedCall>,
    ) -> Result<(Vec<LinePlace>, bool), DwarfError> {
        let mut all = Vec::new();
        for (&address, &column) in begins {
            let function = self.functions_at(Address(address))?.pop();
            all.push((address, column, function, false));
        }
        let of_call = |call: InlinedCall| (call.address, call.column, Some(call.caller), true);
        all.extend(calls.into_iter().map(of_call));
        let mut functions: BTreeMap<Option<Die>, Vec<Beginning>> = BTreeMap::new();
        for (address, column, function, is_call) in all {
            let address = Address(address);
            let is_moved = match &function {
                Some(function) => self.is_moved(function.outer, address)?,
                None => false,
            };
            functions
                .entry(function.as_ref().map(|function| function.die))
                .or_default()
                .push(Beginning {
                    column,
                    is_moved,
                    is_call,
                    place: LinePlace { address, function },
                });
        }
        let (mut places, mut by_calls) = (Vec::new(), false);
        for mut found in functions.into_values() {
            let first = found.iter().map(|begins| begins.column).min();
            found.retain(|begins| Some(begins.column) == first);
            let all_moved = found.iter().all(|begins| begins.is_moved);
            found.retain(|begins| all_moved || !begins.is_moved);
            by_calls |= found.iter().any(|begins| begins.is_call);
            places.extend(found.into_iter().map(|begins| begins.place));
        }
        places.sort_by_key(|place| place.address);
        places.dedup_by_key(|place| place.address);
        Ok((places, by_calls))
    }

    /// Whether an address of a function is not in the part of it that its entry is in.
    fn is_moved(&self, outer: Die, address: Address) -> Result<bool, DwarfError> {
        let ranges = self.units.ranges(&self.units.node(outer)?)?;
        let first = ranges.first();
        Ok(first.is_some_and(|(from, to)| !(*from..*to).contains(&address.0)))
    }

    /// The units that have code of the file, each with its numbers of it.
    fn files_named(&self, name: &str) -> Result<Vec<FileOfUnit>, DwarfError> {
        let mut found = Vec::new();
        for unit in 0..self.units.count() {
            let Ok(parsed) = self.units.parse(unit) else {
                self.units.step()?;
                continue;
            };
            let numbers = self.numbers_of(unit, &parsed, name)?;
            // Type units have the table of the unit that they belong to.
            let typed = matches!(parsed.header.type_(), gimli::UnitType::Type { .. });
            if !numbers.is_empty() && !typed {
                found.push((unit, numbers));
            }
        }
        Ok(found)
    }

    fn numbers_of(
        &self,
        unit: u32,
        parsed: &GimliUnit<'a>,
        name: &str,
    ) -> Result<BTreeSet<u32>, DwarfError> {
        let mut numbers = BTreeSet::new();
        let Some(program) = &parsed.line_program else {
            return Ok(numbers);
        };
        let header = program.header();
        let first = if header.version() >= 5 { 0 } else { 1 };
        for (number, file) in (first..).zip(header.file_names()) {
            self.units.step()?;
            let Some(base) = self.units.text_of_lines(unit, parsed, file.path_name()) else {
                continue;
            };
            // The name is compared before the folders are put together.
            if last_part(base) != last_part(name) {
                continue;
            }
            let folder = file.directory(header);
            let folder = folder.and_then(|folder| self.units.text_of_lines(unit, parsed, folder));
            let whole = match folder {
                Some(folder) if !base.starts_with('/') => format!("{folder}/{base}"),
                _ => base.to_owned(),
            };
            let compiled_in = parsed.comp_dir.map(|dir| dir.to_string_lossy());
            let whole = match compiled_in {
                Some(dir) if !whole.starts_with('/') => format!("{dir}/{whole}"),
                _ => whole,
            };
            if ends_with_path(&whole, name) {
                numbers.insert(number);
            }
        }
        Ok(numbers)
    }

    /// The rows of a unit, in the order of its program.
    pub(super) fn rows(&self, unit: u32) -> Result<Rc<Vec<LineRow>>, DwarfError> {
        if let Some(rows) = self.tables.borrow().get(&unit) {
            return Ok(Rc::clone(rows));
        }
        let rows = Rc::new(self.read_rows(unit)?);
        let mut tables = self.tables.borrow_mut();
        if tables.len() >= TABLES_KEPT {
            tables.clear();
        }
        tables.insert(unit, Rc::clone(&rows));
        Ok(rows)
    }

    fn read_rows(&self, unit: u32) -> Result<Vec<LineRow>, DwarfError> {
        let parsed = self.units.unit(unit)?;
        let Some(program) = parsed.line_program.clone() else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        let mut rows = program.rows();
        while let Some((_, row)) = rows.next_row()? {
            self.units.step()?;
            if found.len() == ROWS_MAX {
                return Err(DwarfError::TooBig("a line table is too long"));
            }
            found.push(LineRow {
                address: row.address(),
                file: u32::try_from(row.file_index()).unwrap_or(u32::MAX),
                line: row
                    .line()
                    .map_or(0, |l| u32::try_from(l.get()).unwrap_or(0)),
                column: match row.column() {
                    gimli::ColumnType::LeftEdge => 0,
                    gimli::ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(0),
                },
                is_statement: row.is_stmt(),
                prologue_end: row.prologue_end(),
                end_sequence: row.end_sequence(),
            });
        }
        Ok(found)
    }

    /// Where the function's own code begins, after the prologue that stores its
    /// parameters: as debuggers place breakpoints. That is the address that the
    /// compiler marked (LLVM), or that of the function's second row (GCC without
    /// optimization). Where the locations of parameters say themselves from where
    /// on they are good (GCC with optimization), it is the entry.
    pub fn body_pc(&self, function: &DebugFunction) -> Result<Address, DwarfError> {
        self.guarded(|| self.body_of(function.outer))
    }

    fn body_of(&self, outer: Die) -> Result<Address, DwarfError> {
        let node = self.units.node(outer)?;
        let entry = self.units.ranges(&node)?.first().map(|range| range.0);
        match entry {
            Some(entry) if self.has_location_lists(&node)? && !self.marks_prologue(outer)? => {
                Ok(Address(entry))
            }
            _ => self.prologue_end(outer),
        }
    }

    /// Whether the compiler marked where the prologue ends.
    fn marks_prologue(&self, outer: Die) -> Result<bool, DwarfError> {
        Ok(self.rows_inside(outer)?.iter().any(|row| row.prologue_end))
    }

    /// The rows of a function's first range, by rising address.
    fn rows_inside(&self, outer: Die) -> Result<Vec<LineRow>, DwarfError> {
        let node = self.units.node(outer)?;
        let ranges = self.units.ranges(&node)?;
        let Some(&(entry, end)) = ranges.first() else {
            return Err(DwarfError::Damaged("the function has no code".to_owned()));
        };
        let rows = self.rows(outer.unit)?;
        let inside = |row: &&LineRow| (entry..end).contains(&row.address) && !row.end_sequence;
        let mut inside: Vec<LineRow> = rows.iter().filter(inside).copied().collect();
        inside.sort_by_key(|row| row.address);
        Ok(inside)
    }

    /// Where the prologue ends: as the compiler marked it, or at the function's
    /// second row; the entry when the line table does not say.
    pub(super) fn prologue_end(&self, outer: Die) -> Result<Address, DwarfError> {
        let inside = self.rows_inside(outer)?;
        let node = self.units.node(outer)?;
        let entry = self.units.ranges(&node)?.first().map_or(0, |range| range.0);
        let marked = inside.iter().find(|row| row.prologue_end);
        let second = inside.iter().find(|row| row.address > entry);
        Ok(Address(marked.or(second).map_or(entry, |row| row.address)))
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether the path ends in the parts of `end`. `.` and doubled slashes are
/// nothing.
fn ends_with_path(path: &str, end: &str) -> bool {
    fn parts(path: &str) -> impl Iterator<Item = &str> {
        path.rsplit('/')
            .filter(|part| !part.is_empty() && *part != ".")
    }
    let absolute = end.starts_with('/');
    let mut of_path = parts(path);
    let ends = parts(end).all(|part| of_path.next() == Some(part));
    ends && (!absolute || of_path.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_the_end_of_its_path() {
        for (path, end, fits) in [
            ("/src/net/conn.c", "conn.c", true),
            ("/src/net/conn.c", "net/conn.c", true),
            ("/src/./net//conn.c", "src/net/conn.c", true),
            ("/src/net/conn.c", "/src/net/conn.c", true),
            ("/src/net/conn.c", "/net/conn.c", false),
            ("/src/net/conn.c", "et/conn.c", false),
            ("/src/net/conn.c", "onn.c", false),
        ] {
            assert_eq!(ends_with_path(path, end), fits, "{path} {end}");
        }
    }
}
