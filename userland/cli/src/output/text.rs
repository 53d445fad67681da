// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records as text for people: a line for each hit, then its stack.
//!
//! Every name comes from a traced program, and is escaped.

use crate::output::fields;
use libnsprobe::common::program::Register;
use libnsprobe::common::record::{
    Frame, Lost, OffRecord, StackEnd, WriteRecord, WRITE_REGISTER, WRITE_RETURN,
};
use nsprobe_symbolize::{shortened, SourceFrame};
use nsprobe_text::{counted, escaped};
use nsprobe_trace::hits::view::{is_doubtful, may_lack_frames, FrameView, HitView, KernelFrame};
use nsprobe_trace::names::named::{file_name, NamedFrame};
use std::io::{Result, Write};

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
            Some(
            "the last function is left by a register that is not followed through the stack, such as rbx, or by a rule \
             that is not understood")
        }
        Some(StackEnd::BadRow) => Some("the last function is not as its file describes it"),
        Some(StackEnd::CopyEnd) => Some(
            "it was taken before its files' unwind rows were there, and no more of it was copied",
        ),
        Some(StackEnd::Copied) => Some("the copy of its memory is gone"),
        Some(StackEnd::Late) => Some("the next frame's memory did not come back in time"),
        Some(StackEnd::NoRow) => Some("nothing in its file says how the last function is left"),
        Some(StackEnd::RowsNotReady) => Some("the unwind rows of its file were not ready yet"),
        None => Some("its frames are not known, or why there are no more"),
    }
}

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
    match cut(StackEnd::from_u8(view.hit.stack_end)) {
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

/// Writes the frames of a stack, why it ends early, and a blank line.
pub(crate) fn stack(out: &mut impl Write, stack: &[FrameView], end: u8) -> Result<()> {
    frames(out, stack)?;
    cut_note(out, end)?;
    writeln!(out)
}

/// Writes why a stack is cut, if it is.
pub(crate) fn cut_note(out: &mut impl Write, end: u8) -> Result<()> {
    match cut(StackEnd::from_u8(end)) {
        Some(why) => writeln!(out, "  stack cut: {why}"),
        None => Ok(()),
    }
}

/// Writes the frames of a stack.
pub(crate) fn frames(out: &mut impl Write, frames: &[FrameView]) -> Result<()> {
    for (number, view) in frames.iter().enumerate() {
        frame(out, number, view, is_doubtful(frames, number))?;
    }
    if may_lack_frames(frames) {
        writeln!(
            out,
            "  frames may be missing: generated code was left by its frame pointer, which it need \
             not keep"
        )?;
    }
    Ok(())
}

/// Names of the functions of a frame, the innermost first, with the source of each.
pub(crate) fn names(view: &FrameView, is_doubtful: bool) -> Vec<(String, Option<&SourceFrame>)> {
    let doubt = doubt(is_doubtful);
    let functions = view.named.functions.iter();
    let names = functions.map(|function| {
        let name = shortened(&function.function);
        let name = format!("{doubt}{}", escaped(name.as_bytes()));
        (name, Some(function))
    });
    match view.named.functions.is_empty() {
        true => vec![(format!("{doubt}{}", bracketed(view)), None)],
        false => names.collect(),
    }
}

/// Prefix of a doubtful frame.
fn doubt(is_doubtful: bool) -> &'static str {
    match is_doubtful {
        true => "? ",
        false => "",
    }
}

/// Description of the place of a change.
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
        "{label} was turned off: it was hit more than {} a second (--runaway)",
        counted(off.limit, "time")
    )
}

/// Writes what was lost.
pub(crate) fn lost(out: &mut impl Write, lost: &Lost, start_ns: u64) -> Result<()> {
    let first_us = lost.first_ns.saturating_sub(start_ns) / 1000;
    time(out, lost.time_ns, start_ns)?;
    writeln!(
        out,
        "lost {} since {}.{:06}: the ring was full",
        counted(lost.count, "record"),
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
fn frame(out: &mut impl Write, number: usize, view: &FrameView, is_doubtful: bool) -> Result<()> {
    let named = &view.named;
    let doubt = doubt(is_doubtful);
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

/// A function without a name: where it begins, or else where the frame is.
fn bracketed(view: &FrameView) -> String {
    let mut of_function = view.frame;
    if let (Frame::Object { offset, .. }, Some(start)) =
        (&mut of_function, view.named.function_start)
    {
        *offset = start;
    }
    format!("[{}]", escaped(&short_place(&view.named, of_function)))
}

/// A place in a few letters: `libc.so.6+0x928bb`. Its build-id is in JSON.
fn short_place(named: &NamedFrame, frame: Frame) -> String {
    let file = named.path.as_ref().and_then(|path| path.file_name());
    let file = match file {
        Some(name) => name.to_string_lossy().into_owned(),
        None if named.build_id.is_empty() => "?".to_owned(),
        None => named.build_id.clone(),
    };
    match frame {
        Frame::Address { address, .. } => format!("{address:#x}"),
        Frame::Object { offset, .. } => format!("{file}+{offset:#x}"),
    }
}

/// A frame without a name: where it is. The reason is said where that alone could help to
/// find its file, or there is none.
fn unnamed(view: &FrameView) -> String {
    let (named, place) = (&view.named, short_place(&view.named, view.frame));
    let text = match (&named.path, view.frame) {
        (Some(path), Frame::Object { .. }) => format!("{place}  ({})", path.display()),
        _ => {
            let why = named.unresolved.as_deref().unwrap_or("no name");
            format!("{place} ({why})")
        }
    };
    escaped(&text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use libnsprobe::common::record::{Hit, Method, Unmapped};

    use std::rc::Rc;

    fn function(name: &str, line: Option<u32>, inlined: bool) -> SourceFrame {
        SourceFrame {
            function: name.to_owned(),
            function_offset: Some(0x12),
            file: line.map(|_| "/build/src/t_string.c".to_owned()),
            line,
            inlined,
        }
    }

    fn frame_view(named: NamedFrame) -> FrameView {
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

    /// Frames that were found by unwind rows and frame pointers, in a file or in generated code.
    fn walked(frames: &[(&str, Method, bool)]) -> Vec<FrameView> {
        let view = |(name, method, generated): &(&str, Method, bool)| FrameView {
            frame: match generated {
                true => Frame::Address {
                    address: 0x9000,
                    why: Unmapped::Anonymous as u8,
                    method: *method as u8,
                },
                false => Frame::Object {
                    id: 1,
                    offset: 0x40,
                    method: *method as u8,
                },
            },
            named: Rc::new(NamedFrame {
                functions: vec![function(name, None, false)],
                ..NamedFrame::default()
            }),
        };
        frames.iter().map(view).collect()
    }

    #[test]
    fn what_generated_code_leads_to_is_doubtful() {
        let frames = walked(&[
            ("open", Method::Registers, false),
            ("native", Method::Row, false),
            ("stub", Method::Row, true),
            ("handle", Method::FramePointer, true),
            ("call_helper", Method::FramePointer, false),
            ("start_thread", Method::Row, false),
        ]);
        let doubtful: Vec<bool> = (0..6).map(|number| is_doubtful(&frames, number)).collect();
        assert_eq!(doubtful, [false, false, false, true, true, false]);
        let lines = text(&frames, StackEnd::Outermost);
        let lines: Vec<&str> = lines.lines().skip(3).collect();
        assert_eq!(
            lines,
            [
                "  #2  stub+0x12",
                "  #3  ? handle+0x12",
                "  #4  ? call_helper+0x12",
                "  #5  start_thread+0x12",
                "  frames may be missing: generated code was left by its frame pointer, which it \
                 need not keep",
            ]
        );
        // If files have no rows for them, their frame pointers are the only source: not marked as
        // doubtful.
        let frames = walked(&[
            ("open", Method::Registers, false),
            ("caller", Method::FramePointer, false),
        ]);
        assert!(!may_lack_frames(&frames) && !is_doubtful(&frames, 1));
        // The caller of generated code that was probed itself.
        let frames = walked(&[
            ("stub", Method::Registers, true),
            ("caller", Method::FramePointer, false),
        ]);
        assert!(may_lack_frames(&frames) && !is_doubtful(&frames, 0));
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
            frame_view(NamedFrame {
                functions: vec![
                    function("inner", Some(7), true),
                    function("outer", Some(9), false),
                ],
                path: path.clone(),
                ..NamedFrame::default()
            }),
            frame_view(NamedFrame {
                functions: vec![function("guess", None, false)],
                doubtful: true,
                path,
                ..NamedFrame::default()
            }),
            frame_view(NamedFrame {
                build_id: "abcd".into(),
                unresolved: Some("the file has no symbols".into()),
                ..NamedFrame::default()
            }),
            frame_view(NamedFrame {
                build_id: "abcd".into(),
                unresolved: Some("offset 0x40 is between the known functions".into()),
                path: Some("/usr/lib/libc.so.6".into()),
                ..NamedFrame::default()
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
                "  #3  libc.so.6+0x40  (/usr/lib/libc.so.6)",
                "  stack cut: the last function keeps no frame pointer",
            ]
        );
    }
}
