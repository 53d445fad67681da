// SPDX-License-Identifier: MIT OR Apache-2.0
//! Says on a terminal what output waits for, when that takes long.

use super::jobs::Busy;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nsprobe_text::escaped;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// Shorter waits are not reported.
const SHORT: Duration = Duration::from_millis(500);
/// A wait that is reported once where there is no terminal.
const LONG: Duration = Duration::from_secs(5);
/// Interval at which the mark turns.
const TURN: Duration = Duration::from_millis(100);

/// A line that is there while output waits.
#[derive(Debug)]
pub(crate) struct Progress {
    is_quiet: bool,
    is_terminal: bool,
    /// When nothing was traced any more: since then a signal ends the wait, and nothing else.
    ended: Option<Instant>,
    /// Whether a long wait was reported.
    is_reported: bool,
    shown: Option<(ProgressBar, String)>,
}

impl Progress {
    /// Creates it without a message.
    pub(crate) fn new(is_quiet: bool) -> Progress {
        Progress {
            is_quiet,
            is_terminal: io::stderr().is_terminal(),
            ended: None,
            is_reported: false,
            shown: None,
        }
    }

    /// Nothing is traced any more.
    pub(crate) fn at_end(&mut self) {
        self.ended = Some(Instant::now());
    }

    /// Something has waited since then, for what the text says.
    pub(crate) fn show(&mut self, since: Instant, text: impl FnOnce() -> String) {
        if self.is_quiet || since.elapsed() < SHORT {
            return;
        }
        if !self.is_terminal {
            let is_due = self.ended.is_some_and(|ended| ended.elapsed() >= LONG);
            if is_due && !std::mem::replace(&mut self.is_reported, true) {
                eprintln!("nsprobe: {}{}", text(), self.advice());
            }
            return;
        }
        let text = text() + self.advice();
        match &mut self.shown {
            Some((bar, shown)) if *shown != text => {
                bar.set_message(text.clone());
                *shown = text;
            }
            Some(_) => {}
            None => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                if let Ok(style) = ProgressStyle::with_template("nsprobe: {msg} {spinner}") {
                    bar.set_style(style);
                }
                bar.set_message(text.clone());
                bar.enable_steady_tick(TURN);
                self.shown = Some((bar, text));
            }
        }
    }

    fn advice(&self) -> &'static str {
        match self.ended {
            Some(_) => " (Ctrl-C prints what there is)",
            None => "",
        }
    }

    /// Hides the message, as output continues.
    pub(crate) fn hide(&mut self) {
        if let Some((bar, _)) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}

/// Describes the work of a thread that output waits for.
pub(super) fn text(busy: Option<Busy>) -> String {
    let Some(busy) = busy else {
        return "reading debug information…".to_owned();
    };
    let path = escaped(&busy.path.display().to_string()).to_string();
    match busy.bytes.div_ceil(1 << 20) {
        0 | 1 => format!("reading the debug information of {path}…"),
        megabytes => format!("reading the debug information of {path} ({megabytes} MB)…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_called_by_name_and_size() {
        let mut busy = Busy {
            id: 1,
            since: Instant::now(),
            path: "/usr/bin/a\u{1b}b".into(),
            bytes: 512 << 20,
        };
        let told = text(Some(busy.clone()));
        assert!(told.starts_with("reading the debug information of /usr/bin/a"));
        assert!(
            told.ends_with("b (512 MB)…") && !told.contains('\u{1b}'),
            "{told}"
        );
        busy.bytes = 4096;
        assert!(text(Some(busy)).ends_with("b…"));
    }
}
