// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jumps that look like returns, returns that look like jumps, and frames that are not there.

use super::*;

/// call +7; pause; lfence; jmp -7: where a retpoline waits.
const CALL: &[u8] = &[
    0xe8, 0x07, 0, 0, 0, 0xf3, 0x90, 0x0f, 0xae, 0xe8, 0xeb, 0xf9,
];
/// mov %rax,(%rsp); and lea 8(%rsp),%rsp
const PUT: &[u8] = &[0x48, 0x89, 0x04, 0x24];
const DROP: &[u8] = &[0x48, 0x8d, 0x64, 0x24, 0x08];
const PUSH_RAX: &[u8] = &[0x50];
const POP_RBX: &[u8] = &[0x5b];
/// xor %eax,%eax
const PLAIN: &[u8] = &[0x31, 0xc0];

fn leaves(address: u64) -> Vec<Left> {
    left(address, When::Always)
}

#[test]
fn a_ret_to_what_was_put_there_is_a_jump() {
    type Case<'a> = (&'a str, &'a [&'a [u8]], &'a [u64], &'a [u64]);
    let cases: &[Case<'_>] = &[
        ("inline thunk", &[CALL, PUT, RET], &[], &[0x1000]),
        (
            "beside a ret",
            &[&[0x74, 1], RET, CALL, PUT, RET],
            &[0x1002],
            &[0x1003],
        ),
        (
            "inline thunk of returns",
            &[CALL, DROP, RET],
            &[0x1011],
            &[],
        ),
        ("push", &[PUSH_RAX, RET], &[], &[0x1000]),
        (
            "push, and something",
            &[PUSH_RAX, PLAIN, RET],
            &[],
            &[0x1000],
        ),
        ("push and pop", &[PUSH_RAX, POP_RBX, RET], &[0x1002], &[]),
        ("a second push", &[PUSH_RAX, PUSH_RAX, RET], &[], &[]),
        ("move", &[PUT, RET], &[], &[0x1000]),
        // mov 0x10(%rdx),%rsp; push %rcx: another stack, as swapcontext does
        (
            "other stack",
            &[&[0x48, 0x8b, 0x62, 0x10], &[0x51], RET],
            &[0x1005],
            &[],
        ),
        // pop %rcx; mov %rsp,(%rdx); push %rcx: the return address is put back
        (
            "put back",
            &[&[0x59], &[0x48, 0x89, 0x22], &[0x51], RET],
            &[0x1005],
            &[],
        ),
    ];
    for (what, code, rets, jumps) in cases {
        let found = match of(code) {
            Err(Unclear::Never) => Exits::default(),
            found => found.unwrap(),
        };
        let left: Vec<u64> = found.left.iter().map(|left| left.address).collect();
        assert_eq!((&found.returns[..], &left[..]), (*rets, *jumps), "{what}");
        assert!(
            found.left.iter().all(|left| left.when == When::Always),
            "{what}"
        );
    }
}

#[test]
fn a_call_through_an_inline_thunk_leaves_nothing() {
    // push %rbx; jmp to the call; the thunk; call of it; pop %rbx; ret
    let code: &[&[u8]] = &[
        &[0x53],
        &[0xeb, 0x11],
        CALL,
        PUT,
        RET,
        &[0xe8, 0xea, 0xff, 0xff, 0xff],
        POP_RBX,
        RET,
    ];
    assert_eq!(of(code), Ok(returns(&[0x101a])));
}

#[test]
fn a_thunk_is_no_tail_call() {
    // jmp *%rax after lfence; push; retpoline
    let thunks: [&[&[u8]]; 3] = [
        &[&[0x0f, 0xae, 0xe8], JUMP],
        &[PUSH_RAX, RET],
        &[CALL, PUT, RET],
    ];
    for thunk in thunks {
        let code = Made::default().with(0x2000, thunk);
        let found = code.of(&[&[0x74, 1], RET, &jmp(0x1003, 0x2000)]).unwrap();
        assert_eq!((found.returns, found.left), (vec![0x1002], leaves(0x1003)));
    }
    let code = Made::default().with(0x2000, &[CALL, DROP, RET]);
    let found = code.of(&[&jmp(0x1000, 0x2000)]);
    assert_eq!(found, Ok(returns(&[0x2011])));
}

#[test]
fn a_jump_to_the_return_address_leaves_where_it_is_taken() {
    // pop %rcx; lfence; jmp *%rcx, whether its frame is described or not
    let code: &[&[u8]] = &[PLAIN, &[0x59], &[0x0f, 0xae, 0xe8], &[0xff, 0xe1]];
    for framed in [0x2000..0x2001, 0x1003..0x1008] {
        let made = Made::default().at_top(framed, false);
        assert_eq!(made.of(code).unwrap().left, leaves(0x1002));
    }
    // mov (%rsp),%rdx; add $8,%rsp; jmp *%rdx
    let code: &[&[u8]] = &[
        &[0x48, 0x8b, 0x14, 0x24],
        &[0x48, 0x83, 0xc4, 8],
        &[0xff, 0xe2],
    ];
    assert_eq!(of(code).unwrap().left, leaves(0x1004));
}

#[test]
fn frames_that_the_code_contradicts_are_not_believed() {
    // push %rbx; je; pop %rbx; jmp *%rax; pop %rbx; ret
    let code: &[&[u8]] = &[&[0x53], &[0x74, 3], POP_RBX, JUMP, POP_RBX, RET];
    let inside = outside(Target::Register(0), 0x1000..0x1008);
    let framed = |end| Made::default().at_top(0x1001..end, false);
    // Nothing is said after the pops, or after the first alone.
    for end in [0x1008, 0x1007] {
        let found = framed(end).of(code).unwrap();
        assert_eq!(
            (found.returns, found.left),
            (vec![0x1007], left(0x1004, inside.clone()))
        );
    }
    // A `ret` has a frame: then a jump may have none, where the code does not tell.
    // and $-16,%rsp
    let code: &[&[u8]] = &[&[0x48, 0x83, 0xe4, 0xf0], JUMP, RET];
    let trusted = framed(0x1006).of(code);
    assert_eq!(trusted, Ok(returns(&[0x1006])));
    let found = framed(0x1007).of(code).unwrap();
    assert_eq!(found.left.len(), 1);
    // But not because of a thunk.
    let code: &[&[u8]] = &[&[0x48, 0x83, 0xe4, 0xf0], JUMP, CALL, PUT, RET];
    let found = framed(0x1020).of(code);
    assert_eq!(found, Err(Unclear::Never));
}

/// Exits of `jmp 0x2000`, after which is code that nothing describes.
fn undescribed(code: &[&[u8]]) -> Exits {
    let made = Made {
        others: vec![(0x2000, code.concat())],
        ..Made::default()
    };
    made.of(&[&[0x74, 1], RET, &jmp(0x1003, 0x2000)]).unwrap()
}

#[test]
fn undescribed_code_must_say_how_it_is_left() {
    /// sub $8,%rsp; and add
    const SUB: &[u8] = &[0x48, 0x83, 0xec, 8];
    const ADD: &[u8] = &[0x48, 0x83, 0xc4, 8];
    let call: &[u8] = &[0xe8, 0, 0x10, 0, 0];
    let clear: &[(&str, &[&[u8]], u64)] = &[
        ("call", &[SUB, call, ADD, RET], 0x200d),
        // je over a hlt and a dead jump, or a dead mov
        (
            "a trap and a jump",
            &[SUB, &[0x74, 3], &[0xf4], &[0xeb, 0], ADD, RET],
            0x200d,
        ),
        (
            "a trap and more",
            &[SUB, &[0x74, 3], &[0xf4], &[0x89, 0xc8], ADD, RET],
            0x200d,
        ),
        (
            "frame pointer",
            &[&[0x55, 0x48, 0x89, 0xe5], SUB, call, &[0xc9], RET],
            0x200e,
        ),
    ];
    for (what, code, ret) in clear {
        let found = undescribed(code);
        assert_eq!(
            (found.returns, found.left),
            (vec![0x1002, *ret], vec![]),
            "{what}"
        );
    }
    let unclear: &[(&str, &[&[u8]])] = &[
        ("a call that does not return", &[SUB, call, PLAIN, RET]),
        ("a switch", &[SUB, JUMP, ADD, RET]),
        ("an untracked jump", &[NOTRACK, RET]),
        ("another stack", &[&[0x48, 0x83, 0xe4, 0xf0], RET]),
        ("a thunk", &[CALL, PUT, RET]),
        (
            "a jump far away with a frame",
            &[SUB, &[0x74, 0x40], ADD, RET],
        ),
        ("it does not end", &[SUB, call]),
        ("never", &[UD2]),
        (
            "a trap and another function",
            &[SUB, &[0x74, 2], &[0xf4], RET, ADD, RET],
        ),
    ];
    for (what, code) in unclear {
        let found = undescribed(code);
        assert_eq!(
            (found.returns, found.left),
            (vec![0x1002], leaves(0x1003)),
            "{what}"
        );
    }
    // A tail call.
    let found = undescribed(&[SUB, ADD, JUMP]);
    assert_eq!(found.left.len(), 1);
}
