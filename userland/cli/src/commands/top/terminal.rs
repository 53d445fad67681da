// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal: keys and signals in, the screen out. However we end, it is as it was.

use super::draw::{draw, room};
use super::screen::Screen;
use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use nsprobe_trace::signals::{self, Signals};
use ratatui::DefaultTerminal;
use std::time::Duration;

/// Input from the terminal.
pub(super) enum Input {
    /// A key was pressed.
    Key(KeyEvent),
    /// It has another size.
    Resize,
    /// We are asked to end.
    End,
    /// Nothing.
    None,
}

/// The terminal, while the screen is on it.
pub(super) struct Terminal {
    inner: DefaultTerminal,
}

impl Terminal {
    /// Takes the terminal; a panic gives it back before its message.
    pub(super) fn new() -> anyhow::Result<Terminal> {
        let inner = ratatui::try_init()?;
        signals::at_forced_end(ratatui::restore);
        Ok(Terminal { inner })
    }

    pub(super) fn draw(&mut self, screen: &mut Screen) -> anyhow::Result<()> {
        screen.resize(room(self.inner.size()?.height));
        self.inner.draw(|frame| draw(frame, screen))?;
        Ok(())
    }

    /// Waits for a key or a signal, at most so long.
    pub(super) fn input(&mut self, signals: &Signals, limit: Duration) -> anyhow::Result<Input> {
        if signals.wait(Duration::ZERO)? {
            return Ok(Input::End);
        }
        if !event::poll(limit)? {
            return Ok(Input::None);
        }
        Ok(match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => Input::Key(key),
            Event::Resize(..) => Input::Resize,
            _ => Input::None,
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
