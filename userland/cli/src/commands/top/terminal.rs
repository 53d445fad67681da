// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal: keys and signals in, the screen out. However we end, it is as it was.

use super::draw::{draw, room};
use super::screen::Screen;
use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::DefaultTerminal;
use std::os::fd::AsFd;
use std::time::Duration;

/// Signals that ask us to end: they come when we look for them, so that the terminal is
/// given back first.
pub(super) struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// From now on they wait for us.
    pub(super) fn new() -> anyhow::Result<Signals> {
        let mut set = SigSet::empty();
        let all = [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
        ];
        all.into_iter().for_each(|signal| set.add(signal));
        set.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Signals {
            fd: SignalFd::with_flags(&set, flags)?,
        })
    }

    /// Waits for one, at most so long; whether it came.
    pub(super) fn wait(&self, limit: Duration) -> anyhow::Result<bool> {
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        let limit = limit + Duration::from_micros(999);
        poll(&mut fds, PollTimeout::try_from(limit)?)?;
        Ok(self.fd.read_signal()?.is_some())
    }
}

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
        Ok(Terminal {
            inner: ratatui::try_init()?,
        })
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
