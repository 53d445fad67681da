// SPDX-License-Identifier: MIT OR Apache-2.0
//! From an offset to source frames: by DWARF, else by Go's own table, else by the
//! symbol table, else by the procedure linkage table.

use crate::demangle::{demangle, is_mangled};
use crate::dwarf::DwarfFrame;
use crate::function::Functions;
use crate::go::GoCode;
use crate::go_names::GoNames;
use crate::{Address, Binary, DebugSet, FileOffset, Function, NamesFrom, Unresolved};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How an offset came about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Lookup {
    /// The address of an instruction: the probe, an interrupted instruction.
    Instruction,
    /// A return address: it is looked up one byte earlier, inside the call,
    /// since the function may end with it.
    ReturnAddress,
}

/// Where a resolution comes from.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum FrameSource {
    /// DWARF, with lines and inlined functions.
    Dwarf,
    /// Go's own table, with lines and inlined functions.
    Go,
    /// The symbol tables.
    Symbols,
    /// The procedure linkage table: `name@plt`.
    Plt,
    /// `perf-PID.map`, which a program writes of code that it generates.
    PerfMap,
    /// `jit-PID.dump`, which a program writes of code that it generates, with times and lines.
    JitDump,
}

/// One function at an offset.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct SourceFrame {
    /// Its readable name.
    pub function: String,
    /// How far into the function the offset is, in bytes; not known for
    /// inlined ones and for parts that the compiler moved elsewhere.
    pub function_offset: Option<u64>,
    /// The source file, as the compiler was given it. Never open it.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u32>,
    /// Whether it was inlined into the next frame.
    pub inlined: bool,
}

/// What an offset resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The frames, the innermost inlined function first; never empty.
    pub frames: Vec<SourceFrame>,
    /// Where they come from.
    pub source: FrameSource,
    /// The file that has this.
    pub from: NamesFrom,
    /// Why DWARF was there but was not used.
    pub note: Option<String>,
}

/// An address to resolve.
struct Query {
    /// What is looked up.
    address: Address,
    /// How far past it the offset is that was asked for.
    behind: u64,
}

impl Query {
    fn offset_from(&self, start: Address) -> u64 {
        (self.address.0 - start.0).saturating_add(self.behind)
    }
}

impl Binary {
    /// The source frames at the offset, the innermost inlined function first, by this file
    /// alone.
    pub fn resolve(
        &self,
        offset: FileOffset,
        lookup: Lookup,
    ) -> std::result::Result<Resolution, Unresolved> {
        self.resolve_with(&DebugSet::default(), offset, lookup)
    }

    /// The source frames at the offset, the innermost inlined function first, by this file
    /// and its debug files.
    pub fn resolve_with(
        &self,
        debug: &DebugSet,
        offset: FileOffset,
        lookup: Lookup,
    ) -> std::result::Result<Resolution, Unresolved> {
        let query = self.query(offset, lookup)?;
        let tables = debug.tables(self);
        let mut note = None;
        match debug.frames(self, query.address) {
            Some(Ok((found, from))) => {
                if let Some(frames) = source_frames(&tables, found, &query) {
                    return Ok(resolution(frames, FrameSource::Dwarf, from, None));
                }
            }
            Some(Err(why)) => note = Some(why),
            None => {}
        }
        let frames = self.go_frames(&query);
        if !frames.is_empty() {
            return Ok(resolution(
                frames,
                FrameSource::Go,
                NamesFrom::Program,
                note,
            ));
        }
        if let Some((frame, from)) = tables.symbol_frame(&query) {
            return Ok(resolution(vec![frame], FrameSource::Symbols, from, note));
        }
        let frame =
            self.plt_frame(&query)
                .ok_or(match tables.is_empty() && self.go_names().is_none() {
                    false => Unresolved::BetweenFunctions(offset),
                    true => Unresolved::NoSymbols,
                })?;
        Ok(resolution(
            vec![frame],
            FrameSource::Plt,
            NamesFrom::Program,
            note,
        ))
    }

    /// The address of the code that an offset is looked up at; none when that is no code.
    pub fn code_address(&self, offset: FileOffset, lookup: Lookup) -> Option<Address> {
        Some(self.query(offset, lookup).ok()?.address)
    }

    fn query(&self, offset: FileOffset, lookup: Lookup) -> std::result::Result<Query, Unresolved> {
        let behind = match lookup {
            Lookup::ReturnAddress if !self.is_put_on_stacks(offset) => 1,
            Lookup::Instruction | Lookup::ReturnAddress => 0,
        };
        let inside = offset.0.checked_sub(behind).map(FileOffset);
        let inside = inside.ok_or(Unresolved::NotLoaded(offset))?;
        let segment = self
            .segment_of(inside)
            .ok_or(Unresolved::NotLoaded(offset))?;
        match segment.address_of(inside) {
            Some(address) if segment.executable => Ok(Query { address, behind }),
            _ => Err(Unresolved::NotExecutable(offset)),
        }
    }

    /// The addresses of the function of Go's that holds one, padding included, by Go's own table.
    pub fn go_function(&self, address: Address) -> Option<Range<u64>> {
        self.go_names()?.extent(address)
    }

    /// What made the code at an address, by Go's own table; `None` for what is not Go's. What leads
    /// from assembly language to a compiled function is of the former.
    pub fn go_code(&self, address: Address) -> Option<GoCode> {
        let code = self.go_names()?.code(address)?;
        let mut names = self.functions_at(address).iter();
        Some(
            match names.any(|function| function.name.ends_with(".abi0")) {
                true => GoCode::Assembly,
                false => code,
            },
        )
    }

    /// The name of the type of Go that is described at an address, as `%T` prints it.
    pub fn go_type_at(&self, address: Address) -> Option<String> {
        self.go_names()?.type_at(&self.elf, address)
    }

    /// Whether Go's own table names its functions.
    pub fn has_go_names(&self) -> bool {
        self.go_names().is_some()
    }

    /// Whether stacks have the offset without a call in front of it, in Go's runtime.
    pub(crate) fn is_put_on_stacks(&self, offset: FileOffset) -> bool {
        let segment = self.segment_of(offset);
        let address = segment.and_then(|segment| segment.address_of(offset));
        let names = self.go_names();
        let both = names.zip(address);
        both.is_some_and(|(names, address)| names.is_put_on_stacks(address))
    }

    pub(crate) fn go_names(&self) -> Option<&GoNames> {
        let read = || self.is_go().then(|| GoNames::read(&self.elf)).flatten();
        self.go.get_or_init(read).as_ref()
    }

    fn go_frames(&self, query: &Query) -> Vec<SourceFrame> {
        let names = self.go_names();
        names.map_or_else(Vec::new, |names| {
            names.frames(&self.elf, query.address, query.behind)
        })
    }

    fn plt_frame(&self, query: &Query) -> Option<SourceFrame> {
        let entry = self.plt_entry(query.address)?;
        Some(plain_frame(
            format!("{}@plt", demangle(&entry.name)),
            query.offset_from(entry.start),
        ))
    }
}

/// The symbol tables for a program's code, the most complete one first.
pub(crate) struct SymbolTables<'a> {
    pub(crate) program: &'a Binary,
    pub(crate) tables: Vec<(&'a Functions, NamesFrom)>,
}

impl<'a> SymbolTables<'a> {
    fn is_empty(&self) -> bool {
        self.tables.iter().all(|(table, _)| table.list.is_empty())
    }

    /// The innermost function that holds the address: one that says how long it is, or else
    /// the one that begins last, since the others may not know of it.
    fn holding(&self, address: Address) -> Option<(&'a Function, &NamesFrom)> {
        let reaches = |function: &Function| self.program.reaches(function, address);
        let held = self.tables.iter().filter_map(|(table, from)| {
            let function = table.holding(address, reaches)?;
            Some((function, from))
        });
        // Of equals, `max_by_key` gives the last: the order is that of trust.
        held.rev()
            .max_by_key(|(function, _)| (function.size != 0, function.address))
    }

    fn symbol_frame(&self, query: &Query) -> Option<(SourceFrame, NamesFrom)> {
        let (function, from) = self.holding(query.address)?;
        let offset = query.offset_from(function.address);
        let from = match function.is_compressed {
            true => NamesFrom::DebugData,
            false => from.clone(),
        };
        Some((plain_frame(function.demangled(), offset), from))
    }

    /// The readable name of a function, which DWARF may call `raw`, and how far the query
    /// is into it; the `symbol` is that of its code, if it was not inlined.
    fn name(
        &self,
        raw: Option<String>,
        symbol: Option<&Function>,
        query: &Query,
    ) -> Option<(String, Option<u64>)> {
        let Some(symbol) = symbol else {
            return Some((demangle(&raw?), None));
        };
        let into = Some(query.offset_from(symbol.address));
        let Some(raw) = raw else {
            return Some((symbol.demangled(), into));
        };
        let tables = self.tables.iter();
        let mut aliases = tables.flat_map(|(table, _)| table.at(symbol.address));
        if aliases.any(|function| function.name == raw) {
            return Some((demangle(&raw), into));
        }
        // GCC says no more than `f` of a `ns::f(int)` that it made another function of.
        match is_mangled(&symbol.name) && !is_mangled(&raw) {
            true => Some((symbol.demangled(), into)),
            false => Some((demangle(&raw), None)),
        }
    }
}

/// DWARF's frames with readable names; `None` when even the outermost one has no name.
fn source_frames(
    tables: &SymbolTables<'_>,
    found: Vec<DwarfFrame>,
    query: &Query,
) -> Option<Vec<SourceFrame>> {
    let outermost = found.len().checked_sub(1)?;
    let holding = tables.holding(query.address).map(|(function, _)| function);
    let mut frames = Vec::with_capacity(found.len());
    for (index, frame) in found.into_iter().enumerate() {
        let inlined = index < outermost;
        let symbol = holding.filter(|_| !inlined);
        let (function, function_offset) = tables.name(frame.function, symbol, query)?;
        frames.push(SourceFrame {
            function,
            function_offset,
            file: frame.file,
            line: frame.line,
            inlined,
        });
    }
    Some(frames)
}

fn plain_frame(function: String, function_offset: u64) -> SourceFrame {
    SourceFrame {
        function,
        function_offset: Some(function_offset),
        file: None,
        line: None,
        inlined: false,
    }
}

fn resolution(
    frames: Vec<SourceFrame>,
    source: FrameSource,
    from: NamesFrom,
    note: Option<String>,
) -> Resolution {
    Resolution {
        frames,
        source,
        from,
        note,
    }
}
