// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports which processes have executed another program, through the kernel's process connector
//! (`drivers/connector/cn_proc.c`, `include/uapi/linux/cn_proc.h`).

use crate::{Result, TargetError};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{
    bind, recv, send, socket_with, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `CN_IDX_PROC` and `CN_VAL_PROC`, the connector's number, and its multicast group.
const PROCESSES: u32 = 1;
/// `PROC_CN_MCAST_LISTEN`.
const LISTEN: u32 = 1;
/// `PROC_EVENT_EXEC`.
const EXEC: u32 = 2;
/// `NLMSG_DONE`.
const DONE: u16 = 3;
/// Bytes of `struct nlmsghdr`, and of it and `struct cn_msg`.
const NETLINK_HEADER: usize = 16;
const HEADERS: usize = NETLINK_HEADER + 20;
/// In `struct proc_event`, after the headers: the kind, and the process id of an exec.
const WHAT: usize = HEADERS;
const TGID: usize = HEADERS + 20;
/// Bytes of events that may wait for us: some 10,000.
const WAITING_BYTES: usize = 4 << 20;

/// A subscription to all execs of the machine. It needs root in the initial user and
/// pid namespaces.
#[derive(Debug)]
pub struct Execs {
    socket: OwnedFd,
}

/// What has happened since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// Processes that called `execve`, as often as they did.
    pub pids: Vec<u32>,
    /// Others were missed: there were too many.
    pub missed: bool,
}

impl Execs {
    /// Subscribes.
    pub fn new() -> Result<Execs> {
        subscribe()
            .map(|socket| Execs { socket })
            .map_err(|errno| TargetError::NoExecs {
                source: errno.into(),
            })
    }

    /// Takes what has happened; does not wait.
    pub fn take(&self) -> Executed {
        let mut executed = Executed::default();
        let mut message = [0; 256];
        loop {
            match recv(&self.socket, &mut message, RecvFlags::DONTWAIT) {
                Ok((length, _)) => {
                    let pid = message.get(..length).and_then(exec_of);
                    executed.pids.extend(pid);
                }
                Err(Errno::NOBUFS) => executed.missed = true,
                Err(Errno::INTR) => {}
                Err(_) => return executed,
            }
        }
    }
}

impl AsFd for Execs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn subscribe() -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(netlink::CONNECTOR),
    )?;
    // Without the privilege the usual room must do; misses are counted.
    let _ = set_socket_recv_buffer_size_force(&socket, WAITING_BYTES);
    bind(&socket, &SocketAddrNetlink::new(0, PROCESSES))?;
    send(&socket, &subscription(), SendFlags::empty())?;
    Ok(socket)
}

/// The message that asks for execs and nothing else.
fn subscription() -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADERS + 8);
    let length = (HEADERS + 8) as u32;
    // struct nlmsghdr: length, type, flags, sequence, port.
    message.extend(length.to_ne_bytes());
    message.extend(DONE.to_ne_bytes());
    message.extend([0; 10]);
    // struct cn_msg: index, value, sequence, acknowledge, length, flags.
    message.extend(PROCESSES.to_ne_bytes());
    message.extend(PROCESSES.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(8u16.to_ne_bytes());
    message.extend([0; 2]);
    // struct proc_input: operation, events.
    message.extend(LISTEN.to_ne_bytes());
    message.extend(EXEC.to_ne_bytes());
    message
}

/// The process in a message, if it is an exec.
fn exec_of(message: &[u8]) -> Option<u32> {
    let word = |at: usize| Some(u32::from_ne_bytes(*message.get(at..)?.first_chunk()?));
    let is_exec = word(NETLINK_HEADER)? == PROCESSES && word(WHAT)? == EXEC;
    word(TGID).filter(|_| is_exec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exec_is_read_and_nothing_else_is() {
        let mut message = subscription();
        message.truncate(HEADERS);
        message.extend(EXEC.to_ne_bytes());
        message.extend([0; 12]);
        message.extend(7u32.to_ne_bytes());
        message.extend(6u32.to_ne_bytes());
        assert_eq!(exec_of(&message), Some(6));
        for length in 0..message.len() {
            assert_eq!(exec_of(&message[..length]), None);
        }
        message[WHAT] = 1;
        assert_eq!(exec_of(&message), None);
    }
}
