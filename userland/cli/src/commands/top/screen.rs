// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the screen, and the effect of keys on it. Pure: the terminal is elsewhere.

use super::interval::Interval;
use super::rows::{rows, Choice, RowId, TopRow};
use crate::args::TopSort;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Longest text to filter by, in characters.
const FILTER_MAX: usize = 100;

/// Request from a key to the loop that runs the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyOutcome {
    /// To be drawn anew.
    Draw,
    Quit,
}

/// The state of the screen.
#[derive(Clone, Debug, Default)]
pub(super) struct Screen {
    pub(super) choice: Choice,
    pub(super) interval: Interval,
    /// Whether new readings are withheld from the screen.
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    /// The text that is being typed.
    pub(super) typed: Option<String>,
    pub(super) rows: Vec<TopRow>,
    /// Index of the selected row.
    pub(super) at: usize,
    /// The first row on the screen.
    pub(super) first: usize,
    /// Number of rows that fit.
    pub(super) height: usize,
}

impl Screen {
    /// A screen that shows what the user asked for.
    pub(super) fn new(choice: Choice) -> Screen {
        Screen {
            choice,
            ..Screen::default()
        }
    }

    /// There is another interval.
    pub(super) fn update(&mut self, interval: Interval) {
        if !self.is_paused {
            self.interval = interval;
            self.refresh();
        }
    }

    /// There is room for `height` rows.
    pub(super) fn resize(&mut self, height: usize) {
        self.height = height;
        self.scroll();
    }

    /// A key was pressed.
    pub(super) fn key(&mut self, key: KeyEvent) -> KeyOutcome {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return KeyOutcome::Quit;
        }
        if self.typed.is_some() {
            self.typing(key.code);
        } else if self.shows_help {
            self.shows_help = false;
        } else if matches!(key.code, KeyCode::Char('q')) {
            return KeyOutcome::Quit;
        } else {
            self.command(key.code);
        }
        KeyOutcome::Draw
    }

    fn command(&mut self, code: KeyCode) {
        match code {
            KeyCode::Up | KeyCode::Char('k') => self.move_to(self.at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.move_to(self.at + 1),
            KeyCode::PageUp => self.move_to(self.at.saturating_sub(self.height)),
            KeyCode::PageDown => self.move_to(self.at + self.height),
            KeyCode::Home => self.move_to(0),
            KeyCode::End => self.move_to(usize::MAX),
            KeyCode::Enter => self.fold(None),
            KeyCode::Right | KeyCode::Char('l') => self.fold(Some(true)),
            KeyCode::Left | KeyCode::Char('h') => self.fold_or_leave(),
            KeyCode::Char('/') => self.typed = Some(self.choice.filter.clone()),
            KeyCode::Esc => self.filter(String::new()),
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?') => self.shows_help = true,
            KeyCode::Char('c') => self.sort(TopSort::Cpu),
            KeyCode::Char('n') => self.sort(TopSort::Name),
            KeyCode::Char('t') => self.sort(TopSort::Tasks),
            KeyCode::Char('s') => self.sort(TopSort::Switches),
            KeyCode::Char('r') => {
                self.choice.reverse = !self.choice.reverse;
                self.refresh();
            }
            _ => {}
        }
    }

    fn typing(&mut self, code: KeyCode) {
        let Some(mut typed) = self.typed.take() else {
            return;
        };
        match code {
            KeyCode::Enter => return self.filter(typed),
            KeyCode::Esc => return,
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Char(char) if typed.chars().count() < FILTER_MAX => typed.push(char),
            _ => {}
        }
        self.typed = Some(typed);
    }

    fn filter(&mut self, filter: String) {
        self.choice.filter = filter;
        self.refresh();
    }

    /// Sorts; by the same key again, the other way round.
    fn sort(&mut self, sort: TopSort) {
        self.choice.reverse = self.choice.sort == sort && !self.choice.reverse;
        self.choice.sort = sort;
        self.refresh();
    }

    /// Unfolds the chosen row, or folds it; or whatever it is not.
    fn fold(&mut self, unfold: Option<bool>) {
        let Some(TopRow {
            id,
            unfolded: Some(is),
            ..
        }) = self.rows.get(self.at)
        else {
            return;
        };
        match unfold.unwrap_or(!is) {
            true => self.choice.unfolded.insert(id.clone()),
            false => self.choice.unfolded.remove(id),
        };
        self.refresh();
    }

    /// Folds the chosen row, or goes to the one that it is below.
    fn fold_or_leave(&mut self) {
        let Some(row) = self.rows.get(self.at) else {
            return;
        };
        if row.unfolded == Some(true) {
            return self.fold(Some(false));
        }
        let mut above = self.rows.iter().take(self.at).enumerate();
        if let Some(at) = above.rfind(|(_, other)| other.depth < row.depth) {
            self.move_to(at.0);
        }
    }

    fn move_to(&mut self, at: usize) {
        self.at = at.min(self.rows.len().saturating_sub(1));
        self.scroll();
    }

    /// Rebuilds the rows; the selected row stays selected, wherever it moved.
    fn refresh(&mut self) {
        let chosen: Option<RowId> = self.rows.get(self.at).map(|row| row.id.clone());
        self.rows = rows(&self.interval, &self.choice);
        let same = |row: &TopRow| Some(&row.id) == chosen.as_ref();
        // A selection at the top stays at the top, as users watch the largest consumer.
        let at = match self.at {
            0 => 0,
            at => self.rows.iter().position(same).unwrap_or(at),
        };
        self.move_to(at);
    }

    fn scroll(&mut self) {
        let height = self.height.max(1);
        let lowest = (self.at + 1).saturating_sub(height);
        let first = self.first.clamp(lowest, self.at.max(lowest));
        // No room is left empty below the last row.
        self.first = first.min(self.rows.len().saturating_sub(height));
    }
}

#[cfg(test)]
mod tests;
