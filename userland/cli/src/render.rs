// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records as text for people: a line for each hit, then its stack.
//!
//! Every name comes from a traced program, and is escaped.

use crate::fields;
use crate::names::{file_name, Named};
use libnsprobe::common::program::Register;
use libnsprobe::common::record::{
    Hit, Lost, OffRecord, StackEnd, WriteRecord, HIT_RETURN, WRITE_REGISTER, WRITE_RETURN,
};
use nsprobe_plan::decode::{FieldFormat, FieldValue};
use nsprobe_symbolize::{escaped, shortened, KernelSymbol, SourceFrame};
use std::io::{Result, Write};
use std::rc::Rc;

/// A hit with everything that output needs to know.
#[derive(Debug)]
pub(crate) struct HitView<'a> {
    /// The record.
    pub(crate) hit: &'a Hit,
    /// When the trace began, in the clock of the records.
    pub(crate) start_ns: u64,
    /// Whether it is the hit of a function's exit.
    pub(crate) at_exit: bool,
    /// `binary:function`, escaped.
    pub(crate) label: &'a str,
    /// The probed file's path.
    pub(crate) binary: &'a str,
    /// The probed function.
    pub(crate) function: &'a str,
    /// How long the call took, for a return whose entry was seen.
    pub(crate) elapsed_ns: Option<u64>,
    /// The fields, and their values.
    pub(crate) formats: &'a [FieldFormat],
    pub(crate) values: &'a [FieldValue],
    /// The stack, innermost first; none when none was asked for.
    pub(crate) frames: &'a [FrameView],
    /// The kernel's stack, innermost first.
    pub(crate) kernel: &'a [KernelFrame<'a>],
    /// The container that it was in, when its name is known.
    pub(crate) container: Option<&'a str>,
}

/// A frame of the kernel's stack, and its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelFrame<'a> {
    /// The return address.
    pub(crate) address: u64,
    /// The function; none when the kernel hides its addresses.
    pub(crate) symbol: Option<&'a KernelSymbol>,
}

/// A frame and its name.
#[derive(Clone, Debug)]
pub(crate) struct FrameView {
    /// Its words in the record.
    pub(crate) frame: libnsprobe::common::record::Frame,
    /// Its name.
    pub(crate) named: Rc<Named>,
}

impl HitView<'_> {
    /// Seconds since the trace began.
    pub(crate) fn seconds(&self) -> f64 {
        self.hit.time_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// The thread's name, without its padding.
    pub(crate) fn comm(&self) -> &[u8] {
        let comm = &self.hit.comm;
        let end = comm
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(comm.len());
        comm.get(..end).unwrap_or_default()
    }

    /// Whether the function returned.
    pub(crate) fn is_return(&self) -> bool {
        self.at_exit || self.hit.flags & HIT_RETURN != 0
    }

    /// Whether nothing is known of the stack's end.
    fn has_unknown_end(&self) -> bool {
        StackEnd::from_u8(self.hit.stack_end).is_none()
    }

    /// Why the stack ends, when frames may be missing.
    pub(crate) fn cut(&self) -> Option<&'static str> {
        cut(StackEnd::from_u8(self.hit.stack_end))
    }
}

/// Why a stack ends, when frames may be missing.
pub(crate) fn cut(end: Option<StackEnd>) -> Option<&'static str> {
    match end {
        Some(StackEnd::None | StackEnd::Outermost) => None,
        Some(StackEnd::Limit) => Some("it has more frames than are taken"),
        Some(StackEnd::Fault) => Some("the next frame's memory is not present"),
        Some(StackEnd::BadFramePointer) => Some("the last function keeps no frame pointer"),
        Some(StackEnd::NotCode) => {
            Some("what follows is no return address: the last function keeps no frame pointer")
        }
        Some(StackEnd::Unsupported) => {
            Some("how the last function is left is described in a way that is not understood")
        }
        Some(StackEnd::BadRow) => Some("the last function is not as its file describes it"),
        Some(StackEnd::CopyEnd) => Some(
            "it was taken before its files' unwind rows were there, and no more of it was copied",
        ),
        Some(StackEnd::Copied) => Some("the copy of its memory is gone"),
        Some(StackEnd::Late) => Some("the next frame's memory did not come back in time"),
        Some(StackEnd::NoRow) => Some("nothing in its file says how the last function is left"),
        None => Some("its frames are not known, or why there are no more"),
    }
}

/// Writes one hit.
pub(crate) fn hit(out: &mut impl Write, view: &HitView<'_>) -> Result<()> {
    time(out, view.hit.time_ns, view.start_ns)?;
    comm(out, view.comm())?;
    if view.hit.pid == view.hit.ns_pid {
        write!(out, "{:>11}", view.hit.pid)?;
    } else {
        let pids = format!("{}/{}", view.hit.pid, view.hit.ns_pid);
        write!(out, "{pids:>11}")?;
    }
    if let Some(container) = view.container {
        write!(out, " [{}]", escaped(container))?;
    }
    write!(out, " {}", view.label)?;
    if view.is_return() {
        out.write_all(b"%return")?;
    }
    for (field, value) in view.formats.iter().zip(view.values) {
        write!(out, " {}={}", escaped(&field.name), fields::text(value))?;
    }
    if let Some(elapsed_ns) = view.elapsed_ns {
        write!(out, " ({})", fields::duration(elapsed_ns))?;
    }
    out.write_all(b"\n")?;
    frames(out, view.frames)?;
    match view.cut() {
        Some(why) if !view.frames.is_empty() || view.has_unknown_end() => {
            writeln!(out, "  stack cut: {why}")?
        }
        _ => {}
    }
    kernel(out, view.kernel)
}

/// Writes the frames of the kernel's stack.
fn kernel(out: &mut impl Write, frames: &[KernelFrame<'_>]) -> Result<()> {
    for (number, frame) in frames.iter().enumerate() {
        write!(out, "  k{number:<3} ")?;
        match frame.symbol {
            Some(symbol) => {
                let offset = frame.address.wrapping_sub(symbol.address);
                write!(out, "{}+{offset:#x}", escaped(&symbol.name))?;
                match &symbol.module {
                    Some(module) => writeln!(out, "  [{}]", escaped(module))?,
                    None => writeln!(out)?,
                }
            }
            None => writeln!(out, "{:#x}", frame.address)?,
        }
    }
    Ok(())
}

/// Writes the frames of a stack.
pub(crate) fn frames(out: &mut impl Write, frames: &[FrameView]) -> Result<()> {
    for (number, frame) in frames.iter().enumerate() {
        self::frame(out, number, frame)?;
    }
    Ok(())
}

/// The functions of a frame, the innermost inlined one first; `[FILE+OFFSET]` when it
/// has no name.
pub(crate) fn functions(view: &FrameView) -> Vec<String> {
    match view.named.functions.as_slice() {
        [] => vec![bracketed(view)],
        functions => functions
            .iter()
            .map(|function| escaped(shortened(&function.function).as_bytes()).to_string())
            .collect(),
    }
}

/// What a change is of.
pub(crate) fn place_of(write: &WriteRecord) -> String {
    let register = || {
        let number = u8::try_from(write.place).ok();
        number.and_then(Register::from_u8)
    };
    match (write.what, register()) {
        (WRITE_REGISTER, Some(register)) => format!("%{register:?}").to_lowercase(),
        (WRITE_RETURN, _) => "return at once".to_owned(),
        _ => format!("{:#x}", write.place),
    }
}

/// Writes one change.
pub(crate) fn write(
    out: &mut impl Write,
    write: &WriteRecord,
    label: &str,
    start_ns: u64,
) -> Result<()> {
    time(out, write.time_ns, start_ns)?;
    let place = place_of(write);
    let failed = if write.done == 0 { " FAILED" } else { "" };
    writeln!(
        out,
        "{:>15} {:>11} {label} set {place}: {:#x} -> {:#x}{failed}",
        "", write.pid, write.before, write.after
    )
}

/// Writes that a probe was turned off.
pub(crate) fn off(out: &mut impl Write, off: &OffRecord, label: &str, start_ns: u64) -> Result<()> {
    time(out, off.time_ns, start_ns)?;
    writeln!(out, "{:>27} {}", "", turned_off(off, label))
}

/// A sentence on a probe that was turned off.
pub(crate) fn turned_off(off: &OffRecord, label: &str) -> String {
    format!(
        "{label} was turned off: it was hit more than {} times a second (--runaway)",
        off.limit
    )
}

/// Writes what was lost.
pub(crate) fn lost(out: &mut impl Write, lost: &Lost, start_ns: u64) -> Result<()> {
    let first_us = lost.first_ns.saturating_sub(start_ns) / 1000;
    time(out, lost.time_ns, start_ns)?;
    writeln!(
        out,
        "lost {} records since {}.{:06}: the ring was full",
        lost.count,
        first_us / 1_000_000,
        first_us % 1_000_000
    )
}

/// Seconds since the begin. Whole numbers: with a hot probe this is the part
/// that counts, and printing a float takes several times as long.
fn time(out: &mut impl Write, time_ns: u64, start_ns: u64) -> Result<()> {
    let us = time_ns.saturating_sub(start_ns) / 1000;
    write!(out, "{:>5}.{:06} ", us / 1_000_000, us % 1_000_000)
}

/// The name of a thread, in a column of its own. Nearly all are plain.
fn comm(out: &mut impl Write, name: &[u8]) -> Result<()> {
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte) && *byte != b'\\';
    match std::str::from_utf8(name) {
        Ok(text) if name.iter().all(is_plain) => write!(out, "{text:<15} "),
        _ => write!(out, "{:<15} ", escaped(name).to_string()),
    }
}

/// Writes one frame: a line for each function inlined there, and one for the
/// function itself.
fn frame(out: &mut impl Write, number: usize, view: &FrameView) -> Result<()> {
    let named = &view.named;
    let doubt = if named.doubtful { "? " } else { "" };
    if named.functions.is_empty() {
        return writeln!(out, "  #{number:<2} {doubt}{}", unnamed(view));
    }
    for function in &named.functions {
        let name = shortened(&function.function);
        write!(out, "  #{number:<2} {doubt}{}", escaped(name.as_bytes()))?;
        if let Some(offset) = function.function_offset.filter(|_| !function.inlined) {
            write!(out, "+{offset:#x}")?;
        }
        place(out, function)?;
        match (&named.path, function.inlined) {
            (_, true) => writeln!(out, "  (inlined)")?,
            (Some(path), _) => {
                writeln!(out, "  ({})", escaped(path.as_os_str().as_encoded_bytes()))?
            }
            (None, _) => writeln!(out)?,
        }
    }
    Ok(())
}

fn place(out: &mut impl Write, function: &SourceFrame) -> Result<()> {
    match (&function.file, function.line) {
        (Some(file), Some(line)) => write!(out, "  {}:{line}", escaped(file_name(file))),
        (Some(file), None) => write!(out, "  {}", escaped(file_name(file))),
        (None, _) => Ok(()),
    }
}

/// A frame without a name in a few letters.
fn bracketed(view: &FrameView) -> String {
    use libnsprobe::common::record::Frame;
    let named = &view.named;
    let file = named.path.as_ref().and_then(|path| path.file_name());
    let file = match file {
        Some(name) => name.to_string_lossy().into_owned(),
        None => named.build_id.clone(),
    };
    let place = match view.frame {
        Frame::Address { address, .. } => format!("[{address:#x}]"),
        Frame::Object { offset, .. } => format!("[{file}+{offset:#x}]"),
    };
    escaped(&place).to_string()
}

/// A frame without a name: the best that identifies it, and why it has none.
fn unnamed(view: &FrameView) -> String {
    use libnsprobe::common::record::Frame;
    let named = &view.named;
    let why = named.unresolved.as_deref().unwrap_or("no name");
    let place = match view.frame {
        Frame::Address { address, .. } => format!("{address:#x}"),
        Frame::Object { offset, .. } if named.build_id.is_empty() => match &named.path {
            Some(path) => format!("{}+{offset:#x}", path.display()),
            None => format!("?+{offset:#x}"),
        },
        Frame::Object { offset, .. } => format!("{}+{offset:#x}", named.build_id),
    };
    match &named.path {
        Some(path) if !named.build_id.is_empty() => {
            escaped(&format!("{place} ({why}) ({})", path.display())).to_string()
        }
        _ => escaped(&format!("{place} ({why})")).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libnsprobe::common::record::Frame;

    fn function(name: &str, line: Option<u32>, inlined: bool) -> SourceFrame {
        SourceFrame {
            function: name.to_owned(),
            function_offset: Some(0x12),
            file: line.map(|_| "/build/src/t_string.c".to_owned()),
            line,
            inlined,
        }
    }

    fn frame_view(named: Named) -> FrameView {
        FrameView {
            frame: Frame::Object {
                id: 1,
                offset: 0x40,
                method: 2,
            },
            named: Rc::new(named),
        }
    }

    fn text(frames: &[FrameView], end: StackEnd) -> String {
        let mut hit = Hit {
            time_ns: 1_500_000_000,
            pid: 1234,
            ns_pid: 1,
            stack_end: end as u8,
            ..Hit::default()
        };
        hit.comm[..5].copy_from_slice(b"re\nd\x1b");
        let view = HitView {
            hit: &hit,
            at_exit: false,
            start_ns: 1_000_000_000,
            label: "redis-server:setCommand",
            binary: "/usr/bin/redis-server",
            function: "setCommand",
            elapsed_ns: None,
            formats: &[],
            values: &[],
            frames,
            kernel: &[],
            container: Some("we\u{1b}b"),
        };
        let mut out = Vec::new();
        self::hit(&mut out, &view).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_hit_is_one_line() {
        let line = text(&[], StackEnd::None);
        assert_eq!(line.lines().count(), 1);
        assert!(line.contains("0.500000"), "{line}");
        assert!(
            line.contains("1234/1 [we\\x1bb] redis-server:setCommand"),
            "{line}"
        );
        assert!(!line.contains('\u{1b}'));
    }

    #[test]
    fn stacks_show_inlined_and_doubtful_and_unknown_frames() {
        let path = Some(PathBuf::from("/usr/bin/redis-server"));
        use std::path::PathBuf;
        let frames = [
            frame_view(Named {
                functions: vec![
                    function("inner", Some(7), true),
                    function("outer", Some(9), false),
                ],
                path: path.clone(),
                ..Named::default()
            }),
            frame_view(Named {
                functions: vec![function("guess", None, false)],
                doubtful: true,
                path,
                ..Named::default()
            }),
            frame_view(Named {
                build_id: "abcd".into(),
                unresolved: Some("the file has no symbols".into()),
                ..Named::default()
            }),
        ];
        let lines = text(&frames, StackEnd::BadFramePointer);
        let lines: Vec<&str> = lines.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "  #0  inner  t_string.c:7  (inlined)",
                "  #0  outer+0x12  t_string.c:9  (/usr/bin/redis-server)",
                "  #1  ? guess+0x12  (/usr/bin/redis-server)",
                "  #2  abcd+0x40 (the file has no symbols)",
                "  stack cut: the last function keeps no frame pointer",
            ]
        );
    }
}
