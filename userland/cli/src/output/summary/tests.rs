// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text that the user gets at the end.

use super::*;
use libnsprobe::{Counters, HoldReport};
use nsprobe_capsule::model::TaskTotal;
use nsprobe_symbolize::FileOffset;
use nsprobe_trace::attach::run::options::Untraced;
use nsprobe_trace::names::NamesNote;
use std::collections::BTreeMap;
use std::time::Duration;

fn summary(recorded: u64, received: u64) -> Summary {
    Summary {
        elapsed: Duration::from_millis(1500),
        ended_by: "interrupted".into(),
        printed: received,
        received,
        overwritten: 0,
        untraced: None,
        has_stacks: false,
        probes: vec![ProbeSummary {
            id: 1,
            binary: "/bin/x".into(),
            function: "f".into(),
            label: "x:f".into(),
            offset: FileOffset(16),
            counters: Counters {
                hits: 10,
                recorded,
                filtered: 3,
                lost_full: 2,
                ..Counters::default()
            },
            missed: MissedCalls::default(),
            cpus: BTreeMap::new(),
        }],
        tasks: BTreeMap::new(),
        finished: 0,
        late: 0,
        rows: None,
        held: None,
        failure: None,
        names: Vec::new(),
    }
}

#[test]
fn what_does_not_add_up_is_said() {
    assert_eq!(summary(5, 5).problem(), None);
    assert!(summary(6, 6)
        .problem()
        .unwrap()
        .contains("x:f do not add up"));
    assert!(summary(5, 4).problem().unwrap().contains("4 came out"));
}

#[test]
fn samples_that_were_not_taken_are_said() {
    let mut summary = summary(0, 0);
    summary.probes[0].counters = Counters {
        hits: 100,
        idle: 150,
        kernel_threads: 20,
        ..Counters::default()
    };
    assert_eq!(summary.note_on_samples(200.0), None);
    let note = summary.note_on_samples(400.0).unwrap();
    assert!(note.starts_with("270 of about 600 samples"), "{note}");
}

fn told(summary: &Summary, detail: Detail) -> String {
    let mut out = Vec::new();
    write(summary, &mut out, detail).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn people_get_a_sentence_and_in_any_case_what_was_lost() {
    let mut summary = summary(5, 5);
    summary.probes[0].counters.lost_full = 0;
    summary.probes[0].counters.hits = 8;
    // All that is reported is there, and nothing of it is a loss.
    (summary.printed, summary.finished, summary.late) = (4, 1, 1);
    summary.names = vec![NamesNote::plain("/x: DWARF".to_owned())];
    let sentence = "nsprobe: interrupted; 1.500 s: 8 hits = 5 recorded + 3 filtered + 0 lost \
                    (ring full)\n";
    assert_eq!(told(&summary, Detail::Usual), sentence);
    assert_eq!(told(&summary, Detail::Quiet), "");
    let whole = told(&summary, Detail::Verbose);
    for part in [
        sentence,
        "1 more recorded hit not printed",
        "1 stack finished from copies",
        "1 stack taken once",
        "names: /x: DWARF",
    ] {
        assert!(whole.contains(part), "no {part:?} in {whole}");
    }
    summary.probes[0].counters.lost_full = 2;
    let lost = "nsprobe: 2 hits lost, as the rings were full: try a larger --ring-size\n";
    assert_eq!(told(&summary, Detail::Quiet), lost);
    assert!(told(&summary, Detail::Usual).ends_with(lost));
}

#[test]
fn a_recording_of_tasks_alone_tells_of_their_events() {
    let mut summary = summary(0, 0);
    summary.probes.clear();
    let total = |seen, lost| TaskTotal {
        seen,
        recorded: seen - lost - 1,
        filtered: 1,
        lost,
    };
    summary.tasks = [("fork".to_owned(), total(3, 0))].into();
    let sentence = "nsprobe: interrupted; 1.500 s: 3 task events = 2 recorded + 1 filtered + \
                    0 lost (ring full)\n";
    assert_eq!(told(&summary, Detail::Usual), sentence);
    assert_eq!(summary.problem(), None);
    summary.tasks.insert("switch".to_owned(), total(9, 4));
    let lost = "nsprobe: 4 task events lost, as the rings were full: try a larger --ring-size\n";
    assert_eq!(told(&summary, Detail::Quiet), lost);
    assert!(told(&summary, Detail::Usual).ends_with(lost));
}

#[test]
fn who_forks_is_told_how_to_trace_children() {
    let mut summary = summary(5, 5);
    summary.probes[0].counters.lost_full = 0;
    for whose in [Untraced::ChildrenOfCommand, Untraced::ChildrenOfProcess] {
        summary.untraced = Some(whose);
        summary.probes[0].counters.filtered = 3;
        let text = told(&summary, Detail::Usual);
        assert!(
            text.contains("3 hits of other processes filtered"),
            "{text}"
        );
        assert!(text.contains(": --children"), "{text}");
        assert_eq!(told(&summary, Detail::Quiet), "");
        summary.probes[0].counters.filtered = 0;
        assert_eq!(told(&summary, Detail::Usual).lines().count(), 1);
    }
    // A program that a child executes never has the breakpoint.
    summary.probes[0].counters = Counters::default();
    assert_eq!(told(&summary, Detail::Usual).lines().count(), 1);
    summary.untraced = Some(Untraced::ChildrenOfCommand);
    assert!(told(&summary, Detail::Usual).contains(": --children"));
}

#[test]
fn no_kind_of_loss_is_hidden() {
    let mut summary = summary(5, 5);
    summary.has_stacks = true;
    summary.probes[0].missed = MissedCalls {
        left_by_jump: 2,
        unreturned: 13,
    };
    summary.probes[0].counters = Counters {
        turned_away: 3,
        too_deep: 4,
        stacks_cut: 5,
        processes_failed: 8,
        evicted: 7,
        ..Counters::default()
    };
    summary.names = vec![NamesNote::failed("/gone: no names: it is gone".to_owned())];
    for detail in [Detail::Quiet, Detail::Usual, Detail::Verbose] {
        let text = told(&summary, detail);
        for part in [
            "2 calls left by a jump",
            "6 calls without a return",
            "3 hits without a row",
            "4 returns not seen",
            "5 stacks cut",
            "8 processes not traced",
            "7 calls evicted from the full table",
            "/gone: no names",
        ] {
            assert_eq!(text.matches(part).count(), 1, "{part:?}: {text}");
        }
    }
    // All that did not return were evicted.
    summary.probes[0].missed.unreturned = 7;
    assert!(!told(&summary, Detail::Usual).contains("without a return"));
}

#[test]
fn losses_are_told_by_cpu() {
    let mut summary = summary(5, 5);
    assert_eq!(losses(&summary), "");
    summary.probes[0].counters.lost_full = 16;
    let on = |lost_full| Counters {
        hits: 5,
        lost_full,
        ..Counters::default()
    };
    let mut cpus: BTreeMap<u16, Counters> = (0..12).map(|cpu| (cpu, on(1))).collect();
    cpus.insert(3, on(4));
    cpus.insert(7, on(0));
    summary.probes[0].add_cpus(cpus);
    summary.probes[0].add_cpus([(3, on(2))].into());
    let text = losses(&summary);
    let begin = " (6 of 10 on CPU 3, 1 of 5 on CPU 0, 1 of 5 on CPU 1,";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.ends_with(", and on 3 more CPUs)"), "{text}");
    assert!(!text.contains("CPU 7"), "{text}");
    summary.probes[0].counters.lost_full += 5;
    let text = losses(&summary);
    assert!(text.ends_with("CPUs, 5 of probes beyond 256)"), "{text}");
}

#[test]
fn waits_that_are_not_in_the_output_are_said() {
    let mut summary = summary(0, 0);
    let probe = &mut summary.probes[0];
    (probe.binary, probe.function) = (String::new(), "waits".into());
    probe.counters = Counters {
        hits: 16,
        aggregated: 1,
        filtered: 2,
        limited: 3,
        below: 4,
        below_ns: 5_000_000,
        no_row: 5,
        unfinished: 1,
        ..Counters::default()
    };
    assert_eq!(summary.problem(), None);
    let text = |detail| {
        let mut out = Vec::new();
        write(&summary, &mut out, detail).unwrap();
        String::from_utf8(out).unwrap()
    };
    let quiet = text(Detail::Quiet);
    for lost in ["3 waits not taken", "5 waits not followed"] {
        assert!(quiet.contains(lost), "{quiet}");
    }
    let all = text(Detail::Usual);
    for part in [
        "16 waits = 1 counted + 2 filtered",
        "4 shorter (--min) + 1 going on",
        "4 waits shorter than --min, 5.000 ms in all",
    ] {
        assert!(all.contains(part), "{all}");
    }
}

#[test]
fn programs_that_were_not_held_until_they_were_probed_are_said() {
    let mut summary = summary(5, 5);
    summary.held = Some(HoldReport {
        held: 9,
        overdue: 3,
        interrupted: 1,
        not_held: 2,
        longest: Duration::from_millis(100),
        is_over: true,
    });
    let text = |detail| {
        let mut out = Vec::new();
        write(&summary, &mut out, detail).unwrap();
        String::from_utf8(out).unwrap()
    };
    let quiet = text(Detail::Quiet);
    for part in [
        "3 programs may have made calls before there was a probe: --hold was over",
        "1 program may have made calls before there was a probe: a signal",
        "2 programs may have made calls before there was a probe: too many",
        "no more programs were held after 3 in a row",
    ] {
        assert!(quiet.contains(part), "{quiet}");
    }
    let all = text(Detail::Usual);
    assert!(all.contains("held 9 programs of new containers"), "{all}");
    assert!(all.contains("at most 100.000 ms"), "{all}");
}
