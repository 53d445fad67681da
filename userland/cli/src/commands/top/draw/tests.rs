// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::commands::top::rows::Choice;
use crate::commands::top::sample::interval;
use crossterm::event::{KeyCode, KeyEvent};
use ratatui::backend::TestBackend;
use ratatui::Terminal;

fn screen() -> Screen {
    let mut screen = Screen::new(Choice::default());
    screen.update(interval());
    screen
}

fn press(screen: &mut Screen, keys: &[KeyCode]) {
    for key in keys {
        screen.key(KeyEvent::from(*key));
    }
}

/// The text on a terminal of this size, without the spaces at the ends of lines.
fn drawn(screen: &mut Screen, width: u16, height: u16) -> String {
    screen.resize(room(height));
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, screen)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    let line = |line: &[&str]| line.concat().trim_end().to_owned() + "\n";
    cells.chunks(width.into()).map(line).collect()
}

#[test]
fn containers_and_what_is_in_them_fit_80_columns() {
    let mut screen = screen();
    press(
        &mut screen,
        &[KeyCode::Enter, KeyCode::Down, KeyCode::Right],
    );
    assert_eq!(
        drawn(&mut screen, 80, 13),
        "\
nsprobe top  2.0 s  CPU 64.2 % of 400 %
  %CPU   %ALL  SWITCH/S  PROC  THRD  NAME
  50.5   12.6      5050     2     3  - web (podman)
  47.0   11.8                     2    - 165/1 redis-server
  45.0   11.2                              165/1 redis-server
   2.0    0.5                              170/5 bio_aof
   3.0    0.8                     0      171/9 sh (ended)
   0.5    0.1                            (others, ended or between two looks)
  12.5    3.1      1250     1     1  + (host)
   0.1    0.0        15     1     1  + (kernel)
   0.0    0.0         0     1     1  + \\x1b[31mred (podman)
   1.0    0.2                          (no room to say whose)
q quit  ? help  / filter  space pause  by CPU
"
    );
}

#[test]
fn all_rows_together_are_the_sum() {
    let interval = interval();
    let rows = crate::commands::top::rows::rows(&interval, &Choice::default());
    let sum: u64 = rows.iter().map(|row| row.cpu_ns).sum();
    assert_eq!(sum, interval.cpu_ns());
}

#[test]
fn what_does_not_fit_is_reached_by_scrolling() {
    let mut screen = screen();
    screen.resize(room(5));
    press(&mut screen, &[KeyCode::End]);
    let text = drawn(&mut screen, 44, 5);
    assert_eq!(
        text,
        "\
nsprobe top  2.0 s  CPU 64.2 % of 400 %
  %CPU  PROC  THRD  NAME
   0.0     1     1  + \\x1b[31mred (podman)
   1.0                (no room to say whose)
q quit  ? help  / filter  space pause  by CP
"
    );
    // The container is shown as long as there is any room.
    for (width, heads) in [
        (59, "  %CPU   %ALL  SWITCH/S  PROC  THRD  NAME"),
        (58, "  %CPU  SWITCH/S  PROC  THRD  NAME"),
        (51, "  %CPU  PROC  THRD  NAME"),
        (41, "  %CPU  THRD  NAME"),
        (35, "  %CPU  NAME"),
    ] {
        let text = drawn(&mut screen, width, 5);
        assert_eq!(text.lines().nth(1), Some(heads), "{width}");
    }
}

#[test]
fn a_terminal_of_any_size_is_drawn_on() {
    let mut screen = screen();
    press(&mut screen, &[KeyCode::Char('?')]);
    for (width, height) in [(1, 1), (3, 2), (10, 4), (300, 100), (80, 24)] {
        drawn(&mut screen, width, height);
    }
    let text = drawn(&mut screen, 80, 24);
    assert!(text.contains("Enter, right, left, l h   unfold"), "{text}");
}

#[test]
fn what_is_typed_and_filtered_is_shown() {
    let mut screen = screen();
    press(&mut screen, &[KeyCode::Char('/')]);
    press(
        &mut screen,
        &"RED".chars().map(KeyCode::Char).collect::<Vec<_>>(),
    );
    assert!(drawn(&mut screen, 80, 24).contains("show only: RED_"));
    press(&mut screen, &[KeyCode::Enter, KeyCode::Char(' ')]);
    let text = drawn(&mut screen, 80, 24);
    assert!(text.contains("only: RED"), "{text}");
    assert!(text.contains("[paused]"), "{text}");
    // Its process redis-server makes the container `web` fit.
    assert!(
        text.contains("web (podman)") && !text.contains("(host)"),
        "{text}"
    );
}
