// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever a child says, it is an answer or none.

use super::*;
use nsprobe_symbolize::{Address, FrameSource, SourceFrame};
use proptest::prelude::*;

fn frame(name: &str) -> SourceFrame {
    SourceFrame {
        function: name.to_owned(),
        function_offset: Some(7),
        file: Some("a.c".to_owned()),
        line: Some(3),
        inlined: false,
    }
}

fn answers(frames: usize, note: usize) -> Reply {
    let told = SourceFrames {
        frames: vec![frame("main"); frames],
        source: FrameSource::Dwarf,
        holder: Holder::Attached(3),
        note: Some("n".repeat(note)),
    };
    let answers = vec![
        Reported {
            found: Ok(told),
            is_after_call: Some(true),
            function_start: None,
        },
        Reported {
            found: Err(Unresolved::NoSymbols),
            is_after_call: None,
            function_start: Some(FileOffset(0x1000)),
        },
    ];
    Reply::Answers {
        answers,
        failures: Some(vec!["f".repeat(note); 2]),
    }
}

#[test]
fn what_is_said_comes_back() {
    let said = encode(&answers(2, 10)).unwrap();
    let heard: Reply = decode(&said).unwrap();
    assert_eq!(encode(&heard).unwrap(), said);
    assert_eq!(format!("{heard:?}"), format!("{:?}", answers(2, 10)));
    assert!(decode::<Reply>(&said[..said.len() - 1]).is_none());
    assert!(decode::<Reply>(&[&said[..], &[0]].concat()).is_none());
}

fn plain_facts() -> Facts {
    Facts {
        build_id: None,
        has_symbols: true,
        has_debug_info: false,
        has_debug_names: false,
        debug_link: None,
        supplementary: None,
        segments: Vec::new(),
    }
}

#[test]
fn names_that_lead_elsewhere_or_nowhere_are_not_sound() {
    let link = |name: &[u8]| {
        Reply::Opened(Facts {
            debug_link: Some(name.to_vec()),
            ..plain_facts()
        })
    };
    assert!(link(b"app.debug").is_sound());
    for name in [&b""[..], b"..", b".", b"../x", b"/x", b"x\0", &[b'x'; 4097]] {
        assert!(!link(name).is_sound(), "{name:?}");
    }
    let shared = |path: &[u8], id: usize| {
        let (path, build_id) = (path.to_vec(), vec![1; id]);
        Reply::Opened(Facts {
            supplementary: Some(SharedDebugFile { path, build_id }),
            ..plain_facts()
        })
    };
    assert!(shared(b"/usr/lib/debug/.dwz/x", 20).is_sound());
    assert!(!shared(b"", 20).is_sound());
    assert!(!shared(b"x", BUILD_ID_BYTES_MAX + 1).is_sound());
    let units = |count: usize, name: &[u8]| {
        let unit = SplitUnitMessage {
            id: 1,
            name: name.to_vec(),
            folder: Vec::new(),
        };
        Reply::SplitUnits(Ok(vec![unit; count]))
    };
    assert!(units(UNITS_MAX, b"a.dwo").is_sound());
    assert!(!units(UNITS_MAX + 1, b"a.dwo").is_sound());
    assert!(!units(1, b"").is_sound());
    assert!(!units(1, &[b'x'; 4097]).is_sound());
}

#[test]
fn answers_beyond_what_a_child_would_say_are_not_sound() {
    assert!(answers(FRAMES_MAX, REASON_BYTES_MAX).is_sound());
    assert!(!answers(0, 0).is_sound());
    assert!(!answers(FRAMES_MAX + 1, 0).is_sound());
    assert!(!answers(1, REASON_BYTES_MAX + 1).is_sound());
    let segment = Segment {
        file_offset: FileOffset(0),
        address: Address(0),
        file_bytes: u64::MAX,
        executable: true,
        writable: false,
    };
    let facts = |segments: usize, id: usize| {
        Reply::Opened(Facts {
            build_id: Some(vec![1; id]),
            segments: vec![segment; segments],
            ..plain_facts()
        })
    };
    assert!(facts(SEGMENTS_MAX, BUILD_ID_BYTES_MAX).is_sound());
    assert!(!facts(SEGMENTS_MAX + 1, 20).is_sound());
    assert!(!facts(1, 0).is_sound());
    assert!(!facts(1, BUILD_ID_BYTES_MAX + 1).is_sound());
    let refused = |length| Reply::Failed(Failure::Refused("w".repeat(length)));
    assert!(refused(REASON_BYTES_MAX).is_sound());
    assert!(!refused(REASON_BYTES_MAX + 1).is_sound());
}

#[test]
fn a_reason_is_cut_between_letters() {
    let long = "ü".repeat(REASON_BYTES_MAX);
    let cut = reason(&format!("x{long}"));
    assert!(cut.len() <= REASON_BYTES_MAX && cut.len() > REASON_BYTES_MAX - 2);
    assert_eq!(reason(&"short"), "short");
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Some(reply) = decode::<Reply>(&bytes) {
            reply.is_sound();
        }
        let _ = decode::<Request>(&bytes);
    }
}

#[test]
fn refusals_are_bounded() {
    let because = |causes: Vec<String>| Reply::Probes(Err(Refused::Because(causes)));
    let cause = |bytes: usize| "c".repeat(bytes);
    assert!(because(vec![cause(REASON_BYTES_MAX); CAUSES_MAX]).is_sound());
    assert!(!because(vec![cause(REASON_BYTES_MAX + 1)]).is_sound());
    assert!(!because(vec![cause(1); CAUSES_MAX + 1]).is_sound());
    assert!(!because(Vec::new()).is_sound());
    let spec = |start: usize, end: usize| {
        let message = "what is wrong".to_owned();
        let span = start..end;
        Reply::Probes(Err(Refused::Spec(nsprobe_spec::SpecError::new(
            span, message,
        ))))
    };
    assert!(spec(3, 3).is_sound() && spec(0, 12).is_sound());
    assert!(!spec(4, 3).is_sound() && !spec(0, usize::MAX).is_sound());
}
