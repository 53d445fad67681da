// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places in a file, by offset, by source line, and where functions were inlined; and
//! what names mean there.

use crate::breakpoint::{self, Needs};
use crate::spot::{spot_at, Spot};
use anyhow::{anyhow, bail};
use nsprobe_common::program::{Operation, Register};
use nsprobe_spec::dwarf::{self, DebugInfo};
use nsprobe_spec::{Compiled, Plain, Scope, UsdtScope};
use nsprobe_symbolize::{Address, Binary, FileOffset, Function, GoCode, Segment, Usdt};
use nsprobe_unwind::Frames;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

/// What the kernel maps at a time.
const PAGE_BYTES: u64 = 4096;

/// Where a source line is come to.
pub(crate) struct LineSpots {
    pub(crate) number: u32,
    pub(crate) spots: Vec<Spot>,
    /// Its code is mixed with that of other lines: its copies cannot all be distinguished.
    pub(crate) is_mixed: bool,
}

/// A file in which places are looked for.
pub(crate) struct Searched<'a> {
    pub(crate) binary: &'a Binary,
    pub(crate) path: &'a Path,
    /// The file whose symbols name its functions: itself, or its debug file.
    pub(crate) named: &'a Binary,
    /// Its debug information, or why there is none.
    pub(crate) debug: Result<&'a DebugInfo<'a>, &'a str>,
    /// Parts that the compiler moved out of functions, by the functions' names; read
    /// once, as thousands of functions may be probed.
    cold: OnceCell<HashMap<&'a str, Vec<&'a Function>>>,
    /// The file's descriptions of its frames.
    frames: OnceCell<Option<Frames>>,
}

impl<'a> Searched<'a> {
    pub(crate) fn new(
        binary: &'a Binary,
        path: &'a Path,
        debug: Result<&'a DebugInfo<'a>, &'a str>,
    ) -> Searched<'a> {
        Searched {
            binary,
            path,
            named: binary,
            debug,
            cold: OnceCell::new(),
            frames: OnceCell::new(),
        }
    }

    /// The file's descriptions of its frames, if there are any.
    pub(crate) fn frames(&self) -> Option<&Frames> {
        let frames = self.frames.get_or_init(|| Frames::of(self.binary).ok());
        frames.as_ref()
    }

    /// The function whose symbol, in the file or its debug file, says that it covers an address.
    fn function_holding(&self, address: u64) -> Option<&'a Function> {
        holding(self.named, address).or_else(|| holding(self.binary, address))
    }

    /// The piece of code that covers an address: a function as its symbol has it, else what the
    /// file's description of its frames has as one, Go's or `.eh_frame`.
    pub(crate) fn piece(&self, address: u64) -> Option<Range<u64>> {
        match holding(self.named, address) {
            Some(function) => Some(function.address.0..function.end()),
            None => self.own_piece(address),
        }
    }

    /// The piece by the file itself, without its debug file.
    pub(crate) fn own_piece(&self, address: u64) -> Option<Range<u64>> {
        match holding(self.binary, address) {
            Some(function) => Some(function.address.0..function.end()),
            None => self
                .binary
                .go_function(Address(address))
                .or_else(|| self.frames()?.covering(address)),
        }
    }

    /// At most `bytes` of code from an address on, up to the next function that has a symbol or a
    /// description of its frame; empty where there is none.
    pub(crate) fn undescribed(&self, address: u64, bytes: u64) -> Vec<u8> {
        let next = [self.named, self.binary].into_iter().filter_map(|file| {
            let functions = file.functions();
            let next = functions.partition_point(|function| function.address.0 <= address);
            Some(functions.get(next)?.address.0)
        });
        let next = next.chain(self.frames().and_then(|frames| frames.behind(address)));
        let end = self.binary.code_end(Address(address)).unwrap_or(0);
        let end = next.fold(end, u64::min);
        self.binary
            .code(address, bytes.min(end.saturating_sub(address)))
    }

    /// The code of a piece.
    pub(crate) fn code(&self, piece: &Range<u64>) -> Vec<u8> {
        self.binary
            .code(piece.start, piece.end.saturating_sub(piece.start))
    }

    /// The parts of the function that lie elsewhere.
    fn cold_parts(&self, function: &str) -> &[&'a Function] {
        let all = self.cold.get_or_init(|| {
            let mut all: HashMap<&str, Vec<&Function>> = HashMap::new();
            for part in self.named.functions() {
                if let Some(name) = whole_of(&part.name) {
                    all.entry(name).or_default().push(part);
                }
            }
            all
        });
        all.get(function).map_or(&[], Vec::as_slice)
    }

    fn debug(&self) -> anyhow::Result<&'a DebugInfo<'a>> {
        self.debug.map_err(|why| {
            anyhow!(
                "{}: {why}; install its debug symbols, in the container or on this machine",
                self.path.display()
            )
        })
    }

    /// The spot at an address, called by the function there.
    fn spot(&self, address: Address, function: Option<String>) -> anyhow::Result<Spot> {
        let Some(offset) = self.binary.offset_of(address) else {
            bail!(
                "{address} of {} is in no part of the file that is loaded",
                self.path.display()
            );
        };
        let mut spot = spot_at(self.binary, self.path, offset.0)?;
        if let Some(function) = function {
            spot.function = function;
        }
        Ok(spot)
    }

    /// Where a function was inlined.
    pub(crate) fn inlined(&self, name: &str) -> anyhow::Result<Vec<Spot>> {
        let functions = self.debug()?.functions_named(name)?;
        let inlined = functions.iter().filter(|function| function.inlined);
        inlined
            .map(|function| {
                let spot = self.spot(function.entry, None)?;
                Ok(Spot {
                    function: format!("{} (inlined at {})", function.name, spot.function),
                    // The caller's return address is not on top of the stack.
                    at_function: false,
                    inlined: Some(function.clone()),
                    ..spot
                })
            })
            .collect()
    }

    /// Where a static probe is; its provider and name may be globs.
    pub(crate) fn usdt(&self, provider: &str, name: &str) -> anyhow::Result<Vec<Spot>> {
        let all = self.binary.usdt()?;
        let fits = |wanted: &str, found: &str| nsprobe_text::glob_fits(wanted, found);
        let found: Vec<&Usdt> = all
            .iter()
            .filter(|probe| fits(provider, &probe.provider) && fits(name, &probe.name))
            .collect();
        if found.is_empty() {
            let names = all.iter().map(|p| format!("{}:{}", p.provider, p.name));
            let wanted = format!("{provider}:{name}");
            let nearest = nsprobe_text::nearest(&wanted, names, 3);
            let shown = self.path.display();
            match nearest.as_slice() {
                [] if all.is_empty() => bail!("{shown} has no static probes"),
                [] => bail!("{shown} has no static probe {wanted}"),
                names => bail!(
                    "{shown} has no static probe {wanted} (did you mean {}?)",
                    names.join(", ")
                ),
            }
        }
        let spots = found.into_iter().map(|probe| {
            let called = format!("{}:{}", probe.provider, probe.name);
            let spot = self.spot(probe.address, Some(called))?;
            Ok(Spot {
                at_function: false,
                usdt: Some(probe.clone()),
                ..spot
            })
        });
        spots.collect()
    }

    /// Where a source line, or the next that has code, is come to.
    pub(crate) fn line(&self, file: &str, line: u32) -> anyhow::Result<LineSpots> {
        let code = self.debug()?.line(file, line)?;
        let is_of_line = |address: u64| code.code.iter().any(|range| range.contains(&address));
        let mut functions: HashMap<Address, Vec<&dwarf::LinePlace>> = HashMap::new();
        let mut places = Vec::new();
        for place in &code.places {
            match &place.function {
                Some(function) => functions.entry(function.entry).or_default().push(place),
                None => places.push(place),
            }
        }
        for found in functions.into_values() {
            places.extend(self.beginnings(found, is_of_line, !code.is_marked));
        }
        let is_mixed = code.is_doubtful || !code.is_marked && places.len() < code.places.len();
        places.sort_by_key(|place| place.address);
        let spots = places.into_iter().map(|place| {
            let name = place
                .function
                .as_ref()
                .map(|function| function.name.clone());
            let name = name.unwrap_or_else(|| "?".to_owned());
            let called = format!("{name} ({file}:{})", code.line);
            self.spot(place.address, Some(called))
        });
        Ok(LineSpots {
            number: code.line,
            spots: spots.collect::<anyhow::Result<_>>()?,
            is_mixed,
        })
    }

    /// Those places of one function, where code of a source line begins, at which the line is come
    /// to.
    fn beginnings<'p>(
        &self,
        places: Vec<&'p dwarf::LinePlace>,
        is_of_line: impl Fn(u64) -> bool,
        is_mixed: bool,
    ) -> Vec<&'p dwarf::LinePlace> {
        let [first, _, ..] = places.as_slice() else {
            return places;
        };
        let (Some(function), Some(piece)) = (&first.function, self.piece(first.address.0)) else {
            return places;
        };
        let others = function.ranges.iter().map(|(from, to)| from.0..to.0);
        let others = others.filter(|range| !piece.contains(&range.start));
        let parts: Vec<(u64, Vec<u8>)> =
            others.map(|part| (part.start, self.code(&part))).collect();
        let elsewhere = parts.iter().map(|(at, code)| (*at, code.as_slice()));
        let whole = breakpoint::FunctionCode {
            address: piece.start,
            bytes: &self.code(&piece),
            elsewhere: &elsewhere.collect::<Vec<_>>(),
        };
        let all: Vec<u64> = places.iter().map(|place| place.address.0).collect();
        let found = breakpoint::beginnings(&whole, &all, is_of_line, is_mixed);
        let is_found = |place: &&dwarf::LinePlace| found.contains(&place.address.0);
        places.into_iter().filter(is_found).collect()
    }

    /// Whether a spot is in code that is mapped writable.
    pub(crate) fn is_writable(&self, spot: &Spot) -> bool {
        let segment = self.binary.segment_of(spot.offset);
        segment.is_some_and(|segment| segment.writable)
    }

    /// Whether the kernel raises another copy of a semaphore than the program reads: it takes the
    /// first writable mapping of its page, and some linkers (lld, mold) map that twice.
    pub(crate) fn is_mapped_before(&self, semaphore: FileOffset) -> bool {
        let has_page = |segment: &&Segment| {
            let page = |offset: u64| offset / PAGE_BYTES;
            let FileOffset(first) = segment.file_offset;
            let last = first.saturating_add(segment.file_bytes.saturating_sub(1));
            segment.writable && (page(first)..=page(last)).contains(&page(semaphore.0))
        };
        let all = self.binary.segments().iter().filter(has_page);
        let first = all.min_by_key(|segment| segment.address);
        first.is_some_and(|segment| segment.address_of(semaphore).is_none())
    }

    /// Where the breakpoint of a probe of a function's beginning goes.
    pub(crate) fn breakpoint(
        &self,
        spot: &Spot,
        compiled: &Compiled,
        fast_nops: bool,
    ) -> FileOffset {
        let placement = self.with_code(spot, |whole| {
            let begins = self.stack_check(whole);
            let body = breakpoint::FunctionCode {
                address: whole.address.saturating_add(begins as u64),
                bytes: whole.bytes.get(begins..).unwrap_or_default(),
                ..*whole
            };
            let placement = breakpoint::place(&body, needs(compiled), fast_nops);
            placement.map_or(begins, |placement| begins + placement.offset)
        });
        self.further(spot, placement.unwrap_or(0) as u64)
    }

    /// Bytes of a function of Go up to the place that is passed once in each call.
    fn stack_check(&self, whole: &breakpoint::FunctionCode<'_>) -> usize {
        match self.binary.go_code(Address(whole.address)) {
            Some(GoCode::Compiled) => breakpoint::behind_stack_check(whole),
            _ => 0,
        }
    }

    /// Whether the register of the goroutine is the same throughout the function at a spot, which
    /// is in assembly language.
    pub(crate) fn keeps_goroutine(&self, spot: &Spot) -> bool {
        let keeps = self.with_code(spot, breakpoint::keeps_goroutine);
        keeps.unwrap_or(false)
    }

    /// Where the breakpoint of a probe goes that changes something at a function's beginning: after
    /// a ten-byte nop, or Go's check of its stack.
    pub(crate) fn behind_nop(&self, spot: &Spot) -> FileOffset {
        let behind = self.with_code(spot, |whole| {
            breakpoint::behind_nop(whole).max(self.stack_check(whole))
        });
        self.further(spot, behind.unwrap_or(0) as u64)
    }

    /// Whether there is a ten-byte nop at a place that is at a spot or after it.
    pub(crate) fn is_fast_nop(&self, spot: &Spot, at: FileOffset) -> bool {
        let address = spot.address.0 + at.0.saturating_sub(spot.offset.0);
        let bytes = self.code(&(address..address.saturating_add(16)));
        breakpoint::cost(&bytes, address) == Some(breakpoint::Cost::Call)
    }

    /// The place so far past a spot, if it is in no other function.
    fn further(&self, spot: &Spot, further: u64) -> FileOffset {
        let is_alone = further == 0 || self.is_one_function(spot, further);
        match is_alone {
            true => FileOffset(spot.offset.0.saturating_add(further)),
            false => spot.offset,
        }
    }

    /// Hands the whole code of the function at a spot to `look`.
    pub(crate) fn with_code<R>(
        &self,
        spot: &Spot,
        look: impl FnOnce(&breakpoint::FunctionCode<'_>) -> R,
    ) -> Result<R, String> {
        let piece = self
            .piece(spot.address.0)
            .ok_or("no symbol, debug file or .eh_frame shows where its code ends")?;
        let name = self.function_holding(spot.address.0);
        let cold = name.map_or(&[][..], |function| self.cold_parts(&function.name));
        let cold = cold.iter().map(|cold| cold.address.0..cold.end());
        // What describes frames may have several functions as one.
        let before = Some(piece.start..spot.address.0).filter(|before| !before.is_empty());
        let parts: Vec<(u64, Vec<u8>)> = cold
            .chain(before)
            .map(|part| (part.start, self.code(&part)))
            .collect();
        let elsewhere: Vec<(u64, &[u8])> = parts
            .iter()
            .map(|(address, bytes)| (*address, bytes.as_slice()))
            .collect();
        let code = self.code(&(spot.address.0..piece.end));
        Ok(look(&breakpoint::FunctionCode {
            address: spot.address.0,
            bytes: &code,
            elsewhere: &elsewhere,
        }))
    }

    /// Bytes from a function's beginning to a `ret` of it.
    pub(crate) fn ret(&self, spot: &Spot) -> Option<u64> {
        let piece = self.piece(spot.address.0)?;
        let whole = breakpoint::FunctionCode {
            address: spot.address.0,
            bytes: &self.code(&(spot.address.0..piece.end)),
            elsewhere: &[],
        };
        let ret = breakpoint::ret(&whole)?;
        spot.at_function.then_some(ret as u64)
    }

    /// Whether no other function begins within the first bytes of this.
    fn is_one_function(&self, spot: &Spot, bytes: u64) -> bool {
        (1..=bytes).all(|into| {
            let inside = FileOffset(spot.offset.0.saturating_add(into));
            !self.binary.is_function_entry(inside)
        })
    }

    /// Whether the function at a spot is a copy that may have other arguments than the
    /// source says.
    pub(crate) fn changes_arguments(&self, spot: &Spot) -> bool {
        let here = self.named.functions_at(spot.address);
        !here.is_empty() && here.iter().all(Function::changes_arguments)
    }

    /// The functions that only debug information calls so: the symbols of Fortran's have more in
    /// their names. Those of C++ have their scopes in them, which are asked for.
    pub(crate) fn by_debug_name(&self, name: &str) -> anyhow::Result<Vec<Spot>> {
        let Ok(functions) = self.debug.map(|debug| debug.functions_named(name)) else {
            return Ok(Vec::new());
        };
        let functions = functions.unwrap_or_default();
        let is_meant = |function: &&dwarf::DebugFunction| {
            let mut symbols = self.named.functions_at(function.entry).iter();
            let is_plain = symbols.all(|symbol| symbol.demangled() == symbol.name);
            !function.inlined && function.name == name && is_plain
        };
        let meant = functions.iter().filter(is_meant);
        meant
            .map(|function| {
                let spot = self.spot(function.entry, Some(function.name.clone()))?;
                Ok(Spot {
                    at_function: true,
                    ..spot
                })
            })
            .collect()
    }

    /// Why a function is not found that is nowhere but inlined.
    pub(crate) fn only_inlined(&self, name: &str) -> Option<anyhow::Error> {
        let functions = self.debug.ok()?.functions_named(name).ok()?;
        if functions.is_empty() || functions.iter().any(|function| !function.inlined) {
            return None;
        }
        let path = self.path.display();
        let count = functions.len();
        let places = if count == 1 { "place" } else { "places" };
        Some(anyhow!(
            "{name} in {path} is inlined wherever it is called, at {count} {places}: --inlined \
             probes there"
        ))
    }

    /// What names mean at a spot.
    pub(crate) fn scope(&self, spot: &Spot) -> Box<dyn Scope + '_> {
        if let Some(probe) = &spot.usdt {
            return Box::new(UsdtScope::new(probe, self.binary));
        }
        let plain = |why: Cow<'a, str>| -> Box<dyn Scope + '_> {
            Box::new(Plain {
                address: spot.address.0,
                at_function: spot.at_function,
                changes_arguments: self.changes_arguments(spot),
                binary: Some(self.binary),
                why,
            })
        };
        let debug = match self.debug {
            Ok(debug) => debug,
            Err(why) => return plain(why.into()),
        };
        let functions = debug.functions_at(spot.address);
        // At the beginning of a function it is meant, not what was inlined there.
        let scope = functions.and_then(|functions| {
            let function = match (&spot.inlined, spot.at_function) {
                (Some(inlined), _) => Some(inlined),
                (None, true) => functions.first(),
                (None, false) => functions.last(),
            };
            let scope = function.map(|function| debug.scope(function, spot.address));
            scope.transpose()
        });
        match scope {
            Ok(Some(scope)) => Box::new(scope),
            Ok(None) => match debug.check_is_here(spot.address) {
                Ok(()) => plain("the debug information does not know this place".into()),
                Err(error) => plain(error.to_string().into()),
            },
            Err(error) => plain(error.to_string().into()),
        }
    }
}

/// The function that a symbol names a part of, which the compiler moved elsewhere: `f.cold` by
/// gcc, `f.cold.1` by clang.
fn whole_of(part: &str) -> Option<&str> {
    let (name, number) = part.rsplit_once(".cold")?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let fits = number.is_empty() || number.strip_prefix('.').is_some_and(is_number);
    fits.then_some(name)
}

/// What a probe looks at at the entry, besides arguments and memory.
fn needs(compiled: &Compiled) -> Needs {
    let steps = compiled.entry.iter().flat_map(|code| &code.steps);
    let mut needs = Needs::default();
    for step in steps.filter(|step| step.operation == Operation::Register as u8) {
        let register = u8::try_from(step.small).ok().and_then(Register::from_u8);
        needs.rax |= register == Some(Register::Rax);
        needs.r10_r11 |= matches!(register, Some(Register::R10 | Register::R11));
        needs.flags |= register == Some(Register::Flags);
        // Where exactly the breakpoint is can be seen, too.
        needs.rip |= register == Some(Register::Rip);
    }
    needs
}

/// The function whose symbol in a file says that it covers an address.
pub(crate) fn holding(binary: &Binary, address: u64) -> Option<&Function> {
    let function = binary.function_holding(Address(address))?;
    (function.size != 0).then_some(function)
}
