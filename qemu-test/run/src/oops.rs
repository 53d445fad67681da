// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells a crash that QEMU alone has made from every other one.
//!
//! The kernel patches its own text (static keys, static calls) by a breakpoint that it takes
//! away when every CPU has been told. A CPU of QEMU's TCG may run a translation of the text as
//! it was meanwhile, and dies of a breakpoint that is in memory no more. Processors do not.
//! Such a crash is recognised by proof alone:
//!
//! - it is the first trouble of the console, and an `Oops: int3`;
//! - the instruction pointer is `symbol+0x…/0x…` of the kernel's own text. A module's has
//!   `[name]` after it; a bare number is text of no owner: that of an unloaded
//!   module, which this kernel fills with breakpoints;
//! - the byte in front of the instruction pointer, as the oops shows memory (`Code: … xx <yy>`),
//!   is not `cc`: a breakpoint that is really there was put there by somebody.
//!
//! What cannot be proven, as a line is missing, is a crash like others.

use crate::trouble;

/// Whether the first trouble of this console is QEMU's own.
pub(crate) fn is_qemus(console: &str) -> bool {
    let mut lines = console
        .lines()
        .skip_while(|line| trouble::find(line).is_none());
    let is_breakpoint = lines.next().is_some_and(|line| line.contains("Oops: int3"));
    is_breakpoint && is_in_the_kernels_text(lines.clone()) && is_gone_from_memory(lines)
}

/// The first instruction pointer is in a function of the kernel's own.
fn is_in_the_kernels_text<'a>(mut lines: impl Iterator<Item = &'a str>) -> bool {
    let place = lines.find_map(|line| line.split_once("RIP: 0010:"));
    let Some((_, place)) = place else {
        return false;
    };
    let is_symbol = place.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    is_symbol && place.contains("+0x") && !place.contains('[')
}

/// The first `Code:` line has another byte than a breakpoint's before the marked one.
fn is_gone_from_memory<'a>(mut lines: impl Iterator<Item = &'a str>) -> bool {
    let code = lines.find_map(|line| line.split_once("Code: "));
    let before = code.and_then(|(_, bytes)| bytes.split_once('<'));
    let byte = before.and_then(|(bytes, _)| bytes.split_whitespace().next_back());
    byte.is_some_and(|byte| u8::from_str_radix(byte, 16).is_ok_and(|byte| byte != 0xcc))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A console with one oops, as this kernel prints it.
    fn console(place: &str, code: &str) -> String {
        format!(
            "[    3.1] nsprobe-guest: running\n[   58.8] Oops: int3: 0000 [#1] SMP NOPTI\n\
             [   58.8] CPU: 0 UID: 0 PID: 0 Comm: swapper/0\n[   58.9] RIP: 0010:{place}\n\
             [   58.9] Code: {code}\n"
        )
    }

    const GONE: &str = "66 90 0f 1f 44 <00> 00 48 89 df";

    #[test]
    fn a_breakpoint_that_is_in_memory_no_more_is_qemus() {
        assert!(is_qemus(&console("ttwu_do_activate+0x93/0x1b0", GONE)));
        assert!(is_qemus(&console("__schedule+0x3/0x10", GONE)));
    }

    #[test]
    fn a_breakpoint_that_is_there_is_somebodys() {
        let there = GONE.replace("44 <", "cc <");
        assert!(!is_qemus(&console(
            "perf_event_namespaces+0x1/0x90",
            &there
        )));
    }

    /// Of the controls of `controls.rs`: a breakpoint in the kernel's text, and a timer whose
    /// module is gone.
    #[test]
    fn crashes_that_were_made_on_purpose_are_not_qemus() {
        let left = "0f 1f 84 00 00 00 00 00 90 90 90 90 cc <0f> 1e fa 0f 1f 44 00 00";
        assert!(!is_qemus(&console("int_sqrt+0x1/0x90", left)));
        let freed = "cc cc cc cc cc cc cc cc <cc> cc cc cc cc cc";
        assert!(!is_qemus(&console("0xffffffffc04ea0e1", freed)));
    }

    #[test]
    fn text_of_modules_is_not_the_kernels() {
        for place in [
            "handler+0x3/0x10 [nsprobe]",
            // An unloaded module's: its text has no name and is full of breakpoints.
            "0xffffffffc0a41015",
            "0xffffffffc0a41015/0x20",
        ] {
            assert!(!is_qemus(&console(place, GONE)), "{place}");
        }
    }

    #[test]
    fn what_is_not_proven_is_a_crash() {
        let good = console("f+0x1/0x2", GONE);
        assert!(is_qemus(&good));
        let without = |part: &str| {
            let lines = good.lines().filter(|line| !line.contains(part));
            lines.collect::<Vec<_>>().join("\n")
        };
        for part in ["Oops", "RIP:", "Code:"] {
            assert!(!is_qemus(&without(part)), "without {part}");
        }
        assert!(!is_qemus(&good.replace("int3", "0000")));
        let unreadable = "Unable to access opcode bytes at 0xffffffffc0a40feb.";
        assert!(!is_qemus(&console("f+0x1/0x2", unreadable)));
        assert!(!is_qemus(&console("f+0x1/0x2", "<0f> 0b")));
        let earlier = "[    3.2] WARNING: CPU: 0 PID: 9 at x\n";
        assert!(!is_qemus(&format!("{earlier}{good}")));
    }
}
