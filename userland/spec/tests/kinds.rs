// SPDX-License-Identifier: MIT OR Apache-2.0
//! One of each kind of thing of which a value can be wrong without a word: members of base
//! classes, references, results, other conventions and byte orders, variants.

use crate::support::fields::{case, check_all, Case, When};
use crate::support::Folder;

const fn at_return(case: Case) -> Case {
    Case {
        at: When::Return,
        ..case
    }
}

const MEMBERS: Case = case(
    "own",
    &[
        ("o->n", "2"),
        ("o->Left::n", "1"),
        ("o->m", "3"),
        ("o->both", "!`both` is in several of the base classes"),
        ("o->Left::both", "4"),
        ("o->Right::both", "5"),
        ("d->n", "12"),
        ("d->Left::n", "11"),
        ("d->m", "14"),
        ("d->z", "13"),
        ("d->both", "!in several"),
        ("d->Right::both", "16"),
        ("o->Wrong::n", "!no member `Wrong`"),
        ("*o", "{Left::n=1, Left::both=4, m=3, Right::both=5, n=2}"),
        ("a.n", "21"),
        ("a.both", "24"),
        ("a.Left::both", "22"),
        ("a.inner", "23"),
        ("a.either.high", "26"),
    ],
);

const VIRTUALS: Case = case(
    "virtuals",
    &[
        ("v->edge", "34"),
        ("v->near", "32"),
        ("v->far", "33"),
        // By two ways to one object.
        ("v->root", "31"),
        ("v->Root::root", "31"),
        ("n.root", "31"),
    ],
);

const REFERENCES: Case = case(
    "refs",
    &[
        ("a", "41"),
        ("a * 2", "82"),
        ("-a", "-41"),
        ("a == 41", "true"),
        ("a > 40 && a < 42", "true"),
        ("list[a - 39]", "30"),
        ("p", "{first=42, second=43}"),
        ("p.second", "43"),
        ("pp->first", "42"),
        ("*pp", "{first=42, second=43}"),
        ("s", "live"),
        ("s == \"live\"", "true"),
        ("list[3]", "40"),
        ("moved", "44"),
        ("yes", "true"),
        ("*&a", "41"),
        ("entry(a)", "41"),
        ("held.number", "41"),
        ("held.number + 1", "42"),
        ("held.text", "held"),
        ("held.text == \"held\"", "true"),
        ("arg1", "41"),
        ("arg4", "live"),
    ],
);

const IN_REGISTERS: Case = case(
    "in_registers",
    &[
        ("p", "{first=42, second=43}"),
        ("p.second", "43"),
        ("b", "{low=5, middle=-6, high=11259375}"),
        ("b.middle", "-6"),
        ("b.high", "11259375"),
    ],
);

const RESULTS: [Case; 7] = [
    at_return(case("pick", &[("$retval", "40"), ("$retval / 4", "10")])),
    at_return(case("give_pair", &[("$retval", "{first=7, second=-7}")])),
    at_return(case(
        "negative",
        &[("$retval", "-8"), ("$retval < 0", "true")],
    )),
    at_return(case(
        "narrow",
        &[("$retval:u8", "192"), ("$retval == 192", "true")],
    )),
    at_return(case("nothing", &[("$retval", "!returns nothing")])),
    at_return(case("real", &[("$retval", "!vector register")])),
    case(
        "narrow",
        &[
            ("arg1:u8", "200"),
            ("arg2", "-9"),
            ("arg3", "true"),
            ("arg4", "!3 parameters"),
        ],
    ),
];

const WORDS: [Case; 2] = [
    case("variadic", &[("arg1", "2"), ("arg2", "51"), ("arg3", "52")]),
    case("real", &[("arg1", "!vector register"), ("arg2", "-3")]),
];

/// What names mean in the source: of the function's own namespace or class, or around it.
const NAMES: [Case; 2] = [
    case(
        "names",
        &[
            ("k", "1"),
            ("limit", "91"),
            ("api::limit", "93"),
            ("hidden", "95"),
            ("level", "96"),
            ("constant", "4711"),
            ("constant == 4711", "true"),
            ("real_constant", "3.5"),
            ("`Typed<int>::count`", "94"),
            ("Typed::count", "!Typed<char>::count"),
        ],
    ),
    case(
        "method",
        &[
            ("count", "94"),
            ("own", "!a member of the object: this->own"),
            ("this->own", "97"),
        ],
    ),
];

const CHARACTERS: Case = case(
    "characters",
    &[
        ("a", "Character('ü')"),
        ("b", "Character('😀')"),
        ("b:char", "Character('😀')"),
        ("b == '😀'", "true"),
        ("b + 0", "128512"),
        ("c", "Character('€')"),
        // Half of one.
        ("half", "55357"),
        ("all[0]", "Character('Ā')"),
    ],
);

/// Parameters of packs, those without names, and those that only some constructors have.
const PARAMETERS: [Case; 5] = [
    case("method", &[("arg2", "98"), ("b", "99"), ("arg3", "99")]),
    case("Constructed", &[("a", "97"), ("b", "98")]),
    case("Whole", &[("c", "97")]),
    case(
        "unnamed",
        &[
            ("arg1", "101"),
            ("arg2", "102"),
            ("b", "102"),
            ("arg3", "103"),
        ],
    ),
    case(
        "pack",
        &[
            ("first", "packed"),
            ("arg2", "104"),
            ("arg3", "105"),
            ("arg4", "-106"),
            ("arg5", "!4 parameters"),
        ],
    ),
];

#[test]
fn values_of_cxx_are_those_of_the_program() {
    let folder = Folder::new("kinds-cxx");
    for flags in [["-g", "-O2"], ["-g", "-O0"], ["-gdwarf-4", "-O1"]] {
        println!("{flags:?}");
        let Some(program) = folder.build("g++", "kinds.cc", &flags) else {
            return;
        };
        let mut cases = vec![MEMBERS, VIRTUALS, REFERENCES, IN_REGISTERS];
        cases.extend(RESULTS);
        cases.extend(WORDS);
        cases.extend(NAMES);
        cases.push(CHARACTERS);
        cases.extend(PARAMETERS);
        check_all(&program, &cases);
    }
}

/// The convention of Windows, of which the debug information says nothing.
const WINDOWS: [Case; 2] = [
    case(
        "windows",
        &[
            ("a", "!calling convention"),
            ("arg5", "!calling convention"),
        ],
    ),
    Case {
        at: When::Body,
        ..case(
            "windows",
            &[
                ("a", "10"),
                ("b", "win"),
                ("c->y", "40"),
                ("d", "-5"),
                ("e", "60"),
            ],
        )
    },
];
const WINDOWS_OPTIMIZED: [Case; 3] = [
    case("copied", &[("arg1", "16"), ("arg3", "17")]),
    case(
        "windows",
        &[
            ("a", "10"),
            ("b", "win"),
            ("c->x", "30"),
            ("d", "-5"),
            ("arg1", "10"),
        ],
    ),
    case("windows_unused", &[("c->x", "30")]),
];
const ORDERS: [Case; 2] = [
    case(
        "reversed",
        &[
            ("big->whole", "!cannot be fetched as a number"),
            ("big->whole:bytes[4]", "00000003"),
            ("big->bits", "!bit-field"),
            ("mixed->native", "1"),
            ("mixed->last", "5"),
            ("*mixed", "!bit-field"),
        ],
    ),
    case(
        "complex_one",
        &[
            ("*z", "!cannot be fetched as a number"),
            ("*z:bytes[8]", "0000c03f00000000"),
        ],
    ),
];

/// Numbers of other sizes than those of the processor's registers, and alignments.
const SIZES: [Case; 4] = [
    case(
        "floats",
        &[
            ("f->half", "-1.5"),
            ("f->least", "0.00000095367431640625"),
            (
                "f->extended",
                "!a long double cannot be fetched as a number",
            ),
            ("f->quad", "!a _Float128 cannot be fetched as a number"),
            (
                "*f",
                "{half=-1.5, least=0.00000095367431640625, \
                 extended=00000000000000a00040000000000000, \
                 quad=00000000000000000000000000c00040, last=4.5}",
            ),
        ],
    ),
    case(
        "crossing",
        &[
            ("*c", "{a=77, b=-12345678901, c=-777}"),
            ("c->b", "-12345678901"),
            ("c->c", "-777"),
        ],
    ),
    case(
        "aligned",
        &[
            ("g", "7"),
            ("s", "{first=71, second=72, third=73}"),
            ("h", "8"),
        ],
    ),
    case("number", &[("a", "9"), ("h", "12")]),
];
const UNKNOWN_SIZES: Case = case("vector", &[("a", "13"), ("h", "!how a `wide` is passed")]);

#[test]
fn other_conventions_and_byte_orders_are_not_guessed_at() {
    let folder = Folder::new("kinds-c");
    for (flags, windows) in [
        (["-g", "-O0"], &WINDOWS[..]),
        (["-g", "-O2"], &WINDOWS_OPTIMIZED),
    ] {
        println!("{flags:?}");
        let Some(program) = folder.build("gcc", "kinds.c", &flags) else {
            return;
        };
        let mut cases = [windows, &ORDERS].concat();
        cases.extend(SIZES);
        if flags.contains(&"-O0") {
            cases.push(UNKNOWN_SIZES);
        }
        check_all(&program, &cases);
    }
}

const CLANG: [Case; 8] = [
    case(
        "bits",
        &[
            ("p->b + 0", "11"),
            ("p->c", "-777"),
            ("p->d", "-12345678901"),
            ("p->wide", "9141386507638288912"),
            ("p->most", "-2"),
            ("p->last", "true"),
        ],
    ),
    case("by_value", &[("s", BY_VALUE), ("s.c", "-400000000001")]),
    Case {
        at: When::Body,
        ..case("by_value", &[("s", BY_VALUE), ("s.c", "-400000000001")])
    },
    // Its callers leave the registers of the others as they are.
    case(
        "unused",
        &[
            ("a", "1"),
            ("b", "!optimized out"),
            ("c", "!optimized out"),
            ("arg2", "!optimized out"),
        ],
    ),
    case(
        "behind",
        &[
            ("g", "7"),
            ("s", "{first=71, second=72, third=73}"),
            ("h", "8"),
        ],
    ),
    case(
        "between",
        &[
            ("g", "47"),
            ("s.first", "71"),
            ("s.third", "73"),
            ("h", "48"),
        ],
    ),
    case("strictly", &[("g", "81"), ("s.first", "82"), ("h", "83")]),
    case("number", &[("h", "!a number of 16 bytes")]),
];
const BY_VALUE: &str = "{a=77, b=-3000001, c=-400000000001, d=900000}";

/// Made of `fixture/clang.c` by clang 14:
/// `clang -O2 -gdwarf-4 -gz=zlib -ffile-prefix-map=$PWD/= -o values-clang clang.c`.
#[test]
fn values_of_clang_are_those_of_the_program() {
    let folder = Folder::new("kinds-clang");
    let program = folder.path("program");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/testdata/values-clang");
    std::fs::copy(fixture, &program).unwrap();
    check_all(&program, &CLANG);
}

const SHAPES: Case = case(
    "shapes",
    &[
        ("*circle", "Circle{r=5}"),
        ("*rect", "Rect{__0=2, __1=3}"),
        ("*nil", "Nil{}"),
        ("*below", "Below{__0=6}"),
        ("*above", "Above{}"),
    ],
);
const HOLDERS: Case = case(
    "holders",
    &[
        ("some.number", "Some{__0=7}"),
        ("some.truth", "Some{__0=true}"),
        ("some.result", "Err{__0=300}"),
        ("some.pair", "{__0=5, __1=-6}"),
        ("some.nested", "Some{__0=Circle{r=9}}"),
        ("some.never", "Ok{__0=11}"),
        ("none.number", "None{}"),
        ("none.niche", "None{}"),
        ("none.truth", "None{}"),
        ("none.result", "Ok{__0=4}"),
        ("none.nested", "None{}"),
        ("some.number.r", "!variant"),
    ],
);

const LETTERS: Case = case(
    "letters",
    &[("a", "Character('q')"), ("b", "Character('😀')")],
);

/// What a closure has captured comes before its arguments.
const CLOSURES: [Case; 2] = [
    case(
        "captured::{closure#0}",
        &[("z", "!captured comes first"), ("arg2", "!captured")],
    ),
    Case {
        at: When::Body,
        ..case("captured::{closure#0}", &[("z", "5"), ("w", "-6")])
    },
];

#[test]
fn values_of_rust_are_those_of_the_program() {
    let folder = Folder::new("kinds-rust");
    let [closure, in_closure] = CLOSURES;
    let whole: &[Case] = &[SHAPES, HOLDERS, LETTERS, closure, in_closure];
    for (flags, cases) in [
        (["-g", "-Copt-level=0"], whole),
        (["-g", "-Copt-level=2"], &[HOLDERS]),
    ] {
        println!("{flags:?}");
        if let Some(program) = folder.build("rustc", "kinds.rs", &flags) {
            check_all(&program, cases);
        }
    }
}
