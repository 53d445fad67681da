// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output that is handed on by whole lines: a command that is traced often writes to the same
//! file, and its words must not come to stand within a line of ours. (A pipe that is full
//! still takes what is longer than `PIPE_BUF` in pieces, pipe(7).)

use anyhow::Context;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Bytes that are collected.
const ROOM: usize = 1 << 16;

/// Collects lines on their way to `out`.
pub(crate) struct Lines<W: Write> {
    out: W,
    collected: Vec<u8>,
    /// Number of bytes that are whole lines.
    whole: usize,
}

/// Destination of a verb's output.
pub(crate) type Output = Lines<Box<dyn Write>>;

impl Output {
    pub(crate) fn to_stdout() -> Output {
        Lines::to(Box::new(NamedOutput {
            out: io::stdout(),
            name: "standard output".to_owned(),
        }))
    }

    pub(crate) fn to_stderr() -> Output {
        Lines::to(Box::new(io::stderr()))
    }

    /// A file, which is made, or loses what was in it; standard output without one.
    pub(crate) fn to_file(path: Option<&Path>) -> anyhow::Result<Output> {
        let Some(path) = path else {
            return Ok(Output::to_stdout());
        };
        let file = File::create(path);
        let file = file.with_context(|| format!("cannot write to {}", path.display()))?;
        Ok(Lines::to(Box::new(NamedOutput {
            out: file,
            name: path.display().to_string(),
        })))
    }
}

/// A destination whose errors name it.
struct NamedOutput<W> {
    out: W,
    name: String,
}

impl<W> NamedOutput<W> {
    fn failed(&self, error: io::Error) -> io::Error {
        let why = format!("cannot write to {}: {error}", self.name);
        io::Error::new(error.kind(), why)
    }
}

impl<W: Write> Write for NamedOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        written.map_err(|error| self.failed(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        flushed.map_err(|error| self.failed(error))
    }
}

impl<W: Write> Lines<W> {
    fn to(out: W) -> Lines<W> {
        Lines {
            out,
            collected: Vec::with_capacity(ROOM),
            whole: 0,
        }
    }

    /// Hands on `count` bytes.
    fn hand_on(&mut self, count: usize) -> io::Result<()> {
        let (bytes, _) = self.collected.split_at(count);
        let done = self.out.write_all(bytes);
        // Also after a failure: nothing is written twice.
        self.collected.drain(..count);
        self.whole = 0;
        done
    }
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Search these alone: a line may have megabytes, and comes in small pieces.
        if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
            self.whole = self.collected.len() + end + 1;
        }
        self.collected.extend_from_slice(bytes);
        if self.collected.len() >= ROOM && self.whole > 0 {
            self.hand_on(self.whole)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hand_on(self.collected.len())?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Lines<W> {
    /// Writes what was collected before an error.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of each write.
    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_takes_what_is_printed() {
        let path = std::env::temp_dir().join(format!("nsprobe-lines-to-{}", std::process::id()));
        std::fs::write(&path, "what was there before").expect("writable");
        let mut lines = Output::to_file(Some(&path)).expect("it can be written to");
        writeln!(lines, "a line").expect("there is room");
        drop(lines);
        assert_eq!(
            std::fs::read_to_string(&path).expect("it is there"),
            "a line\n"
        );
        std::fs::remove_file(&path).expect("it is ours");
        let mut full = Output::to_file(Some(Path::new("/dev/full"))).expect("it can be opened");
        let error = writeln!(full, "a line").and_then(|()| full.flush());
        let error = error.expect_err("nothing fits").to_string();
        assert!(error.starts_with("cannot write to /dev/full: "), "{error}");
        let wrong = Output::to_file(Some(Path::new("/nowhere/at/all")));
        let why = wrong.err().map(|error| error.to_string());
        assert_eq!(why.as_deref(), Some("cannot write to /nowhere/at/all"));
    }

    #[test]
    fn each_write_is_of_whole_lines() {
        let mut lines = Lines::to(Writes::default());
        let mut wanted = Vec::new();
        for number in 0..2000 {
            let line = format!("{number} {}\n", "x".repeat(number % 300));
            wanted.extend_from_slice(line.as_bytes());
            // As `write!` does it: a piece at a time.
            for piece in line.as_bytes().chunks(100) {
                lines.write_all(piece).expect("it takes all");
            }
        }
        lines.flush().expect("it takes all");
        let writes = &lines.out.0;
        assert!(writes.len() > 3, "{}", writes.len());
        assert!(writes.iter().all(|write| write.ends_with(b"\n")));
        assert!(writes.iter().all(|write| write.len() < ROOM + 400));
        assert_eq!(writes.concat(), wanted);
    }

    #[test]
    fn a_line_of_megabytes_in_small_pieces_is_kept_whole() {
        let mut lines = Lines::to(Writes::default());
        let long = [vec![b'x'; 100 * ROOM], vec![b'\n']].concat();
        for piece in long.chunks(10) {
            lines.write_all(piece).expect("it takes all");
        }
        lines.flush().expect("it takes all");
        assert_eq!(lines.out.0, [long]);
    }
}
