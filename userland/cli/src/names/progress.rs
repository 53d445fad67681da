// SPDX-License-Identifier: MIT OR Apache-2.0
//! Says on a terminal what output waits for, when that takes long.

use super::threads::Busy;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nsprobe_symbolize::escaped;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// What takes less needs no words.
const SHORT: Duration = Duration::from_millis(500);
/// How often the mark turns.
const TURN: Duration = Duration::from_millis(100);

/// A line that is there while output waits.
#[derive(Debug)]
pub(super) struct Progress {
    /// There is nobody to see it.
    is_quiet: bool,
    shown: Option<(ProgressBar, String)>,
}

impl Progress {
    /// None yet.
    pub(super) fn new(is_quiet: bool) -> Progress {
        Progress {
            is_quiet: is_quiet || !io::stderr().is_terminal(),
            shown: None,
        }
    }

    /// Output has waited since then, for a thread that does this.
    pub(super) fn show(&mut self, since: Instant, busy: Option<Busy>) {
        if self.is_quiet || since.elapsed() < SHORT {
            return;
        }
        let text = busy.map_or_else(|| "reading debug information…".to_owned(), |it| text(&it));
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

    /// Output goes on.
    pub(super) fn hide(&mut self) {
        if let Some((bar, _)) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}

/// What a thread does, for people.
fn text(busy: &Busy) -> String {
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
        let told = text(&busy);
        assert!(told.starts_with("reading the debug information of /usr/bin/a"));
        assert!(
            told.ends_with("b (512 MB)…") && !told.contains('\u{1b}'),
            "{told}"
        );
        busy.bytes = 4096;
        assert!(text(&busy).ends_with("b…"));
    }
}
