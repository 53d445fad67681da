// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code of Go's runtime as its versions have it.

use super::code::Code;
use super::places::places;
use super::*;
use proptest::prelude::*;

const SYSTEM_STACK_1_19: &str = "\
    488b7c240864488b0425f8ffffff488b5830483b4350745b488b134839d07453483b83c000000075\
    52e8d2f1ffff6448891425f8ffffff4989d6488b5a384889dc4889fa488b3fffd764488b0425f8ff\
    ffff488b5830488b83c00000006448890425f8ffffff488b603848c7403800000000c34889fa488b\
    3fffe7488d051e460000ffd0cd03";
const MORE_STACK_1_19: &str = "\
    64488b1c25f8ffffff488b5b30488b336448393425f8ffffff750ae860440000e87b1e0000488b73\
    506448393425f8ffffff750ae867440000e8621e0000488b44240848894310488d44241048894308\
    64488b3425f8ffffff48897318488b042448894640488d4424084889463848896e6848895650488b\
    1b6448891c25f8ffffff488b6338e835450000e8101e0000c3";
const SYSTEM_STACK_1_24: &str = "\
    554889e5488b7c241064488b0425f8ffffff488b5830483b43507465488b134839d0745d483b83c0\
    000000755de88ef1ffff6448891425f8ffffff4989d6488b62384889fa488b3fffd764488b0425f8\
    ffffff488b5830488b83c00000006448890425f8ffffff488b6038488b686848c740380000000048\
    c74068000000005dc34889fa488b3f5dffe7488d056f450000ffd0cd03";
const MORE_STACK_1_24: &str = "\
    64488b3c25f8ffffff488b5f30488b042448894740488d4424084889473848896f6848895750488b\
    334839f7750ae86d430000e8e81b0000488b73504839f7750ae87a430000e8d51b0000488b442408\
    48894310488d4424104889430848897b18488b1b6448891c25f8ffffff488b6338488b6b68e86644\
    0000e8a11b0000c3";
const CLOCK_1_19: &str = "\
    4883ec1848896c2410488d6c24104989e4498b5e30488b8b28030000488b932003000048890c2448\
    89542408488d542420488b4af848898b28030000488993200300004c3bb3c00000007507488b1348\
    8b62384883ec104883e4f0bf01000000488d3424488b0545e10b004883f800743effd0488b042448\
    8b5424084c89e4488b4c240848898b20030000488b0c2448898b280300004869c000ca9a3b4801d0\
    4889442420488b6c24104883c418c348c7c0e40000000f05ebb9";
const CALLED_BY_C_1_19: &str = "\
    4883ec3048896c2428488d6c242848891c244c896424084c896c24104c897424184c897c24204883\
    ec1848893c24488974240848894c2410e8e3b8ffff4883c418488b1c244c8b6424084c8b6c24104c\
    8b7424184c8b7c2420488b6c24284883c430c3";
const CALLED_BY_C_1_24: &str = "\
    554889e54883ec3048896c2428488d6c242848891c244c896424084c896c24104c897424184c897c\
    24204883ec1848893c24488974240848894c2410e85f8effff4883c418488b1c244c8b6424084c8b\
    6c24104c8b7424184c8b7c2420488b6c24284883c4305dc3";

/// Where each function begins.
const AT: u64 = 0x46_9e00;

fn code(hex: &str) -> Code {
    let digits = hex.as_bytes().chunks(2);
    let bytes = digits.map(|two| u8::from_str_radix(str::from_utf8(two).expect("ASCII"), 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().expect("hexadecimal");
    Code::of(&bytes, AT)
}

/// The rules of a function, each with the offset that it begins at.
fn rules(code: &Code, away: Option<Rule>) -> Vec<(u64, u8, i32)> {
    let mut rules: Vec<(u64, u8, i32)> = Vec::new();
    for row in code.rows(away, false) {
        let known = rules.last().map(|(_, base, offset)| (*base, *offset));
        if known != Some((row.rule.base, row.rule.offset)) {
            rules.push((row.from - AT, row.rule.base, row.rule.offset));
        }
    }
    rules
}

const RSP: u8 = Base::Rsp as u8;
const OTHER: u8 = Base::OtherStack as u8;

#[test]
fn the_code_says_where_the_goroutine_is() {
    let places_of = |system_stack, more_stack| places(&code(system_stack), &code(more_stack));
    let known = GoPlaces {
        g: -8,
        m: 48,
        curg: 192,
        sp: 56,
        bp: 104,
        popped: 8,
    };
    assert_eq!(places_of(SYSTEM_STACK_1_19, MORE_STACK_1_19), Some(known));
    let known = GoPlaces {
        popped: 16,
        ..known
    };
    assert_eq!(places_of(SYSTEM_STACK_1_24, MORE_STACK_1_24), Some(known));
    assert_eq!(places_of(MORE_STACK_1_24, SYSTEM_STACK_1_24), None);
}

#[test]
fn only_between_both_switches_another_stack_is_used() {
    let away = bare(Base::Goroutine);
    let goroutine = Base::Goroutine as u8;
    let without_frame = [(0, RSP, 8), (0x41, goroutine, 0), (0x6a, RSP, 8)];
    assert_eq!(rules(&code(SYSTEM_STACK_1_19), Some(away)), without_frame);
    let with_frame = [
        (0, RSP, 8),
        (1, RSP, 16),
        (4, OTHER, 16),
        (0x42, goroutine, 0),
        (0x6b, OTHER, 16),
        (0x80, RSP, 8),
        (0x81, OTHER, 16),
        (0x88, RSP, 8),
        (0x8a, OTHER, 16),
    ];
    assert_eq!(rules(&code(SYSTEM_STACK_1_24), Some(away)), with_frame);
    // It never goes back.
    let grows = bare(Base::GrowsStack);
    let more_stack = [(0, RSP, 8), (0x71, grows.base, 0)];
    assert_eq!(rules(&code(MORE_STACK_1_24), Some(grows)), more_stack);
    let unknown = Base::Unsupported as u8;
    let more_stack = [(0, RSP, 8), (0x86, unknown, 0)];
    assert_eq!(rules(&code(MORE_STACK_1_19), None), more_stack);
}

#[test]
fn a_frame_is_found_by_rbp_where_the_function_keeps_it() {
    let clock = [
        (0, RSP, 8),
        (4, RSP, 32),
        (0xe, OTHER, 16),
        (0xaa, RSP, 32),
        (0xae, RSP, 8),
        (0xaf, OTHER, 16),
    ];
    assert_eq!(rules(&code(CLOCK_1_19), None), clock);
}

#[test]
fn a_function_that_switches_no_stack_has_its_depth() {
    for (hex, call) in [(CALLED_BY_C_1_19, 0x38), (CALLED_BY_C_1_24, 0x3c)] {
        let rows = code(hex).rows(None, false);
        let at_call = rows.iter().find(|row| row.from - AT == call);
        let call = at_call.expect("it has a call").rule;
        let depth = if hex == CALLED_BY_C_1_19 { 0x48 } else { 0x50 };
        assert_eq!(
            (call.base, call.offset, call.saved_at),
            (RSP, depth + 8, -16)
        );
        assert_eq!(call.saved, Saved::AtFrame as u8);
        let last = rows.last().expect("it returns").rule;
        assert_eq!(
            (last.base, last.offset, last.saved),
            (RSP, 8, Saved::Same as u8)
        );
    }
}

proptest! {
    #[test]
    fn no_code_is_too_much(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let code = Code::of(&bytes, AT);
        let _ = (code.rows(None, true), places(&code, &code));
    }
}
