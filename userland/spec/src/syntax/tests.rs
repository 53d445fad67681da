// SPDX-License-Identifier: MIT OR Apache-2.0
//! What specs say, and where they are wrong.
use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Spec {
    Spec::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

fn functions(name: &str, offset: u64) -> ProbePoint {
    ProbePoint::Functions {
        name: name.to_owned(),
        offset,
    }
}

/// An expression with all its brackets, so that one sees how operators bind.
fn shown(expression: &Expression) -> String {
    match &expression.kind {
        ExpressionKind::Number(number) => number.to_string(),
        ExpressionKind::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
        ExpressionKind::Name(name) => name.clone(),
        ExpressionKind::Argument(number) => format!("arg{number}"),
        ExpressionKind::Register(register, bytes) => format!("%{register:?}.{bytes}"),
        ExpressionKind::Context(context) => format!("${context:?}"),
        ExpressionKind::Returned(1) => "$retval".to_owned(),
        ExpressionKind::Returned(number) => format!("$retval{number}"),
        ExpressionKind::Comm => "$comm".to_owned(),
        ExpressionKind::Goroutine => "$goid".to_owned(),
        ExpressionKind::StackWord(number) => format!("$stack{number}"),
        ExpressionKind::All { locals } => format!("$all({locals})"),
        ExpressionKind::Member { of, name } => format!("{}.{name}", shown(of)),
        ExpressionKind::Element { of, index } => format!("{}[{}]", shown(of), shown(index)),
        ExpressionKind::Unary(operator, of) => format!("{operator:?}({})", shown(of)),
        ExpressionKind::Binary(operator, a, b) => {
            format!("({} {operator:?} {})", shown(a), shown(b))
        }
        ExpressionKind::Cast(to, of) => format!("<{}{}>{}", to.bytes, to.pointers, shown(of)),
        ExpressionKind::AtEntry(of) => format!("entry({})", shown(of)),
    }
}

fn condition(text: &str) -> String {
    shown(&parse(&format!("f if {text}")).condition.unwrap())
}

#[test]
fn places_are_told_apart() {
    let place = |text: &str| parse(text).place;
    assert_eq!(place("malloc"), functions("malloc", 0));
    assert_eq!(place("malloc+0x10"), functions("malloc", 16));
    assert_eq!(place("SSL_*"), functions("SSL_*", 0));
    assert_eq!(place("ns::Type::method"), functions("ns::Type::method", 0));
    assert_eq!(place("Vec<T>::push"), functions("Vec<T>::push", 0));
    assert_eq!(place("Type::operator()"), functions("Type::operator()", 0));
    for name in [
        "operator+",
        "X::operator<<",
        "std::map<int, X<f> >::at",
        "<a::B as c::D<fn() -> u8>>::e",
        "my_operator",
        "main::{closure#0}",
        "f.llvm.123@@V1",
    ] {
        let spec = parse(&format!("{name}(arg1) if arg2"));
        assert_eq!(spec.place, functions(name, 0));
        assert_eq!((spec.fields.len(), spec.at_return), (1, false));
        assert!(parse(&format!("{name}%return")).at_return);
        assert_eq!(place(&format!("{name}+4")), functions(name, 4));
    }
    assert_eq!(
        place("\"ns::f(int, char*)\"(arg1)"),
        functions("ns::f(int, char*)", 0)
    );
    assert_eq!(place("0x1a40"), ProbePoint::FileOffset(0x1a40));
    let line = |file: &str, line| ProbePoint::Line {
        file: file.to_owned(),
        line,
    };
    assert_eq!(place("src/t_string.c:123"), line("src/t_string.c", 123));
    let usdt = ProbePoint::Usdt {
        provider: "libc".to_owned(),
        name: "setjmp".to_owned(),
    };
    assert_eq!(place("libc:setjmp(arg1)"), usdt);
}

#[test]
fn parameters_need_no_quotes_where_they_can_be_nothing_else() {
    for name in [
        "f(int)",
        "ns::f(int, std::string const&)",
        "f(Item*, Item)",
        "f(char const*, unsigned long) const",
        "Box<std::string>::get(int&&) const &",
        "f(void (*)(int), std::map<int, char> const&)",
        "operator()(int)",
        "f[abi:cxx11](int)",
        "(anonymous namespace)::f(int)",
        "printf(char const*, ...)",
    ] {
        for (behind, fields, is_conditional) in [
            ("", 0, false),
            ("(arg1, n=arg2)", 2, false),
            ("(*p) if arg1 > 3", 1, true),
            (" if arg1 == \"a\"", 0, true),
        ] {
            let spec = parse(&format!("{name}{behind}"));
            assert_eq!(spec.place, functions(name, 0), "{name}{behind}");
            assert_eq!(spec.fields.len(), fields);
            assert_eq!(spec.condition.is_some(), is_conditional);
        }
        assert!(parse(&format!("{name}%return(arg1)")).at_return);
    }
    // All of these are fields.
    for fields in [
        "(a)",
        "(a, b)",
        "(std::count)",
        "(*a)",
        "(&a)",
        "(a*b)",
        "(a<b)",
        "(a.b, c->d)",
        "(arg1:char)",
        "((int)a)",
        "()",
    ] {
        let spec = parse(&format!("f{fields}"));
        assert_eq!(spec.place, functions("f", 0), "{fields}");
    }
    let abi = parse("`f[abi:cxx11](int)`(arg1)");
    assert_eq!(abi.place, functions("f[abi:cxx11](int)", 0));
    for (text, place) in [("int f<int>(int)", 4), ("f(int) x", 7), ("f(a) b", 5)] {
        let error = Spec::parse(text).expect_err(text);
        assert!(error.message.contains("backquotes"), "{text}: {error}");
        assert_eq!(error.span.start, place, "{text}: {error}");
    }
}

#[test]
fn returns_are_said_or_follow() {
    assert!(parse("f%return").at_return);
    assert!(parse("f%return(arg1)").at_return);
    assert!(!parse("f(arg1)").is_at_return([]));
    assert!(parse("f($retval)").is_at_return([]));
    assert!(parse("f if $elapsed > 1000").is_at_return([]));
}

#[test]
fn fields_have_names_and_formats() {
    let spec = parse("f(arg1, name=arg2->x:string[16], $retval:s32, *arg3:x8) if arg1 != 0");
    let names: Vec<&str> = spec
        .fields
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(names, ["arg1", "name", "$retval", "*arg3"]);
    let formats: Vec<_> = spec.fields.iter().map(|field| field.format).collect();
    assert_eq!(
        formats,
        [
            None,
            Some(ValueFormat::Text { most: 16 }),
            Some(ValueFormat::Decimal {
                bytes: 4,
                signed: true
            }),
            Some(ValueFormat::Hex { bytes: 1 })
        ]
    );
    assert!(parse("f()").fields.is_empty());
}

#[test]
fn operators_bind_as_in_c() {
    assert_eq!(
        condition("a + b * 2 == c && d || !e"),
        "((((a Add (b Multiply 2)) Equal c) And d) Or Not(e))"
    );
    assert_eq!(condition("a - b - c"), "((a Subtract b) Subtract c)");
    assert_eq!(condition("-a[1].b->c"), "Minus(a[1].b.c)");
    assert_eq!(condition("*(u32 *)(arg1 + 8)"), "Load(<41>(arg1 Add 8))");
    assert_eq!(condition("(a)"), "a");
    assert_eq!(condition("x & 1 << 3"), "(x BitAnd (1 ShiftLeft 3))");
    assert_eq!(condition("+8(%sp) > 1"), "(Load((%Rsp.8 Add 8)) Greater 1)");
    assert_eq!(condition("name ~ \"GET*\""), "(name Matches \"GET*\")");
    assert_eq!(condition("%eax % 2"), "(%Rax.4 Modulo 2)");
    assert_eq!(condition("a%3 == b"), "((a Modulo 3) Equal b)");
    assert_eq!(condition("entry(*p) == 'x'"), "(entry(Load(p)) Equal 120)");
    assert_eq!(condition("$uid == 0x3e8"), "($Uid Equal 1000)");
    assert_eq!(condition("len%size%4"), "((len Modulo size) Modulo 4)");
    assert_eq!(condition("a%%di"), "(a Modulo %Rdi.8)");
    assert_eq!(condition("pair.0.1"), "pair.__0.__1");
    let spans = "(20000000 Add (3000000000 Add (2000 Add 1)))";
    assert_eq!(condition("20ms + (3s + (2us + 1ns))"), spans);
    for (cast, shown) in [
        ("*(int *)p", "Load(<41>p)"),
        ("(unsigned long int)p", "<80>p"),
        ("(uint16_t)p", "<20>p"),
        ("(uint8)p", "<10>p"),
        ("(void **)p", "<02>p"),
        ("(size)", "size"),
        ("(size_t)p", "<80>p"),
    ] {
        assert_eq!(condition(cast), shown);
    }
}

#[test]
fn errors_point_at_the_place() {
    for (text, place, part) in [
        ("", 0, "function is missing"),
        ("f(", 2, "value is missing"),
        ("f(a", 3, "comma"),
        ("f(a b)", 4, "comma"),
        ("f(a:float)", 4, "no format"),
        ("f(a:string[999])", 11, "1 to 256"),
        ("f if", 4, "value is missing"),
        ("f if a ==", 9, "value is missing"),
        ("f if a = 1", 7, "should end"),
        ("f if $nothing", 5, "no such value"),
        ("f if %rzz", 5, "no such register"),
        ("f if \"x", 5, "closing quote"),
        ("f if 12monkeys", 5, "not a number"),
        ("f if 0x1ms", 5, "not a number"),
        ("f if 99999999999999s", 5, "not a number"),
        ("f if a ? b", 7, "should end"),
        ("\"f", 0, "closing quote"),
        ("f.c:0", 0, "such a line"),
        ("f+0xzz", 0, "not a number"),
        ("f if 'ab'", 5, "one character"),
        ("f(`Box<int>::count)", 2, "closing quote"),
        ("f if é§", 7, "means nothing"),
        ("f(a:sting)", 4, "did you mean string"),
        ("f(a:bytes)", 4, "how many"),
        ("f(%rdj)", 2, "did you mean %rdi"),
        ("f($retvl)", 2, "did you mean $retval"),
        ("f(str(arg1))", 2, "EXPR:string"),
        ("Vec<T::push", 3, "never closed"),
        ("f if (void)a", 11, "should end"),
    ] {
        let error = Spec::parse(text).expect_err(text);
        assert_eq!(error.span.start, place, "{text}: {error}");
        assert!(error.message.contains(part), "{text}: {error}");
    }
    let deep = format!("f if {}1", "(".repeat(10_000));
    assert!(Spec::parse(&deep).unwrap_err().message.contains("nested"));
    let deep = format!("f if {}1", "!".repeat(10_000));
    assert!(Spec::parse(&deep).unwrap_err().message.contains("nested"));
    for long in [".b", "+a", "[1]", " && a"] {
        let long = format!("f if a{}", long.repeat(10_000));
        assert!(Spec::parse(&long).unwrap_err().message.contains("too long"));
    }
    let members = vec!["a->b->c"; 32].join(", ");
    assert_eq!(parse(&format!("f({members})")).fields.len(), 32);
}

/// The specs of the language's description are understood.
#[test]
fn what_is_documented_parses() {
    let text = include_str!("../../../../docs/spec.md");
    let quoted = text.split('`').filter_map(|part| part.strip_prefix("BIN:"));
    let shell = text.split('\'').filter_map(|part| {
        let behind = part.split_once(':').map(|(_, rest)| rest);
        behind.filter(|_| part.contains(".so.6:") || part.contains("/redis-server:"))
    });
    let all: Vec<&str> = quoted.chain(shell).collect();
    assert!(all.len() > 10, "{all:?}");
    for spec in all {
        let parsed = Spec::parse(spec);
        assert!(parsed.is_ok(), "{spec}: {parsed:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_text_panics(text in "[a-z$%():,+*&|<>=!~\\[\\]\"'0-9 .é-]{0,40}") {
        if let Err(error) = Spec::parse(&text) {
            prop_assert!(text.get(error.span.clone()).is_some(), "{:?}", error);
        }
        let _ = Field::parse_list(&text);
    }
}

#[test]
fn what_is_sent_to_another_process_comes() {
    for text in [
        "f",
        "f+0x10(arg1)",
        "\"ns::f(int)\"",
        "main.c:12(x, y.z[3]:hex) if *p == 3 && $comm ~ \"a*\"",
        "provider:name(arg1:string)",
        "f%return(n=$retval, $elapsed, $pid, %rdi, *(u32 *)(arg2 + 8))",
        "f($vars) if a != -1 || !b",
    ] {
        let spec = parse(text);
        let bytes = postcard::to_stdvec(&spec).unwrap();
        assert_eq!(postcard::from_bytes(&bytes), Ok(spec), "{text}");
    }
    let change = Assignment::parse("%rax = 3").unwrap();
    let bytes = postcard::to_stdvec(&change).unwrap();
    assert_eq!(postcard::from_bytes(&bytes), Ok(change));
}
