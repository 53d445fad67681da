// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where source lines and static probes are, in programs of the machine's own compiler.

use crate::probes::{here, probe_query};
use crate::support::{file, Folder};
use nsprobe_probes::{ProbeQuery, Probes, Refused};
use nsprobe_spec::decode::WordShape;
use nsprobe_symbolize::Binary;
use std::path::{Path, PathBuf};
use std::process::Command;

const LINES: &str = "\
#include <stdexcept>
#define ENTRY __attribute__((noinline, noclone))
#define CHECK(x) do { if (__builtin_expect(!(x), 0)) slow(); } while (0)
static volatile int sink;
static int list[10];
__attribute__((noinline, cold)) void slow() { sink = sink + 1; }
ENTRY int check(int a) {
    int b = a * 2;
    if (a % 5 == 0) throw std::runtime_error(\"five\");
    return b + 1;
}
ENTRY int walk(int a) {
    try { return check(a); }
    catch (std::exception &) { return -1; }
}
ENTRY int macro(int a) {
    sink = a;
    CHECK(a % 4);
    return sink + a;
}
ENTRY void copies(int flag, int n) {
    for (int i = 0; i < n; i++) {
        if (flag) sink = i;
        sink = list[i] + flag;
    }
}
static inline __attribute__((always_inline)) int inlined(int a) {
    if (a % 3 == 0) throw a;
    return a * 7;
}
ENTRY int calls(int a) {
    try { return inlined(a); }
    catch (int) { return sink; }
}
int main() {
    for (int i = 1; i <= 20; i++) {
        walk(i);
        calls(i);
        macro(i);
    }
    copies(0, 10);
    copies(1, 10);
}
";

/// How often the program comes to lines of its source.
const COMES_TO: [(u32, u64); 8] = [
    (9, 20),
    (10, 16),
    (13, 20),
    (18, 20),
    (19, 20),
    (24, 20),
    (28, 20),
    (32, 20),
];

/// How often a program comes to each of some places of its file, as gdb counts.
fn reached(program: &Path, places: &[u64]) -> Option<Vec<u64>> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-ex", "starti"]);
    for (place, number) in places.iter().zip(1..) {
        // Where a program that is loaded anywhere is, without randomization.
        let at = 0x5555_5555_4000 + place;
        gdb.args(["-ex", &format!("break *{at:#x}")]);
        gdb.args(["-ex", &format!("ignore {number} 1000000")]);
    }
    gdb.args(["-ex", "continue", "-ex", "info breakpoints"]);
    let output = nsprobe_testing::output(gdb.arg(program))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, table) = text.rsplit_once("Num ").unwrap();
    let mut counts = Vec::new();
    for line in table.lines().skip(1) {
        match line.trim().strip_prefix("breakpoint already hit ") {
            Some(hits) => *counts.last_mut().unwrap() = hits.split(' ').next()?.parse().unwrap(),
            None if line.starts_with(|first: char| first.is_ascii_digit()) => counts.push(0),
            None => {}
        }
    }
    assert_eq!(counts.len(), places.len(), "{text}");
    Some(counts)
}

#[test]
fn a_line_is_where_it_is_come_to() {
    let folder = Folder::new("lines");
    for flags in [["-g", "-O2"], ["-g", "-O3"], ["-g", "-O0"]] {
        let (source, program) = (folder.0.join("lines.cc"), folder.0.join("lines"));
        std::fs::write(&source, LINES).unwrap();
        let mut compiler = nsprobe_testing::compiler("g++");
        compiler.args(flags).arg("-o").arg(&program).arg(&source);
        if !nsprobe_testing::success(&mut compiler) {
            return;
        }
        let binary = Binary::open(file(&program), &program).unwrap();
        let mut places = Vec::new();
        for (line, _) in COMES_TO {
            let found = here(&program, &probe_query(&format!("lines.cc:{line}"))).unwrap();
            assert_eq!(found.notes, [""; 0], "{flags:?} {line}");
            for probe in found.probes {
                let segment = binary.segment_of(probe.offset).unwrap();
                places.push((line, segment.address_of(probe.offset).unwrap().0));
            }
        }
        let addresses: Vec<u64> = places.iter().map(|(_, at)| *at).collect();
        let Some(counts) = reached(&program, &addresses) else {
            return;
        };
        for (line, expected) in COMES_TO {
            let counts = places.iter().zip(&counts);
            let of_line = counts.filter(|((of, _), _)| *of == line);
            let count: u64 = of_line.map(|(_, count)| *count).sum();
            assert_eq!(count, expected, "{flags:?} line {line}: {places:x?}");
        }
    }
}

/// A file with a static probe `dup:NAME` of such arguments, and a variable that another file has
/// as well.
fn with_static_probe(name: &str, arguments: &str) -> String {
    format!(
        "static volatile int state __attribute__((used)) = 1;
        void pass_{name}(void) {{
            __asm__ volatile(\"990: nop\\n\"
                \".pushsection .note.stapsdt,\\\"\\\",\\\"note\\\"\\n.balign 4\\n\"
                \".4byte 992f-991f, 994f-993f, 3\\n991: .asciz \\\"stapsdt\\\"\\n992: .balign 4\\n\"
                \"993: .8byte 990b, 0, 0\\n.asciz \\\"dup\\\"\\n.asciz \\\"{name}\\\"\\n\"
                \".asciz \\\"{arguments}\\\"\\n994: .balign 4\\n.popsection\");
        }}
        int state_{name}(void) {{ return state; }}
        "
    )
}

#[test]
fn values_without_debug_information_are_what_they_name_or_refused() {
    let folder = Folder::new("static");
    let one = with_static_probe("one", "-4@state(%rip) 4@alone(%rip)");
    let one = one + "static volatile int alone __attribute__((used)) = 2;";
    let two = with_static_probe("two", "-4@$7 -4@$-8 8@$20015998343868");
    let main = "int main(void) { return 0; }";
    let build = |name: &str, flags: &[&str]| -> Option<PathBuf> {
        let program = folder.0.join(name);
        let mut compiler = nsprobe_testing::compiler("gcc");
        compiler.args(flags).arg("-o").arg(&program);
        for (name, text) in [("one.c", &*one), ("two.c", &*two), ("main.c", main)] {
            let source = folder.0.join(name);
            std::fs::write(&source, text).unwrap();
            compiler.arg(source);
        }
        nsprobe_testing::success(&mut compiler).then_some(program)
    };
    let told = |program: &Path, spec: &str| match here(program, &probe_query(spec)) {
        Ok(found) => format!("{:?}", found.notes),
        Err(Refused::Spec(error)) => error.message,
        Err(other) => panic!("{spec}: {other:?}"),
    };
    let (Some(program), Some(stripped)) = (build("program", &["-O1"]), build("stripped", &["-s"]))
    else {
        return;
    };
    let message = told(&program, "dup:one(arg1)");
    assert!(message.contains("has 2 of that name"), "{message}");
    assert_eq!(told(&program, "dup:one(arg2)"), "[]");
    let message = told(&program, "state_one($retval)");
    assert!(message.contains("words of 64 bits"), "{message}");
    assert!(!message.contains("program"), "{message}");
    let message = told(&stripped, "dup:one(arg2)");
    assert!(message.contains("was stripped"), "{message}");
    let Probes { formats, notes, .. } = here(&program, &probe_query("dup:two($params)")).unwrap();
    assert_eq!(notes, [""; 0]);
    let names: Vec<&str> = formats[0].iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["arg1", "arg2", "arg3"]);
    assert!(formats[0]
        .iter()
        .all(|field| field.shape != WordShape::Missing));
}

const BEYOND: &str = "\
__attribute__((section(\".data.code,\\\"awx\\\",@progbits#\"), noinline)) int in_data(int a) { return a + 1; }
__attribute__((noinline)) int in_text(int a) { return a + 2; }
__attribute__((noinline)) int __chosen_fast(int a) { return a + 3; }
static int (*chosen_ifunc(void))(int) { return __chosen_fast; }
int chosen(int) __attribute__((ifunc(\"chosen_ifunc\")));
int main(void) { return in_data(1) + in_text(2) + chosen(3); }
";

const WITH_SEMAPHORE: &str = "\
unsigned short semaphore __attribute__((section(\".probes\"))) = 0;
int first __attribute__((section(\".first\"))) = 1;
void _start(void) {
    __asm__ volatile(\"990: nop\\n\"
        \".pushsection .note.stapsdt,\\\"\\\",\\\"note\\\"\\n.balign 4\\n\"
        \".4byte 992f-991f, 994f-993f, 3\\n991: .asciz \\\"stapsdt\\\"\\n992: .balign 4\\n\"
        \"993: .8byte 990b, 0, semaphore\\n.asciz \\\"a\\\"\\n.asciz \\\"b\\\"\\n\"
        \".asciz \\\"\\\"\\n994: .balign 4\\n.popsection\");
}
";

/// As lld lays files out: a page of the file is mapped for `.first`, and again for `.probes`.
const TWICE: &str = "\
PHDRS { text PT_LOAD FLAGS(5); one PT_LOAD FLAGS(6); two PT_LOAD FLAGS(6); }
SECTIONS {
    . = 0x401000;
    .text : { *(.text*) } :text
    . += 0x1000;
    .first : { *(.first) } :one
    . += 0x1000;
    .probes : { *(.probes) } :two
    /DISCARD/ : { *(.eh_frame) *(.comment) *(.note.gnu*) }
}
";

#[test]
fn what_the_kernel_does_not_reach_is_told() {
    let folder = Folder::new("beyond");
    let Some(program) = folder.program("beyond", BEYOND, &["-O1"]) else {
        return;
    };
    let why = |spec: &str| match here(&program, &probe_query(spec)) {
        Err(Refused::Because(why)) => why.join(": "),
        other => panic!("{spec}: {other:?}"),
    };
    let told = why("in_data");
    assert!(told.contains("is mapped writable"), "{told}");
    let found = here(&program, &probe_query("in_*")).unwrap();
    assert_eq!(found.probes.len(), 1);
    let is_told = |note: &String| note.starts_with("1 place without a probe: in_data");
    assert!(found.notes.iter().any(is_told), "{:?}", found.notes);
    let told = why("chosen");
    assert!(
        told.ends_with("instead, which may be __chosen_fast"),
        "{told}"
    );

    let script = folder.file("twice.ld", TWICE.as_bytes());
    let script = script.display().to_string();
    let plain = ["-O1", "-nostdlib", "-static", "-Wl,--build-id=none"];
    let twice = [&plain[..], &["-Wl,-T", &script]].concat();
    let notes = |name: &str, flags: &[&str]| {
        let program = folder.program(name, WITH_SEMAPHORE, flags)?;
        Some(here(&program, &probe_query("a:b")).unwrap().notes)
    };
    let (Some(once), Some(twice)) = (notes("once", &plain), notes("twice", &twice)) else {
        return;
    };
    assert_eq!(once, [""; 0]);
    assert!(twice[0].contains("maps the page of its semaphore twice"));
}

/// A ten-byte nop where a function begins, and under a static probe.
const NOPS: &str = "\
#define NOP10 \".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\\n\"
__asm__(\".globl begins\\n.type begins, @function\\nbegins: \" NOP10 \"push %rbx\\npop %rbx\\nret\\n\"
    \".size begins, . - begins\\n\");
int main(void) {
    __asm__ volatile(\"990: \" NOP10
        \".pushsection .note.stapsdt,\\\"\\\",\\\"note\\\"\\n.balign 4\\n\"
        \".4byte 992f-991f, 994f-993f, 3\\n991: .asciz \\\"stapsdt\\\"\\n992: .balign 4\\n\"
        \"993: .8byte 990b, 0, 0\\n.asciz \\\"fast\\\"\\n.asciz \\\"nop\\\"\\n\"
        \".asciz \\\"\\\"\\n994: .balign 4\\n.popsection\");
}
";

/// The kernel makes a call of a breakpoint there, and a program that moves its text dies of it.
#[test]
fn ten_byte_nops_are_probed_where_the_user_insists_alone() {
    let folder = Folder::new("nops");
    let Some(program) = folder.program("nops", NOPS, &["-O1"]) else {
        return;
    };
    let place = |query: &ProbeQuery| match here(&program, query) {
        Ok(found) => {
            let probe = &found.probes[0];
            Ok(probe.breakpoint.0 - probe.offset.0)
        }
        Err(Refused::Because(why)) => Err(why.join(": ")),
        Err(other) => panic!("{other:?}"),
    };
    let insists = |query: ProbeQuery| ProbeQuery {
        fast_nops: true,
        ..query
    };
    let exact = || ProbeQuery {
        exact: true,
        ..probe_query("begins")
    };
    assert_eq!(place(&probe_query("begins")), Ok(10));
    assert_eq!(place(&insists(probe_query("begins"))), Ok(0));
    for query in [exact, || probe_query("fast:nop")] {
        let why = place(&query()).expect_err("it is refused");
        assert!(why.contains("--fast-nops probes it"), "{why}");
        assert_eq!(place(&insists(query())), Ok(0));
    }
}
