// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables for people: columns as wide as what is in them, lines no longer than the terminal.

use crossterm::terminal;
use std::io::{self, IsTerminal, Result, Write};
use std::time::Duration;

/// Least width of a terminal that is believed.
const WIDTH_MIN: u16 = 20;

/// A column's head, and on which side its cells end evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Text: even on the left.
    Left(&'static str),
    /// Numbers: even on the right.
    Right(&'static str),
}

impl Head {
    fn text(self) -> &'static str {
        match self {
            Head::Left(text) | Head::Right(text) => text,
        }
    }
}

/// Drops the columns that matter least, until lines have room for the others, and for a number of
/// characters of the last one; `least` names the columns to drop, in this order.
pub(crate) fn fit(
    heads: &mut Vec<Head>,
    rows: &mut [Vec<String>],
    width: Option<usize>,
    last: usize,
    least: &[&str],
) {
    let Some(width) = width else {
        return;
    };
    for name in least {
        let widths = widths(heads, rows);
        let needed = match widths.split_last() {
            Some((widest, others)) => {
                others.iter().sum::<usize>() + others.len() + (*widest).min(last)
            }
            None => 0,
        };
        if needed <= width {
            return;
        }
        if let Some(at) = heads.iter().position(|head| head.text() == *name) {
            heads.remove(at);
            for row in rows.iter_mut().filter(|row| at < row.len()) {
                row.remove(at);
            }
        }
    }
}

/// Width of each column.
fn widths(heads: &[Head], rows: &[Vec<String>]) -> Vec<usize> {
    let widest = |(at, head): (usize, &Head)| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(head.text().chars().count())
    };
    heads.iter().enumerate().map(widest).collect()
}

/// Writes a table. Cells are escaped already. Lines are cut after the last numbers only: a part
/// of a number is another one.
pub(crate) fn write(
    out: &mut impl Write,
    heads: &[Head],
    rows: &[Vec<String>],
    width: Option<usize>,
) -> Result<()> {
    let widths = widths(heads, rows);
    let numbers = heads
        .iter()
        .rposition(|head| matches!(head, Head::Right(_)));
    let uncut = numbers.map_or(0, |last| widths.iter().take(last + 1).sum::<usize>() + last);
    let width = width.map(|width| width.max(uncut));
    let titles: Vec<String> = heads.iter().map(|head| head.text().to_owned()).collect();
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for ((cell, head), width) in row.iter().zip(heads).zip(&widths) {
            if !line.is_empty() {
                line.push(' ');
            }
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            match head {
                Head::Left(_) => line.extend([cell, padding.as_str()]),
                Head::Right(_) => line.extend([padding.as_str(), cell]),
            }
        }
        writeln!(out, "{}", cut(line.trim_end(), width))?;
    }
    Ok(())
}

/// A line with at most `width` characters.
pub(crate) fn cut(line: &str, width: Option<usize>) -> &str {
    let end = width.and_then(|width| line.char_indices().nth(width));
    let end = end.map_or(line.len(), |(at, _)| at);
    line.get(..end).unwrap_or(line)
}

/// The beginning of a cell, and a mark where that is not all.
pub(crate) fn shortened(cell: &str, width: usize) -> String {
    match cell.chars().count() > width {
        true => cut(cell, Some(width.saturating_sub(1))).to_owned() + "…",
        false => cell.to_owned(),
    }
}

/// Maximum line length on standard output; `None` if it is not a terminal.
pub(crate) fn output_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (columns, _) = terminal::size().ok()?;
    // A serial console says 0, as it does not know.
    (columns >= WIDTH_MIN).then_some(columns.into())
}

/// A time span as `[[D-]H:]MM:SS.hh` with hundredths below an hour.
pub(crate) fn cpu_time(ns: u64) -> String {
    let hundredths = ns / 10_000_000;
    let (seconds, part) = (hundredths / 100, hundredths % 100);
    let (minutes, second) = (seconds / 60, seconds % 60);
    match minutes {
        0..=59 => format!("{minutes}:{second:02}.{part:02}"),
        _ => format!("{}:{:02}:{second:02}", minutes / 60, minutes % 60),
    }
}

/// A time span in its greatest unit: `12s`, `5m`, `3h`, `2d`.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..=99 => format!("{seconds}s"),
        100..=5999 => format!("{}m", seconds / 60),
        6000..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_needed_and_lines_no_wider() {
        let heads = [
            Head::Left("NAME"),
            Head::Right("PID"),
            Head::Left("COMMAND"),
        ];
        let row = |name: &str, pid: &str, command: &str| {
            vec![name.to_owned(), pid.to_owned(), command.to_owned()]
        };
        let rows = [row("wéb", "1234", "a"), row("host", "1", "b c")];
        let text = |width| {
            let mut out = Vec::new();
            write(&mut out, &heads, &rows, width).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            text(None),
            "NAME  PID COMMAND\nwéb  1234 a\nhost    1 b c\n"
        );
        assert_eq!(text(Some(11)), "NAME  PID C\nwéb  1234 a\nhost    1 b\n");
        // Where there is no room for numbers, lines are longer: half a number is another one.
        assert_eq!(text(Some(8)), "NAME  PID\nwéb  1234\nhost    1\n");
    }

    #[test]
    fn what_matters_least_goes_first_where_there_is_no_room() {
        let table = |width| {
            let mut heads = vec![
                Head::Left("NAME"),
                Head::Right("UID"),
                Head::Right("PID"),
                Head::Left("COMMAND"),
            ];
            let cells = ["web", "1000", "1234", "a long command line"];
            let mut rows = vec![cells.map(str::to_owned).to_vec()];
            fit(
                &mut heads,
                &mut rows,
                width,
                10,
                &["UID", "COMMAND", "NAME"],
            );
            let mut out = Vec::new();
            write(&mut out, &heads, &rows, width).unwrap();
            String::from_utf8(out).unwrap()
        };
        let whole = "NAME  UID  PID COMMAND\nweb  1000 1234 a long command line\n";
        assert_eq!(table(None), whole);
        assert_eq!(table(Some(80)), whole);
        let cut = "NAME  UID  PID COMMAND\nweb  1000 1234 a long com\n";
        assert_eq!(table(Some(25)), cut);
        assert_eq!(table(Some(20)), "NAME  PID COMMAND\nweb  1234 a long com\n");
        assert_eq!(table(Some(12)), "NAME  PID\nweb  1234\n");
        assert_eq!(table(Some(3)), " PID\n1234\n");
    }

    #[test]
    fn long_cells_are_cut_with_a_mark() {
        assert_eq!(shortened("wéb", 3), "wéb");
        assert_eq!(shortened("wébs", 3), "wé…");
    }

    #[test]
    fn times_are_short() {
        assert_eq!(cpu_time(61_250_000_000), "1:01.25");
        assert_eq!(cpu_time(3_600_000_000_000), "1:00:00");
        let of = |seconds| age(Duration::from_secs(seconds));
        assert_eq!([99, 100, 7200, 200_000].map(of), ["99s", "1m", "2h", "2d"]);
    }
}
