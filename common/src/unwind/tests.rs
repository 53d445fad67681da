// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Tables and steps on memory that is an array.
use super::*;
use proptest::prelude::*;

extern crate std;
use std::vec;
use std::vec::Vec;

/// Words from an address on.
struct Stack {
    from: u64,
    words: Vec<u64>,
}

impl Memory for Stack {
    fn word(&self, address: u64) -> Option<u64> {
        let into = address.checked_sub(self.from)?;
        match into % 8 {
            0 => self.words.get((into / 8) as usize).copied(),
            _ => None,
        }
    }

    fn register(&self, number: u8) -> Option<u64> {
        (number == 10).then_some(0x1020)
    }

    fn thread_pointer(&self) -> Option<u64> {
        Some(0x1108)
    }
}

fn stack(words: &[u64]) -> Stack {
    Stack {
        from: 0x1000,
        words: words.to_vec(),
    }
}

const START: Registers = Registers {
    rip: 0x40_0000,
    rsp: 0x1000,
    rbp: 0x1010,
    knows_rbp: true,
    at: At::Innermost,
    switches: 0,
    has_left: false,
};

fn rule(base: Base, offset: i32) -> Rule {
    Rule {
        base: base as u8,
        offset,
        ..Rule::default()
    }
}

fn saved(rule: Rule, saved: Saved, saved_at: i32) -> Rule {
    Rule {
        saved: saved as u8,
        saved_at,
        ..rule
    }
}

fn stepped(rule: Rule, words: &[u64]) -> Result<(Registers, u64), Stop> {
    let mut at = START;
    let slot = rule.step(&mut at, &stack(words))?;
    Ok((at, slot))
}

fn caller(rip: u64, rsp: u64, rbp: u64) -> Registers {
    Registers {
        rip,
        rsp,
        rbp,
        knows_rbp: true,
        at: At::Call,
        ..START
    }
}

#[test]
fn the_caller_is_behind_what_was_pushed() {
    // Only the return address; rbx in front of it; rbp in front of it, at both places.
    let got = stepped(rule(Base::Rsp, 8), &[77]);
    assert_eq!(got, Ok((caller(77, 0x1008, 0x1010), 0x1000)));
    let got = stepped(rule(Base::Rsp, 16), &[5, 77]);
    assert_eq!(got, Ok((caller(77, 0x1010, 0x1010), 0x1008)));
    let pushed = saved(rule(Base::Rsp, 16), Saved::AtFrame, -16);
    assert_eq!(
        stepped(pushed, &[5, 77]),
        Ok((caller(77, 0x1010, 5), 0x1008))
    );
    let deeper = saved(rule(Base::Rsp, 24), Saved::AtFrame, -24);
    assert_eq!(
        stepped(deeper, &[5, 6, 77]),
        Ok((caller(77, 0x1018, 5), 0x1010))
    );
}

#[test]
fn frames_are_found_by_rbp_and_by_what_it_points_to() {
    let by_rbp = saved(rule(Base::Rbp, 16), Saved::AtFrame, -16);
    assert_eq!(
        stepped(by_rbp, &[0, 0, 5, 77]),
        Ok((caller(77, 0x1020, 5), 0x1018))
    );
    // A realigned frame: its address was pushed, and rbp is not relative to it.
    let realigned = saved(rule(Base::AtRbp, -8), Saved::AtRbp, 0);
    assert_eq!(
        stepped(realigned, &[0, 0x1028, 5, 0, 77]),
        Ok((caller(77, 0x1028, 5), 0x1020))
    );
    let more = Rule {
        more: 8,
        ..rule(Base::AtRsp, 8)
    };
    assert_eq!(
        stepped(more, &[0, 0x1018, 0, 77]),
        Ok((caller(77, 0x1020, 0x1010), 0x1018))
    );
    let register = Rule {
        more: 10,
        ..rule(Base::Register, 0)
    };
    assert_eq!(
        stepped(register, &[0, 0, 0, 77]),
        Ok((caller(77, 0x1020, 0x1010), 0x1018))
    );
    let mut outer = caller(1, 0x1000, 0);
    assert_eq!(
        register.step(&mut outer, &stack(&[])),
        Err(Stop::Unsupported)
    );
}

#[test]
fn a_linkage_entry_has_pushed_or_not() {
    let linkage = Rule {
        more: 11,
        ..rule(Base::Linkage, 8)
    };
    assert_eq!(stepped(linkage, &[77]).map(|(at, _)| at.rip), Ok(77));
    let mut at = Registers {
        rip: 0x40_000b,
        ..START
    };
    assert_eq!(linkage.step(&mut at, &stack(&[3, 77])), Ok(0x1008));
    assert_eq!(at.rip, 77);
}

#[test]
fn a_signal_leads_to_what_it_interrupted() {
    let mut words = vec![0; 22];
    (words[15], words[20], words[21]) = (5, 0x500, 77);
    let (at, _) = stepped(rule(Base::Signal, 0), &words).expect("all is there");
    assert_eq!((at.rip, at.rsp, at.rbp), (77, 0x500, 5));
    assert_eq!((at.at, at.inside()), (At::Interrupted, 77));
}

#[test]
fn what_is_not_known_ends_the_walk() {
    assert_eq!(stepped(rule(Base::Outermost, 0), &[]), Err(Stop::Outermost));
    assert_eq!(stepped(rule(Base::Unknown, 0), &[]), Err(Stop::Unknown));
    assert_eq!(
        stepped(rule(Base::Unsupported, 0), &[]),
        Err(Stop::Unsupported)
    );
    assert_eq!(stepped(rule(Base::Rsp, 8), &[]), Err(Stop::Fault));
    assert_eq!(stepped(rule(Base::Rsp, 0), &[7]), Err(Stop::NotAbove));
    assert_eq!(stepped(rule(Base::Rsp, 12), &[7, 7]), Err(Stop::NotAbove));
    let lost = saved(rule(Base::Rsp, 8), Saved::Lost, 0);
    let (mut at, _) = stepped(lost, &[77]).expect("the return address is there");
    assert!(!at.knows_rbp);
    assert_eq!(
        rule(Base::Rbp, 16).step(&mut at, &stack(&[])),
        Err(Stop::Unsupported)
    );
}

#[test]
fn each_defect_is_found() {
    let rules = [rule(Base::Rsp, 8), rule(Base::Rbp, 16)];
    let rows = [row(0, 0), row(9, 1), row(0, 1)];
    let check = |first, blocks: &[u32], rows: &[Row], rules: &[Rule]| {
        Table::check(first, blocks, rows, rules).map(|_| ()).err()
    };
    assert_eq!(check(0, &[0, 2, 3], &rows, &rules), None);
    assert_eq!(check(0, &[0], &rows, &rules), Some(Defect::Empty));
    assert_eq!(check(0, &[0, 2, 3], &[], &rules), Some(Defect::Empty));
    assert_eq!(check(0, &[0, 2, 3], &rows, &[]), Some(Defect::Empty));
    assert_eq!(
        check(1 << 24, &[0, 2, 3], &rows, &rules),
        Some(Defect::TooFar)
    );
    assert_eq!(
        check(u64::MAX, &[0, 2, 3], &rows, &rules),
        Some(Defect::TooFar)
    );
    assert_eq!(check(0, &[0, 2], &rows, &rules), Some(Defect::Blocks));
    assert_eq!(check(0, &[1, 3], &rows, &rules), Some(Defect::Blocks));
    assert_eq!(
        check(0, &[0, 3, 2, 3], &rows, &rules),
        Some(Defect::Unsorted)
    );
    assert_eq!(
        check(0, &[0, 1, 3], &rows, &rules),
        Some(Defect::NoFirstRow)
    );
    assert_eq!(
        check(0, &[0, 0, 3], &rows, &rules),
        Some(Defect::NoFirstRow)
    );
    assert_eq!(check(0, &[0, 3], &rows, &rules), Some(Defect::Unsorted));
    assert_eq!(
        check(0, &[0, 2, 3], &rows, &rules[..1]),
        Some(Defect::NoRule)
    );
    for bad in [
        Rule {
            base: 99,
            ..rules[0]
        },
        Rule {
            saved: 4,
            ..rules[0]
        },
        Rule {
            more: 1,
            ..rules[0]
        },
        Rule {
            extra: 1,
            ..rules[0]
        },
        Rule {
            base: Base::Register as u8,
            more: 16,
            ..rules[0]
        },
        Rule {
            base: Base::Register as u8,
            more: -1,
            ..rules[0]
        },
    ] {
        assert_eq!(
            check(0, &[0, 2, 3], &rows, &[rules[0], bad]),
            Some(Defect::BadRule)
        );
    }
}

/// Starts of rows, and the rule of each, as blocks.
fn blocks_of(rows: &[(u64, u16)], first: u64, count: u64) -> (Vec<u32>, Vec<Row>) {
    let (mut blocks, mut all) = (vec![0], Vec::new());
    let mut before = 0;
    for block in first..first + count {
        let begin = block << BLOCK_BITS;
        all.push(row(0, before));
        for (at, rule) in rows.iter().filter(|(at, _)| at >> BLOCK_BITS == block) {
            if *at == begin {
                all.pop();
            }
            all.push(row((at - begin) as u16, *rule));
            before = *rule;
        }
        blocks.push(all.len() as u32);
    }
    (blocks, all)
}

proptest! {
    #[test]
    fn the_row_before_is_found(
        starts in proptest::collection::btree_map(0u64..3 << BLOCK_BITS, 1u16..9, 1..200),
        asked in 0u64..4 << BLOCK_BITS,
    ) {
        let rules: Vec<Rule> = (0..9).map(|offset| rule(Base::Rsp, offset)).collect();
        let starts: Vec<(u64, u16)> = starts.into_iter().collect();
        let shifted: Vec<(u64, u16)> =
            starts.iter().map(|(at, rule)| (at + (5 << BLOCK_BITS), *rule)).collect();
        let (blocks, rows) = blocks_of(&shifted, 5, 3);
        let table = Table::check(5, &blocks, &rows, &rules).expect("it is sound");
        let wanted = starts.iter().rev().find(|(at, _)| *at <= asked).map_or(0, |(_, rule)| *rule);
        let found = table.find(asked + (5 << BLOCK_BITS)).map(|rule| rule.offset);
        let inside = asked < 3 << BLOCK_BITS;
        prop_assert_eq!(found, inside.then_some(i32::from(wanted)));
        prop_assert_eq!(table.find(asked), None);
    }

    #[test]
    fn any_table_is_checked_and_any_checked_one_serves(
        first: u64,
        blocks in proptest::collection::vec(0u32..9, 0..5),
        rows in proptest::collection::vec(any::<u32>(), 0..9),
        rules in proptest::collection::vec(any::<[u8; 16]>(), 0..4),
        asked: u64,
    ) {
        let rules: Vec<Rule> = rules.iter().map(|bytes| zerocopy::transmute!(*bytes)).collect();
        if let Ok(table) = Table::check(first, &blocks, &rows, &rules) {
            let _ = table.find(asked);
        }
    }

    #[test]
    fn any_rule_steps_up_or_stops(
        bytes: [u8; 16],
        words in proptest::collection::vec(0u64..0x1100, 32),
    ) {
        let rule: Rule = zerocopy::transmute!(bytes);
        if let Ok((at, _)) = stepped(rule, &words) {
            prop_assert!(at.rsp > START.rsp || at.at == At::Interrupted);
        }
    }
}

/// A thread of Go's: its `g` at 0x1100, its own stack's `g` at 0x1200, its `m` at 0x1300, and the
/// goroutine at 0x1400, with a stack from 0x1500 to 0x1600, of which 0x1580 and up is in use.
fn thread_of_go() -> Vec<u64> {
    let mut words = vec![0; 0x600 / 8];
    let mut set = |at: usize, word| words[(at - 0x1000) / 8] = word;
    set(0x1100, 0x1200);
    set(0x1200 + 48, 0x1300);
    set(0x1200 + 56, START.rsp);
    set(0x1300, 0x1200);
    set(0x1300 + 192, 0x1400);
    set(0x1400, 0x1500);
    set(0x1408, 0x1600);
    set(0x1400 + 56, 0x1580);
    set(0x1400 + 64, 88);
    set(0x1400 + 104, 0x1590);
    set(0x1580, 5);
    set(0x1588, 77);
    words
}

const PLACES: GoPlaces = GoPlaces {
    g: -8,
    m: 48,
    curg: 192,
    sp: 56,
    bp: 104,
    popped: 16,
};

#[test]
fn a_walk_goes_on_on_the_stack_of_the_goroutine() {
    let words = thread_of_go();
    let runs = saved(PLACES.rule(Base::Goroutine), Saved::AtFrame, -16);
    let wanted = Registers {
        switches: 1,
        ..caller(77, 0x1590, 5)
    };
    assert_eq!(stepped(runs, &words), Ok((wanted, 0x1588)));
    let grows = PLACES.rule(Base::GrowsStack);
    let wanted = Registers {
        switches: 1,
        ..caller(88, 0x1580, 0x1590)
    };
    assert_eq!(stepped(grows, &words), Ok((wanted, 0x1578)));
}

#[test]
fn only_the_goroutine_that_the_thread_runs_is_gone_on_with() {
    let grows = PLACES.rule(Base::GrowsStack);
    let with = |at: usize, word| {
        let mut words = thread_of_go();
        words[(at - 0x1000) / 8] = word;
        stepped(grows, &words)
    };
    // The thread's own stack begins elsewhere; the goroutine's is somewhere else, or not aligned.
    assert_eq!(with(0x1200 + 56, 0x1008), Err(Stop::Unsupported));
    assert_eq!(with(0x1400 + 56, 0x1600), Err(Stop::Unsupported));
    assert_eq!(with(0x1400 + 56, 0x14f8), Err(Stop::Unsupported));
    assert_eq!(with(0x1400 + 56, 0x1581), Err(Stop::Unsupported));
    assert_eq!(with(0x1100, 0x9000), Err(Stop::Fault));
    // It runs none, or has left the one that it came from.
    assert_eq!(with(0x1300 + 192, 0), Err(Stop::Outermost));
    let mut at = START;
    let schedule = rule(Base::Scheduler, 8);
    let mut words = thread_of_go();
    words[0] = 66;
    words[(0x1200 + 56 - 0x1000) / 8] = START.rsp + 8;
    let memory = stack(&words);
    assert_eq!(schedule.step(&mut at, &memory), Ok(0x1000));
    assert_eq!((at.rip, at.has_left), (66, true));
    assert_eq!(grows.step(&mut at, &memory), Err(Stop::Outermost));
}

#[test]
fn a_frame_on_another_stack_may_lie_below() {
    let other = saved(rule(Base::OtherStack, 16), Saved::AtFrame, -16);
    let mut at = Registers {
        rsp: 0x1100,
        ..START
    };
    // Its caller's `rbp` leads back to it, so only the number of switches ends the walk.
    let memory = stack(&[0, 0, 0x1010, 77]);
    let mut steps = 0;
    while other.step(&mut at, &memory).is_ok() {
        assert_eq!((at.rip, at.rsp), (77, 0x1020));
        steps += 1;
    }
    assert_eq!((steps, at.switches), (16, 17));
}

#[test]
fn what_was_interrupted_has_not_called() {
    let injected = saved(rule(Base::Injected, 16), Saved::AtFrame, -16);
    let (at, slot) = stepped(injected, &[5, 77]).expect("it is there");
    assert_eq!((at.inside(), at.rbp, slot), (77, 5, 0x1008));
    assert_eq!(at.at, At::Interrupted);
}
