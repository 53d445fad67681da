// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::commands::top::sample::{container, interval};
use nsprobe_trace::tasks::Place;

fn screen() -> Screen {
    let mut screen = Screen::new(Choice::default());
    screen.resize(20);
    screen.update(interval());
    screen
}

fn press(screen: &mut Screen, code: KeyCode) -> KeyOutcome {
    screen.key(KeyEvent::from(code))
}

fn names(screen: &Screen) -> Vec<&str> {
    screen.rows.iter().map(|row| row.name.as_str()).collect()
}

#[test]
fn keys_that_end_it() {
    let mut screen = screen();
    assert_eq!(press(&mut screen, KeyCode::Char('q')), KeyOutcome::Quit);
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.key(control), KeyOutcome::Quit);
    // While a text is typed, and on the help, q is a letter like others.
    press(&mut screen, KeyCode::Char('/'));
    assert_eq!(press(&mut screen, KeyCode::Char('q')), KeyOutcome::Draw);
    assert_eq!(screen.typed.as_deref(), Some("q"));
    assert_eq!(screen.key(control), KeyOutcome::Quit);
    press(&mut screen, KeyCode::Esc);
    press(&mut screen, KeyCode::Char('?'));
    assert_eq!(press(&mut screen, KeyCode::Char('q')), KeyOutcome::Draw);
    assert!(!screen.shows_help);
}

#[test]
fn what_is_chosen_stays_so_when_rows_move() {
    let mut screen = screen();
    press(&mut screen, KeyCode::Down);
    assert_eq!(screen.rows[screen.at].id, RowId::Group(Place::Host));
    press(&mut screen, KeyCode::Char('n'));
    assert_eq!(screen.rows[screen.at].id, RowId::Group(Place::Host));
    let mut without = interval();
    without.groups.retain(|group| group.place != Place::Host);
    screen.update(without);
    assert!(screen.at < screen.rows.len());
}

#[test]
fn rows_are_unfolded_and_folded() {
    let mut screen = screen();
    let folded = screen.rows.len();
    press(&mut screen, KeyCode::Right);
    assert_eq!(screen.rows.len(), folded + 3);
    // To the process, into its threads, to a thread, and back by folding.
    for key in [KeyCode::Down, KeyCode::Right, KeyCode::Down, KeyCode::Down] {
        press(&mut screen, key);
    }
    assert!(matches!(screen.rows[screen.at].id, RowId::Thread(_)));
    for key in [KeyCode::Left, KeyCode::Left, KeyCode::Left, KeyCode::Left] {
        press(&mut screen, key);
    }
    assert_eq!((screen.at, screen.rows.len()), (0, folded));
    assert!(screen.choice.unfolded.is_empty());
}

#[test]
fn rows_are_sorted_by_what_is_asked_for() {
    let mut screen = screen();
    assert!(names(&screen)[0].starts_with("web"));
    press(&mut screen, KeyCode::Char('c'));
    assert!(names(&screen)[0].ends_with("red (podman)"), "turned round");
    press(&mut screen, KeyCode::Char('n'));
    assert!(
        names(&screen)[0].ends_with("red (podman)"),
        "{:?}",
        names(&screen)
    );
    press(&mut screen, KeyCode::Char('t'));
    assert!(names(&screen)[0].starts_with("web"));
}

#[test]
fn what_is_paused_does_not_change() {
    let mut screen = screen();
    let before = screen.rows.clone();
    press(&mut screen, KeyCode::Char(' '));
    screen.update(Interval::default());
    assert_eq!(screen.rows, before);
    press(&mut screen, KeyCode::Char(' '));
    screen.update(Interval::default());
    assert!(screen.rows.is_empty());
    for key in [KeyCode::Down, KeyCode::End, KeyCode::Enter, KeyCode::Left] {
        press(&mut screen, key);
    }
}

#[test]
fn a_filter_is_taken_back() {
    let mut screen = screen();
    press(&mut screen, KeyCode::Char('/'));
    for char in "weX".chars() {
        press(&mut screen, KeyCode::Char(char));
    }
    press(&mut screen, KeyCode::Backspace);
    press(&mut screen, KeyCode::Enter);
    let fits: Vec<&RowId> = screen.rows.iter().map(|row| &row.id).collect();
    assert_eq!(fits, [&RowId::Group(container("web")), &RowId::Unaccounted]);
    press(&mut screen, KeyCode::Esc);
    assert_eq!(screen.rows.len(), 5);
}
