// SPDX-License-Identifier: MIT OR Apache-2.0
//! The child's side: from the first instruction to the last answer.

use crate::channel::{Channel, NoMessage};
use crate::parser::Parser;
use crate::process::Sandbox;
use crate::protocol::{decode, encode, reason, Failure, Reply, Request, REQUEST_BYTES_MAX};
use crate::sandbox;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::ExitCode;
use std::thread;

/// The first argument of a child; the parent's pid follows, and how it is kept in.
pub(crate) const ARGUMENT: &str = "__parse";
/// Said where no sandbox is asked for.
pub(crate) const UNCONFINED: &str = "unconfined";
/// The stack that files are parsed on, in bytes; a guard page is after it.
const STACK_BYTES: usize = 8 << 20;

/// Answers requests.
pub trait Parse {
    /// The answer to a request that came with these files.
    fn answer(&mut self, request: Request, files: Vec<OwnedFd>) -> Reply;
}

impl Parse for Parser {
    fn answer(&mut self, request: Request, files: Vec<OwnedFd>) -> Reply {
        Parser::answer(self, request, files)
    }
}

/// Whether this process was started to be a child: to be asked before anything else is
/// done.
pub fn is_asked_for() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == ARGUMENT)
}

/// Gives up all privileges and answers until the parent is gone.
pub fn serve() -> ExitCode {
    serve_with(Parser::default)
}

/// Serves with another parser, which is made without privileges.
pub fn serve_with<P: Parse>(parser: impl FnOnce() -> P + Send + 'static) -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(2).collect();
    let parent = words.first().and_then(|word| word.to_str()?.parse().ok());
    let sandbox = match words.get(1).is_some_and(|word| word == UNCONFINED) {
        true => Sandbox::None,
        false => Sandbox::Whole,
    };
    // What a panic would print is of no use: it is an answer.
    std::panic::set_hook(Box::new(|_| ()));
    let Ok(socket) = sandbox::take_socket() else {
        return ExitCode::FAILURE;
    };
    let channel = Channel::new(socket);
    nsprobe_symbolize::stay_in_one_thread();
    if let Err(why) = sandbox::prepare(parent, sandbox) {
        say(&channel, &Reply::Failed(Failure::NoSandbox(reason(&why))));
        return ExitCode::FAILURE;
    }
    let thread = thread::Builder::new().stack_size(STACK_BYTES);
    let work = move || {
        match sandbox::close_door(sandbox) {
            Ok(()) => say(&channel, &Reply::Ready),
            Err(why) => {
                return say(&channel, &Reply::Failed(Failure::NoSandbox(reason(&why))));
            }
        };
        answer_all(&channel, parser());
    };
    match thread.spawn(work).map(thread::JoinHandle::join) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Answers until the parent is gone.
fn answer_all(channel: &Channel<impl AsFd>, mut parser: impl Parse) {
    loop {
        let (message, files) = match channel.receive(REQUEST_BYTES_MAX, None) {
            Ok(received) => received,
            Err(NoMessage::Closed | NoMessage::Late | NoMessage::TooLong) => return,
        };
        let Some(request) = decode::<Request>(&message) else {
            return;
        };
        drop(message);
        // What a panic leaves half done belongs to a file that is then let go.
        let answered = catch_unwind(AssertUnwindSafe(|| parser.answer(request, files)));
        say(
            channel,
            &answered.unwrap_or(Reply::Failed(Failure::Panicked)),
        );
    }
}

/// Says it; a parent that has gone hears nothing.
fn say(channel: &Channel<impl AsFd>, reply: &Reply) {
    if let Some(bytes) = encode(reply) {
        let _ = channel.send(&bytes, &[], None);
    }
}
