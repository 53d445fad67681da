// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places in functions of a few bytes.
use super::*;
use proptest::prelude::*;

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

fn placed(parts: &[&[u8]]) -> (usize, Cost) {
    placed_for(parts, Needs::default())
}

fn placed_for(parts: &[&[u8]], needs: Needs) -> (usize, Cost) {
    let bytes = parts.concat();
    let function = FunctionCode {
        address: 0x1000,
        bytes: &bytes,
        elsewhere: &[],
    };
    let placement = place(&function, needs, false).expect("it can be decoded");
    (placement.offset, placement.cost)
}

/// Against `arch/x86/kernel/uprobes.c` of Linux 7.2: `is_optimizable_nop10`,
/// `push_setup_xol_ops`, `branch_setup_xol_ops` with `insn_is_nop`.
#[test]
fn costs_are_those_of_the_kernel() {
    for (bytes, expected) in [
        (&NOP10[..], Cost::Call),
        (&[0x55], Cost::Emulated),                   // push %rbp
        (&[0x41, 0x57], Cost::Emulated),             // push %r15
        (&[0x48, 0x55], Cost::Stepped),              // rex.W push: another prefix
        (&[0xff, 0x30], Cost::Stepped),              // push (%rax)
        (&[0x6a, 0x01], Cost::Stepped),              // push $1
        (&[0x90], Cost::Emulated),                   // nop
        (&[0x66, 0x90], Cost::Emulated),             // xchg %ax,%ax
        (&[0x0f, 0x1f, 0x44, 0, 0], Cost::Emulated), // nop5
        (&ENDBR64, Cost::Stepped),
        (&[0xeb, 0x10], Cost::Emulated),             // jmp
        (&[0xe9, 0, 0, 0, 0], Cost::Emulated),       // jmp
        (&[0x74, 0x10], Cost::Emulated),             // je
        (&[0x0f, 0x84, 0, 0, 0, 0], Cost::Emulated), // je
        (&[0xe8, 0, 0, 0, 0], Cost::Emulated),       // call
        (&[0xff, 0xd0], Cost::Stepped),              // call *%rax
        (&[0xc3], Cost::Stepped),                    // ret
        (&[0x48, 0x83, 0xec, 0x18], Cost::Stepped),  // sub $24, %rsp
        (&[0x48, 0x89, 0xf8], Cost::Stepped),        // mov %rdi, %rax
        (&[0xe3, 0x10], Cost::Stepped),              // jrcxz
        (&[0xe2, 0x10], Cost::Stepped),              // loop
    ] {
        assert_eq!(cost(bytes, 0x1000), Some(expected), "{bytes:x?}");
    }
    assert_eq!(cost(&[0x06], 0), None);
    // A nop that reaches into the next page, and prefixes that are refused.
    assert_eq!(cost(&NOP10, 0x1ffa), None);
    assert_eq!(cost(&NOP10, 0x1ff6), Some(Cost::Call));
    assert_eq!(cost(&[0xf0, 0x48, 0x01, 0x07], 0), None);
    assert_eq!(cost(&[0x2e, 0x0f, 0x1f, 0x44, 0, 0], 0), None);
    assert_eq!(cost(&[], 0), None);
}

#[test]
fn the_mark_of_a_branch_target_is_passed_over() {
    let (push, ret) = ([0x55], [0xc3]);
    assert_eq!(placed(&[&ENDBR64, &push, &ret]), (4, Cost::Emulated));
    assert_eq!(placed(&[&push, &ret]), (0, Cost::Emulated));
    assert_eq!(
        placed(&[&ENDBR64, &NOP10, &push, &ret]),
        (14, Cost::Emulated)
    );
    // A program that moves its text would die of a probe on the nop.
    assert_eq!(placed(&[&NOP10, &push, &ret]), (10, Cost::Emulated));
    assert_eq!(placed(&[&NOP10, &ret]), (10, Cost::Stepped));
    // Nothing cheap follows.
    assert_eq!(placed(&[&ENDBR64, &ret]), (0, Cost::Stepped));
}

#[test]
fn scratch_may_be_written_and_arguments_may_not() {
    let mov_rax = [0x48, 0x89, 0xf8]; // mov %rdi, %rax
    let mov_rdi = [0x48, 0x89, 0xf7]; // mov %rsi, %rdi
    let test = [0x85, 0xff]; // test %edi, %edi
    let je = [0x74, 0x00];
    let ret = [0xc3];
    assert_eq!(
        placed(&[&ENDBR64, &mov_rax, &test, &je, &ret]),
        (9, Cost::Emulated)
    );
    assert_eq!(placed(&[&ENDBR64, &mov_rdi, &je, &ret]).0, 0);
    let rax = Needs {
        rax: true,
        ..Needs::default()
    };
    assert_eq!(placed_for(&[&ENDBR64, &mov_rax, &je, &ret], rax).0, 0);
    let flags = Needs {
        flags: true,
        ..Needs::default()
    };
    assert_eq!(placed_for(&[&ENDBR64, &test, &je, &ret], flags).0, 0);
    // The stack pointer moves, memory is read, memory is written.
    let sub = [0x48, 0x83, 0xec, 0x18];
    let load = [0x48, 0x8b, 0x07];
    let store = [0x48, 0x89, 0x07];
    let lea = [0x48, 0x8d, 0x47, 0x01]; // lea 1(%rdi), %rax
    for bad in [&sub[..], &load, &store] {
        assert_eq!(placed(&[&ENDBR64, bad, &je, &ret]).0, 0, "{bad:x?}");
    }
    assert_eq!(placed(&[&ENDBR64, &lea, &je, &ret]).0, 8);
    // A vector register.
    let pxor = [0x66, 0x0f, 0xef, 0xc0];
    assert_eq!(placed(&[&ENDBR64, &pxor, &je, &ret]).0, 8);
}

#[test]
fn nothing_else_may_lead_to_the_place() {
    let push = [0x55];
    // jmp back to the push; jmp to the function's beginning; jump by a table.
    let back = [0xeb, 0xfd];
    let again = [0xeb, 0xf9];
    let table = [0x3e, 0xff, 0xe0];
    let tail_call = [0xff, 0xe0];
    assert_eq!(placed(&[&ENDBR64, &push, &back]).0, 0);
    assert_eq!(placed(&[&ENDBR64, &push, &again]).0, 4);
    assert_eq!(placed(&[&ENDBR64, &push, &table]).0, 0);
    assert_eq!(placed(&[&ENDBR64, &push, &tail_call]).0, 4);
    let mov = [0x89, 0xf8];
    assert_eq!(placed(&[&mov, &push, &tail_call]).0, 0);
    // A part that was moved elsewhere jumps back.
    let bytes = [&ENDBR64[..], &push, &[0xc3]].concat();
    let cold: &[u8] = &[0xe9, 0xff, 0xef, 0xff, 0xff];
    let function = FunctionCode {
        address: 0x1000,
        bytes: &bytes,
        elsewhere: &[(0x2000, cold)],
    };
    assert_eq!(place(&function, Needs::default(), false).unwrap().offset, 0);
}

#[test]
fn a_plain_ret_is_found() {
    let found = |bytes: &[u8]| {
        ret(&FunctionCode {
            address: 0,
            bytes,
            elsewhere: &[],
        })
    };
    assert_eq!(found(&[0x55, 0x5d, 0xc3]), Some(2));
    // Part of another instruction, or with a number.
    assert_eq!(found(&[0x83, 0xc3, 0x01, 0xc2, 0x08, 0x00]), None);
    assert_eq!(found(&[0xc3, 0x06]), None);
}

#[test]
fn boundaries_are_found() {
    let bytes = [&ENDBR64[..], &[0x55], &[0x48, 0x89, 0xe5], &[0x06]].concat();
    let function = FunctionCode {
        address: 0,
        bytes: &bytes,
        elsewhere: &[],
    };
    assert_eq!(boundary(&function, 0), Boundary::Instruction);
    assert_eq!(boundary(&function, 2), Boundary::Inside(0));
    assert_eq!(boundary(&function, 4), Boundary::Instruction);
    assert_eq!(boundary(&function, 6), Boundary::Inside(5));
    assert_eq!(boundary(&function, 8), Boundary::Unknown);
    assert_eq!(boundary(&function, 99), Boundary::Unknown);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let function = FunctionCode { address: 0x1000, bytes: &bytes, elsewhere: &[] };
        if let Some(found) = place(&function, Needs::default(), false) {
            prop_assert!(found.offset < bytes.len());
            prop_assert_eq!(boundary(&function, found.offset), Boundary::Instruction);
        }
        for offset in 0..=bytes.len() {
            let _ = boundary(&function, offset);
        }
    }
}
