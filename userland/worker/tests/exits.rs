// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where functions are left that compilers and assemblers have made in unusual ways.

use crate::probes::{here, probe_query};
use crate::support::Folder;
use nsprobe_probes::{ProbeQuery, Probes, Refused};
use nsprobe_symbolize::FileOffset;
use std::path::Path;

/// One of two ways out of `tail` goes on in a function that a pointer says.
const POINTER: &str = "
    typedef long (*function)(long);
    long twice(long of) { return of * 2; }
    function volatile pointer = twice;
    __attribute__((noipa)) long tail(long of) { return of & 1 ? pointer(of) : of * 2; }
    __attribute__((noipa)) long call(long of) { return pointer(of) + 1; }
    int main(int argc, char **argv) { return (int)(tail(argc) + call(argc)); }
";

/// Thunks as kernels have them.
const THUNKS: &str = r#"
    __asm__(".irp register, rax, rdx, r11\n .globl __x86_indirect_thunk_\\register\n"
    " __x86_indirect_thunk_\\register: lfence\n jmp *%\\register\n .endr\n"
    " .globl __x86_return_thunk\n __x86_return_thunk: ret\n int3\n");
"#;

/// The same through a pointer to what has no `endbr64`.
const UNCHECKED: &str = "
    typedef long (*unchecked)(long) __attribute__((nocf_check));
    unchecked volatile pointer;
    __attribute__((noipa)) long tail(long of) { return of & 1 ? pointer(of) : of * 2; }
    __attribute__((noipa)) long cases(long of) {
        switch (of) {
        case 0: return pointer(1) + 1;
        case 1: return pointer(7) * 2;
        case 2: return pointer(9) - 5;
        case 3: return pointer(4) / 3;
        case 4: return pointer(8) ^ 3;
        case 5: return pointer(8) | 3;
        }
        return 3;
    }
    int main(int argc, char **argv) { return (int)(tail(argc) + cases(argc)); }
";

/// Functions of an assembler, or as clang makes them (-mlvi-hardening, -mretpoline): each leaves by `jmp *%rax`, or what means the same, and by `ret`.
const ASSEMBLED: &str = r#"
    __asm__(".text\n"
    ".macro begin name\n .globl \\name\n .type \\name, @function\n \\name: .cfi_startproc\n .endm\n"
    ".macro end name\n .cfi_endproc\n .size \\name, . - \\name\n .endm\n"
    "begin bare_epilogue\n push %rbx\n .cfi_def_cfa_offset 16\n test %edi, %edi\n je 1f\n"
    " pop %rbx\n jmp *%rax\n 1: pop %rbx\n ret\n end bare_epilogue\n"
    "begin half_bare\n push %rbx\n .cfi_def_cfa_offset 16\n test %edi, %edi\n je 1f\n"
    " pop %rbx\n jmp *%rax\n 1: pop %rbx\n .cfi_def_cfa_offset 8\n ret\n end half_bare\n"
    "begin pushed\n test %edi, %edi\n je 1f\n push %rax\n ret\n 1: ret\n end pushed\n"
    "begin popped\n test %edi, %edi\n je 1f\n pop %rcx\n lfence\n jmp *%rcx\n 1: ret\n end popped\n"
    "begin retpolined\n test %edi, %edi\n je 1f\n jmp thunk\n 1: ret\n end retpolined\n"
    "begin thunk\n call 1f\n 2: pause\n lfence\n jmp 2b\n .p2align 4\n"
    " 1: mov %r11, (%rsp)\n ret\n end thunk\n");
    int main(void) { return 0; }
"#;

fn returns_of(path: &Path, function: &str) -> Result<Probes, Refused> {
    let query = ProbeQuery {
        at_return: true,
        ..probe_query(function)
    };
    here(path, &query)
}

/// How many returns a function has, and how many jumps after which they are not seen.
fn ways_out(path: &Path, function: &str) -> (usize, usize) {
    let found = returns_of(path, function).unwrap().probes;
    let exits = found[0].exits.as_ref().expect("exits");
    let file = std::fs::read(path).unwrap();
    let is_ret = |place: &FileOffset| file[place.0 as usize] == 0xc3;
    assert!(exits.returns.iter().all(is_ret), "{exits:?}");
    (exits.returns.len(), exits.left.len())
}

#[test]
fn thunks_are_no_tail_calls() {
    let cases: [&[&str]; 7] = [
        &[],
        &["-mindirect-branch=thunk"],
        &["-mindirect-branch=thunk-inline"],
        &["-mfunction-return=thunk"],
        &["-mfunction-return=thunk-inline"],
        &["-mindirect-branch=thunk-extern"],
        &["-mfunction-return=thunk-extern"],
    ];
    for flags in cases {
        let folder = Folder::new("exits-thunks");
        let mut source = POINTER.replace("noipa", "noinline");
        if flags.iter().any(|flag| flag.ends_with("extern")) {
            source += THUNKS;
        }
        let flags = [&["-O2", "-fcf-protection=none", "-w"], flags].concat();
        let Some(path) = folder.program("program", &source, &flags) else {
            continue;
        };
        assert_eq!(ways_out(&path, "tail"), (1, 1), "{flags:?}");
        assert_eq!(ways_out(&path, "call"), (1, 0), "{flags:?}");
    }
}

#[test]
fn an_untracked_jump_is_a_switch_or_refused() {
    let folder = Folder::new("exits-notrack");
    let flags = ["-O2", "-fcf-protection=full"];
    let Some(path) = folder.program("program", UNCHECKED, &flags) else {
        return;
    };
    let why = returns_of(&path, "tail").unwrap_err();
    assert!(format!("{why:?}").contains("puts no breakpoint"), "{why:?}");
    assert_eq!(ways_out(&path, "cases").1, 0);
}

#[test]
fn what_an_assembler_s_file_says_of_frames_is_checked() {
    let folder = Folder::new("exits-assembled");
    let Some(path) = folder.program("program", ASSEMBLED, &["-O2"]) else {
        return;
    };
    for function in [
        "bare_epilogue",
        "half_bare",
        "pushed",
        "popped",
        "retpolined",
    ] {
        assert_eq!(ways_out(&path, function), (1, 1), "{function}");
    }
}

#[test]
fn a_symbol_inside_of_an_instruction_is_refused() {
    const SYMBOLS: &str = r#"
        __asm__(".text\n .type whole, @function\n"
        "whole: .cfi_startproc\n mov $1, %eax\n ret\n second: mov $2, %eax\n ret\n .cfi_endproc\n"
        " .size whole, 6\n"
        " .type sized, @function\n sized: mov $3, %eax\n ret\n .size sized, . - sized\n"
        " .type by_frame, @function\n .set by_frame, second + 1\n"
        " .type by_size, @function\n .set by_size, sized + 2\n"
        " .type second, @function\n");
        int main(void) { return 0; }
    "#;
    let folder = Folder::new("exits-symbols");
    let Some(path) = folder.program("program", SYMBOLS, &["-O2"]) else {
        return;
    };
    for function in ["whole", "second", "sized"] {
        assert!(here(&path, &probe_query(function)).is_ok(), "{function}");
    }
    for function in ["by_frame", "by_size"] {
        let why = here(&path, &probe_query(function)).unwrap_err();
        assert!(
            format!("{why:?}").contains("into an instruction"),
            "{why:?}"
        );
        let forced = ProbeQuery {
            force: true,
            ..probe_query(function)
        };
        assert!(here(&path, &forced).is_ok());
    }
}

/// Hidden functions of a stripped file: `other` does not return, and what comes after a call of it
/// is no part of `begun` or `last`.
#[test]
fn undescribed_code_ends_where_calls_do_not_return() {
    const HIDDEN: &str = r#"
        __asm__(".text\n .globl give\n .type give, @function\n"
        "give: .cfi_startproc\n test %edi, %edi\n je 1f\n ret\n 1: jmp begun\n .cfi_endproc\n"
        " .size give, . - give\n"
        ".globl take\n .type take, @function\n"
        "take: .cfi_startproc\n test %edi, %edi\n je 1f\n ret\n 1: jmp last\n .cfi_endproc\n"
        " .size take, . - take\n"
        "begun: sub $8, %rsp\n call other\n"
        "next: mov $1, %eax\n ret\n"
        "other: ud2\n"
        "last: call other\n"
        "described: .cfi_startproc\n mov $2, %eax\n ret\n .cfi_endproc\n");
    "#;
    let folder = Folder::new("exits-undescribed");
    let flags = ["-s", "-shared", "-fPIC", "-nostdlib"];
    let Some(path) = folder.program("program", HIDDEN, &flags) else {
        return;
    };
    for function in ["give", "take"] {
        assert_eq!(ways_out(&path, function), (1, 1), "{function}");
    }
}
