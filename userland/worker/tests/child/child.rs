// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests' child: the same sandbox and parser as the program's, and what hostile files
//! may bring a parser to.
//!
//! `attempt WHAT` enters the sandbox and tries what must not be possible; status 0 means
//! that it was, 1 that it was refused, 2 that there is no sandbox.

#![expect(unsafe_code, reason = "what is tried has no safe wrapper")]

mod attempts;

use nsprobe_probes::{Listing, Refused};
use nsprobe_symbolize::{FrameSource, SourceFrame};
use nsprobe_unwind::Digest;
use nsprobe_worker::{Holder, Parse, Parser, Reply, Reported, Request, SourceFrames};
use std::os::fd::OwnedFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        Some("attempt") => attempts::run(words.get(2).map_or("", String::as_str)),
        _ => nsprobe_worker::serve_with(Misled::default),
    }
}

/// A parser that some files mislead.
#[derive(Default)]
struct Misled {
    parser: Parser,
    /// Whether answers name a file that was never there.
    lies: bool,
    /// The file that was opened last.
    label: Vec<u8>,
    /// The name of the last kept rows.
    kept: Digest,
}

impl Parse for Misled {
    fn answer(&mut self, request: Request, files: Vec<OwnedFd>) -> Reply {
        if let Request::Open { label, .. } = &request {
            mislead(label);
            self.label.clone_from(label);
            if label.ends_with(b"another-answer") {
                return Reply::Closed;
            }
            self.lies |= label.ends_with(b"names-another-file");
        }
        if let Request::Probes { probe_query, .. } = &request {
            mislead(probe_query.typed.as_bytes());
            if probe_query.typed == "names-no-program" {
                let mut reply = self.parser.answer(request, files);
                if let Reply::Probes(Ok(found)) = &mut reply {
                    found.probes[0].entry = Some(7);
                }
                return reply;
            }
            if probe_query.typed == "wants-more-and-more" {
                return Reply::Probes(Err(Refused::NeedsDebugFiles));
            }
        }
        if let Request::List { .. } = &request {
            if self.label.ends_with(b"lists-without-end") {
                let next = Some(0);
                return Reply::Listing(Ok(Listing {
                    next,
                    ..Listing::default()
                }));
            }
        }
        if let Request::Attach { files, .. } = &request {
            files.iter().for_each(|file| mislead(&file.label));
        }
        let few = [("answers-a-few", 3), ("answers-none", 0)];
        let few = few
            .iter()
            .find(|(name, _)| self.label.ends_with(name.as_bytes()));
        match self.parser.answer(request, files) {
            Reply::Answers {
                mut answers,
                failures,
            } if few.is_some() => {
                answers.truncate(few.map_or(0, |(_, count)| *count));
                Reply::Answers { answers, failures }
            }
            Reply::Kept(_) if self.label.ends_with(b"names-no-rows") => {
                Reply::Kept(Digest::default())
            }
            Reply::Kept(_) if self.label.ends_with(b"names-rows-of-another") => {
                Reply::Kept(self.kept)
            }
            Reply::Kept(digest) => {
                self.kept = digest;
                Reply::Kept(digest)
            }
            Reply::Answers { answers, failures } if self.lies => Reply::Answers {
                answers: answers.into_iter().map(lie).collect(),
                failures,
            },
            reply => reply,
        }
    }
}

fn lie(mut reported: Reported) -> Reported {
    reported.found = Ok(SourceFrames {
        frames: vec![SourceFrame {
            function: "lie".to_owned(),
            function_offset: None,
            file: None,
            line: None,
            inlined: false,
        }],
        source: FrameSource::Dwarf,
        holder: Holder::Attached(0),
        note: None,
    });
    reported
}

/// Does what the end of a file's name says.
fn mislead(label: &[u8]) {
    let is = |name: &str| label.ends_with(name.as_bytes());
    if is("panics") {
        panic!("as a parser may");
    } else if is("aborts") {
        std::process::abort();
    } else if is("overflows") {
        println!("{}", overflow(0));
    } else if is("takes-a-terabyte") {
        std::hint::black_box(vec![1u8; 1 << 40]);
    } else if is("takes-all-slowly") {
        let mut kept = Vec::new();
        loop {
            kept.push(std::hint::black_box(Vec::<u8>::with_capacity(64 << 20)));
        }
    } else if is("loops") {
        loop {
            std::hint::spin_loop();
        }
    } else if is("opens") {
        let _ = std::fs::File::open("/etc/passwd");
    } else if is("floods") {
        // A length of 4 GiB, where an answer is expected.
        let flood = [0xff; 64];
        let mut control = rustix::net::SendAncillaryBuffer::default();
        let flags = rustix::net::SendFlags::empty();
        let _ = rustix::net::sendmsg(
            std::io::stdin(),
            &[std::io::IoSlice::new(&flood)],
            &mut control,
            flags,
        );
    } else if is("ends") {
        std::process::exit(7);
    }
}

#[expect(unconditional_recursion, reason = "that is the point")]
fn overflow(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 512]);
    overflow(depth + 1) + room[depth as usize % 512]
}
