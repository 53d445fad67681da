// SPDX-License-Identifier: MIT OR Apache-2.0
//! The screen as characters.

use super::interval::Interval;
use super::rows::TopRow;
use super::screen::Screen;
use crate::args::TopSort;
use nsprobe_text::{counted, escaped};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};
use ratatui::Frame;

/// Characters that a name has, where there is room for columns in front of it.
pub(super) const NAME_MIN: usize = 24;

/// The columns in front of the name, from the left.
const COLUMNS: [Column; 5] = [
    Column::Cpu,
    Column::All,
    Column::Switches,
    Column::Processes,
    Column::Threads,
];
/// Those that go where lines have no room, those that matter least first.
const LEAST: [Column; 4] = [
    Column::All,
    Column::Switches,
    Column::Processes,
    Column::Threads,
];

/// A column of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Cpu,
    All,
    Switches,
    Processes,
    Threads,
}

impl Column {
    /// Its heading, as wide as its cells, with the blanks in front of them.
    fn head(self) -> &'static str {
        match self {
            Column::Cpu => "  %CPU",
            Column::All => "   %ALL",
            Column::Switches => "  SWITCH/S",
            Column::Processes => "  PROC",
            Column::Threads => "  THRD",
        }
    }

    fn cell(self, row: &TopRow, interval: &Interval) -> String {
        let optional = |number: Option<usize>| number.map_or(String::new(), |n| n.to_string());
        let seconds = interval.elapsed_ns as f64 / 1e9;
        let rate = |switches: u64| format!("{:.0}", switches as f64 / seconds.max(1e-9));
        let text = match self {
            Column::Cpu => format!("{:.1}", interval.percent(row.cpu_ns)),
            Column::All => format!("{:.1}", interval.percent_of_all(row.cpu_ns)),
            Column::Switches => row.switches.map_or(String::new(), rate),
            Column::Processes => optional(row.processes),
            Column::Threads => optional(row.threads),
        };
        format!("{text:>0$}", self.head().len())
    }
}

/// The columns that a line of this width has room for, beside the name.
fn columns(width: u16) -> Vec<Column> {
    let mut columns = COLUMNS.to_vec();
    for least in LEAST {
        let heads: usize = columns.iter().map(|column| column.head().len()).sum();
        if heads + NAME_MIN <= width.into() {
            break;
        }
        columns.retain(|column| *column != least);
    }
    columns
}

const HELP: [&str; 12] = [
    "arrows, j k, PgUp, PgDn   move",
    "Enter, right, left, l h   unfold and fold: processes, threads",
    "c n t s                   sort by CPU, name, threads, switches",
    "r                         turn the order round",
    "/                         show only what has a text in it; Esc: all",
    "space                     pause",
    "q, Ctrl-C                 quit",
    "",
    "%CPU: of one CPU. %ALL: of all together. A container's time is the",
    "kernel's own account; that of its processes comes from two looks at",
    "them, and what these leave over has a row of its own.",
    "(any key to go on)",
];

/// Number of rows that fit.
pub(super) fn room(height: u16) -> usize {
    usize::from(height.saturating_sub(3))
}

pub(super) fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let [top, head, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(summary(screen)), top);
    let titles = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    let columns = columns(frame.area().width);
    let heads: String = columns.iter().map(|column| column.head()).collect();
    let heads = Paragraph::new(heads + "  NAME");
    frame.render_widget(heads.style(titles), head);
    for (line, row) in (body.top()..body.bottom()).zip(shown(screen)) {
        let (at, row) = row;
        let area = Rect::new(body.x, line, body.width, 1);
        let style = match at == screen.at {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        let text = row_text(row, &screen.interval, &columns);
        frame.render_widget(Paragraph::new(text).style(style), area);
    }
    frame.render_widget(Paragraph::new(footer(screen)), foot);
    if screen.shows_help {
        draw_help(frame);
    }
}

fn shown(screen: &Screen) -> impl Iterator<Item = (usize, &TopRow)> {
    screen.rows.iter().enumerate().skip(screen.first)
}

/// The first line.
fn summary(screen: &Screen) -> String {
    let interval = &screen.interval;
    let mut text = format!(
        "nsprobe top  {:.1} s  CPU {:.1} % of {} %",
        interval.elapsed_ns as f64 / 1e9,
        interval.percent(interval.cpu_ns()),
        100 * interval.cpus
    );
    if interval.lost > 0 {
        text.push_str(&format!("  {} lost", counted(interval.lost, "record")));
    }
    if screen.is_paused {
        text.push_str("  [paused]");
    }
    text
}

fn footer(screen: &Screen) -> Line<'static> {
    if let Some(typed) = &screen.typed {
        return Line::raw(format!("show only: {}_", escaped(typed)));
    }
    let sort = match screen.choice.sort {
        TopSort::Cpu => "CPU",
        TopSort::Name => "name",
        TopSort::Tasks => "threads",
        TopSort::Switches => "switches",
    };
    let turned = if screen.choice.reverse {
        ", turned round"
    } else {
        ""
    };
    let filter = match screen.choice.filter.as_str() {
        "" => String::new(),
        filter => format!("  only: {}", escaped(filter)),
    };
    Line::raw(format!(
        "q quit  ? help  / filter  space pause  by {sort}{turned}{filter}"
    ))
}

/// A row as a line.
fn row_text(row: &TopRow, interval: &Interval, columns: &[Column]) -> String {
    let fold = match row.unfolded {
        Some(true) => "- ",
        Some(false) => "+ ",
        None => "  ",
    };
    let cells: String = columns
        .iter()
        .map(|column| column.cell(row, interval))
        .collect();
    format!("{cells}  {}{fold}{}", "  ".repeat(row.depth), row.name)
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (72.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let place = Rect::new(
        (area.width - width) / 2,
        (area.height - height) / 2,
        width,
        height,
    );
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::raw(*line)).collect();
    frame.render_widget(Clear, place);
    let text = Paragraph::new(lines).block(Block::bordered().title(" nsprobe top "));
    frame.render_widget(text, place);
}

#[cfg(test)]
mod tests;
