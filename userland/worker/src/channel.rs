// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages over the socket between us and a child: a length of four bytes, little-endian,
//! then that number of bytes. Files go with the length.
//!
//! A child waits for ever: its parent's end ends it. The parent waits until a deadline,
//! for each byte.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// Most files that go with a message.
pub(crate) const FILES_MAX: usize = 64;
/// Bytes that are taken at once: no memory is taken for what was only announced.
const PIECE_BYTES: usize = 1 << 20;
const HEAD_BYTES: usize = 4;

/// Why no message came, or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoMessage {
    /// The other side is gone.
    Closed,
    /// The deadline has passed.
    Late,
    /// The message is longer than it may be.
    TooLong,
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Channel<S> {
    socket: S,
}

impl<S: AsFd> Channel<S> {
    pub(crate) fn new(socket: S) -> Channel<S> {
        Channel { socket }
    }

    /// Sends a message and its files.
    pub(crate) fn send(
        &self,
        message: &[u8],
        files: &[BorrowedFd<'_>],
        until: Option<Instant>,
    ) -> Result<(), NoMessage> {
        let length = u32::try_from(message.len()).map_err(|_| NoMessage::TooLong)?;
        self.send_piece(&length.to_le_bytes(), files, until)?;
        self.send_piece(message, &[], until)
    }

    fn send_piece(
        &self,
        mut bytes: &[u8],
        mut files: &[BorrowedFd<'_>],
        until: Option<Instant>,
    ) -> Result<(), NoMessage> {
        while !bytes.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
                return Err(NoMessage::TooLong);
            }
            let flags = match until {
                Some(_) => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
                None => SendFlags::NOSIGNAL,
            };
            match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(sent) => {
                    bytes = bytes.get(sent..).unwrap_or_default();
                    files = &[];
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, until)?,
                Err(_) => return Err(NoMessage::Closed),
            }
        }
        Ok(())
    }

    /// Takes a message of at most `limit` bytes, and its files.
    pub(crate) fn receive(
        &self,
        limit: usize,
        until: Option<Instant>,
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), NoMessage> {
        let mut files = Vec::new();
        let mut head = [0; HEAD_BYTES];
        self.fill(&mut head, &mut files, until)?;
        let length = u32::from_le_bytes(head) as usize;
        if length > limit {
            return Err(NoMessage::TooLong);
        }
        let mut message = Vec::new();
        while message.len() < length {
            let from = message.len();
            message.resize(length.min(from + PIECE_BYTES), 0);
            let piece = message.get_mut(from..).unwrap_or_default();
            self.fill(piece, &mut files, until)?;
        }
        Ok((message, files))
    }

    fn fill(
        &self,
        mut bytes: &mut [u8],
        files: &mut Vec<OwnedFd>,
        until: Option<Instant>,
    ) -> Result<(), NoMessage> {
        while !bytes.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = match until {
                Some(_) => RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
                None => RecvFlags::CMSG_CLOEXEC,
            };
            let into = &mut [IoSliceMut::new(bytes)];
            match recvmsg(&self.socket, into, &mut control, flags) {
                Ok(got) if got.bytes == 0 => return Err(NoMessage::Closed),
                Ok(got) => {
                    bytes = bytes.split_at_mut(got.bytes.min(bytes.len())).1;
                    for message in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(rights) = message {
                            files.extend(rights);
                        }
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, until)?,
                Err(_) => return Err(NoMessage::Closed),
            }
        }
        Ok(())
    }

    /// Waits until there is something to do, or the deadline has passed.
    fn wait(&self, what: PollFlags, until: Option<Instant>) -> Result<(), NoMessage> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(NoMessage::Late);
        }
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut polled = [PollFd::new(&self.socket, what)];
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(_) => Err(NoMessage::Closed),
        }
    }
}
