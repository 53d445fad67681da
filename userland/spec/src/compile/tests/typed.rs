// SPDX-License-Identifier: MIT OR Apache-2.0
//! Variables with types: what their members, elements and addresses come to.
use super::*;
use crate::scope::{ScopeError, Typed, ValuePart, Variable, VariableRole};
use crate::types::{GoKind, Member, Shape, Type, TypeId};
use std::rc::Rc;

/// ```c
/// enum color { RED, BLUE = -2 };
/// struct point { int x, y; };
/// struct node {
///     struct node *next;                        // 0
///     enum color color;                         // 8
///     unsigned low : 3; int high : 5;           // 12
///     union { struct point at; long both; };    // 16
///     char name[6];                             // 24
///     bool on;                                  // 30
///     unsigned short counts[3];                 // 32
///     double weight;                            // 40
/// };
/// void f(struct node *node, struct point two, struct node whole, struct point split,
///        string label, string tag);
/// ```
/// `two` is in %rsi, `whole` and `tag` on the stack, `label` in %rcx and %r8, and half of
/// `split` is gone.
struct Nodes;

const INT: u64 = 1;
const UNSIGNED: u64 = 2;
const LONG: u64 = 3;
const CHAR: u64 = 4;
const COLOR: u64 = 5;
const POINT: u64 = 6;
const NODE: u64 = 7;
const NODE_POINTER: u64 = 8;
const UNION: u64 = 9;
const NAME: u64 = 10;
const BOOL: u64 = 11;
const COUNTS: u64 = 12;
const SHORT: u64 = 13;
const DOUBLE: u64 = 14;
/// An array of two of itself, and a union of two unnamed unions like itself: what a
/// file that lies may have.
const TURTLES: u64 = 15;
const ECHO: u64 = 16;
/// Many long arrays in a few bytes.
const CROWD: u64 = 17;
const ROW: u64 = 18;
/// Go's: an address and a length.
const STRING: u64 = 19;
const CHAR_POINTER: u64 = 20;

fn integer(name: &str, bytes: u64, signed: bool) -> Type {
    Type::new(name, Shape::Integer { bytes, signed })
}

fn structure(name: &str, id: u64, bytes: u64, union: bool) -> Type {
    let (id, bytes) = (TypeId(id), Some(bytes));
    Type::new(name, Shape::Struct { id, bytes, union })
}

fn array(of: u64, count: u64) -> Type {
    let (of, count) = (TypeId(of), Some(count));
    Type::new("array", Shape::Array { of, count })
}

fn kind(id: u64) -> Type {
    match id {
        INT => integer("int", 4, true),
        UNSIGNED => integer("unsigned", 4, false),
        SHORT => integer("unsigned short", 2, false),
        LONG => integer("long", 8, true),
        CHAR => Type::new(
            "char",
            Shape::Character {
                bytes: 1,
                signed: true,
            },
        ),
        BOOL => Type::new("bool", Shape::Boolean { bytes: 1 }),
        DOUBLE => Type::new("double", Shape::Float { bytes: 8 }),
        COLOR => Type::new(
            "enum color",
            Shape::Enumeration {
                bytes: 4,
                signed: true,
                values: Rc::from([(Rc::from("RED"), 0), (Rc::from("BLUE"), -2i64 as u64)]),
            },
        ),
        POINT => structure("struct point", POINT, 8, false),
        NODE => structure("struct node", NODE, 48, false),
        UNION => structure("union", UNION, 8, true),
        NAME => array(CHAR, 6),
        COUNTS => array(SHORT, 3),
        TURTLES => array(TURTLES, 2),
        ECHO => structure("echo", ECHO, 8, true),
        CROWD => structure("crowd", CROWD, 8, false),
        ROW => array(SHORT, 60_000),
        STRING => structure("string", STRING, 16, false),
        CHAR_POINTER => Type::new(
            "*uint8",
            Shape::Pointer {
                to: TypeId(CHAR),
                reference: false,
            },
        ),
        NODE_POINTER => Type::new(
            "struct node *",
            Shape::Pointer {
                to: TypeId(NODE),
                reference: false,
            },
        ),
        _ => panic!("there is no type {id}"),
    }
}

fn member(name: &str, offset: u64, id: u64) -> Member {
    Member {
        base: None,
        name: (!name.is_empty()).then(|| name.into()),
        offset,
        bits: None,
        type_id: TypeId(id),
    }
}

fn variable(name: &str, role: VariableRole, place: ValuePlace, id: u64) -> Variable {
    Variable {
        name: name.into(),
        role,
        value: Ok(Typed {
            place,
            kind: kind(id),
        }),
    }
}

impl Scope for Nodes {
    fn address(&self) -> u64 {
        0x1000
    }
    fn variable(&self, name: &str) -> Result<Variable, ScopeError> {
        let all = self.parameters()?.into_iter().chain(self.locals()?);
        let at = ValuePlace::Memory(Value::Image(0x2000));
        let global = |name, id| variable(name, VariableRole::Global, at.clone(), id);
        let mut all = all.chain([
            global("global", LONG),
            global("turtles", TURTLES),
            global("echo", ECHO),
            global("crowd", CROWD),
            global("main.Count", LONG),
            global("Box<int>::count", LONG),
        ]);
        let found = all.find(|variable| &*variable.name == name);
        found.ok_or_else(|| ScopeError::new(format!("no {name}")))
    }
    fn parameters(&self) -> Result<Vec<Variable>, ScopeError> {
        let register = |register| ValuePlace::Value(Value::Register(register));
        let stack = |at: u64| ValuePlace::Memory(Value::Register(Register::Rsp).plus(at));
        let half = ValuePlace::Pieces(Rc::from([ValuePart {
            offset: 4,
            bytes: 4,
            place: register(Register::Rdx),
        }]));
        let word = |offset, from| ValuePart {
            offset,
            bytes: 8,
            place: register(from),
        };
        let label = [word(0, Register::Rcx), word(8, Register::R8)];
        let label = ValuePlace::Pieces(Rc::from(label));
        Ok(vec![
            variable(
                "node",
                VariableRole::Parameter,
                register(Register::Rdi),
                NODE_POINTER,
            ),
            variable(
                "two",
                VariableRole::Parameter,
                register(Register::Rsi),
                POINT,
            ),
            variable("whole", VariableRole::Parameter, stack(8), NODE),
            variable("split", VariableRole::Parameter, half, POINT),
            variable("label", VariableRole::Parameter, label, STRING),
            variable("tag", VariableRole::Parameter, stack(56), STRING),
        ])
    }
    fn locals(&self) -> Result<Vec<Variable>, ScopeError> {
        let mut gone = variable(
            "gone",
            VariableRole::Local,
            ValuePlace::Value(Value::Constant(0)),
            INT,
        );
        gone.value = Err(ScopeError::new("it is optimized out"));
        let one = variable(
            "one",
            VariableRole::Local,
            ValuePlace::Value(Value::Constant(1)),
            INT,
        );
        Ok(vec![gone, one])
    }
    fn argument(&self, _: usize) -> Result<Typed, ScopeError> {
        Err(ScopeError::new("none"))
    }
    fn go_kind(&self, id: TypeId) -> Result<Option<GoKind>, ScopeError> {
        Ok((id == TypeId(STRING)).then_some(GoKind::String))
    }

    fn result(&self, _number: usize) -> Result<Typed, ScopeError> {
        Ok(Typed {
            place: ValuePlace::Value(Value::Register(Register::Rax)),
            kind: kind(NODE_POINTER),
        })
    }
    fn resolve(&self, id: TypeId) -> Result<Type, ScopeError> {
        Ok(kind(id.0))
    }
    fn members(&self, id: TypeId) -> Result<Rc<[Member]>, ScopeError> {
        let bits = |name, id, bits| Member {
            bits: Some(bits),
            ..member(name, 12, id)
        };
        Ok(match id.0 {
            POINT => Rc::from([member("x", 0, INT), member("y", 4, INT)]),
            UNION => Rc::from([member("at", 0, POINT), member("both", 0, LONG)]),
            ECHO => Rc::from([member("", 0, ECHO), member("", 0, ECHO)]),
            STRING => Rc::from([member("str", 0, CHAR_POINTER), member("len", 8, LONG)]),
            CROWD => Rc::from([member("a", 0, ROW), member("b", 0, ROW)]),
            _ => Rc::from([
                member("next", 0, NODE_POINTER),
                member("color", 8, COLOR),
                bits("low", UNSIGNED, (0, 3)),
                bits("high", INT, (3, 5)),
                member("", 16, UNION),
                member("name", 24, NAME),
                member("on", 30, BOOL),
                member("counts", 32, COUNTS),
                member("weight", 40, DOUBLE),
            ]),
        })
    }
}

/// A node of the memory, as in [`Nodes`]; `next` is itself.
fn node(address: u64) -> Vec<u8> {
    let mut bytes = address.to_le_bytes().to_vec();
    bytes.extend((-2i32).to_le_bytes());
    bytes.extend([0b1111_0101, 0, 0, 0]);
    bytes.extend(7i32.to_le_bytes());
    bytes.extend((-8i32).to_le_bytes());
    bytes.extend(*b"name\0\0\x01\0");
    bytes.extend([1, 0, 2, 0, 0xff, 0xff, 0, 0]);
    bytes.extend(1.5f64.to_le_bytes());
    bytes
}

/// A thread in front of `f`, whose stack lies after the node.
fn thread() -> Thread {
    let mut thread = Thread::with(&[BASE, 0x0000_0005_ffff_fffd, 9, BASE + 24, 3]);
    thread.registers.insert(Register::Rsp as u8, BASE + 48);
    thread.memory = node(BASE);
    thread.memory.extend(0u64.to_le_bytes());
    thread.memory.extend(node(BASE));
    thread.memory.extend((BASE + 24).to_le_bytes());
    thread.memory.extend(4u64.to_le_bytes());
    thread.memory.extend([0; 48]);
    thread
}

fn compiled(spec: &str) -> Result<Compiled, SpecError> {
    Compiled::new(&Request {
        spec: &Spec::parse(spec).unwrap_or_else(|error| panic!("{spec}: {error}")),
        scope: &Nodes,
        sink: Sink::Record,
        at_return: false,
        changes: &[],
        ret: None,
    })
}

fn found(expression: &str) -> FieldValue {
    let compiled = compiled(&format!("f({expression})"));
    let compiled = compiled.unwrap_or_else(|error| panic!("{expression}: {error}"));
    let (_, words) = thread().run(&compiled.entry);
    decode::fields(&compiled.fields, &words).remove(0)
}

#[test]
fn members_and_elements_are_found_wherever_they_are() {
    use FieldValue::{Bool, Float, Signed, Unsigned};
    for (expression, expected) in [
        ("node->next->at.x", Signed(7)),
        ("node->both", Signed((-8i64 << 32) | 7)),
        ("node->low", Unsigned(5)),
        ("node->high", Signed(-2)),
        ("node->on", Bool(true)),
        ("node->weight", Float(1.5)),
        ("node->counts[2]", Unsigned(0xffff)),
        ("node->counts[node->counts[0]]", Unsigned(2)),
        ("*(node->counts + 1)", Unsigned(2)),
        ("&node->counts[2] - &node->counts[0]", Signed(2)),
        ("node[1].next == 0", Bool(true)),
        ("*node->name == 'n'", Bool(true)),
        ("two.x", Signed(-3)),
        ("two.y", Signed(5)),
        ("split.y", Signed(9)),
        ("whole.at.y", Signed(-8)),
        ("whole.name == \"name\"", Bool(true)),
        ("node->name ~ \"nam*\"", Bool(true)),
        ("node->color == -2", Bool(true)),
        ("one", Signed(1)),
    ] {
        assert_eq!(found(expression), expected, "{expression}");
    }
    assert_eq!(found("node->color"), FieldValue::Named("BLUE".into(), -2));
    assert_eq!(found("node->color:s32"), Signed(-2));
    assert_eq!(found("node->name"), text("name"));
    assert_eq!(found("two.x:bits"), FieldValue::Bits(-3i64 as u64));
    assert_eq!(found("node"), FieldValue::Hex(BASE));
    // The probe is at 0x1000 by the file's count and at 0x40_0000 in the process.
    let symbol = FieldValue::Symbol {
        address: 0x40_0010,
        in_file: 0x1010,
    };
    assert_eq!(found("(u64)0x400010:symbol"), symbol);
}

#[test]
fn structs_and_arrays_are_shown_whole() {
    use FieldValue::{List, Signed, Struct, Unsigned};
    let point = |x, y| Struct(vec![("x".into(), Signed(x)), ("y".into(), Signed(y))]);
    assert_eq!(found("node->at"), point(7, -8));
    assert_eq!(
        found("node->counts"),
        List([1, 2, 0xffff].map(Unsigned).to_vec())
    );
    let expected = Struct(vec![
        ("next".into(), FieldValue::Hex(BASE)),
        ("color".into(), FieldValue::Named("BLUE".into(), -2)),
        ("low".into(), Unsigned(5)),
        ("high".into(), Signed(-2)),
        ("at".into(), point(7, -8)),
        ("both".into(), Signed((-8i64 << 32) | 7)),
        ("name".into(), text("name")),
        ("on".into(), FieldValue::Bool(true)),
        ("counts".into(), List([1, 2, 0xffff].map(Unsigned).to_vec())),
        ("weight".into(), FieldValue::Float(1.5)),
    ]);
    assert_eq!(found("*node"), expected);
    assert_eq!(found("whole"), expected);
    assert_eq!(
        found("*node:bytes[4]"),
        FieldValue::Bytes(vec![0, 0x10, 0, 0])
    );
}

#[test]
fn strings_with_a_length_are_shown_and_compared_as_strings() {
    use FieldValue::{Bool, Bytes, Hex, Signed};
    let cut = |bytes: &str| FieldValue::Text {
        bytes: bytes.into(),
        cut: true,
    };
    for (expression, expected) in [
        ("label", text("nam")),
        ("tag", text("name")),
        ("tag:string[4]", text("name")),
        ("tag:string[3]", cut("nam")),
        ("tag:bytes[8]", Bytes(b"name".to_vec())),
        ("tag:bytes[2]", Bytes(b"na".to_vec())),
        ("label.len", Signed(3)),
        ("label == \"nam\"", Bool(true)),
        ("label == \"name\"", Bool(false)),
        ("label != \"na\"", Bool(true)),
        ("tag ~ \"nam*\"", Bool(true)),
        ("label ~ \"name*\"", Bool(false)),
        ("&tag", Hex(BASE + 104)),
    ] {
        assert_eq!(found(expression), expected, "{expression}");
    }
    let error = compiled("f(tag:hex)").unwrap_err();
    assert!(error.message.contains("one of its members"), "{error}");
}

#[test]
fn a_string_that_was_passed_is_compared_at_the_entry() {
    let compiled = compiled("f%return(label, tag.len) if tag == \"name\"").unwrap();
    let mut before = thread();
    assert!(before.run(&compiled.entry).0.matched);
    let mut after = before.clone();
    after.memory[104..].fill(0xee);
    after.registers.insert(Register::R8 as u8, 77);
    let (outcome, words) = after.run(&compiled.ret);
    assert!(outcome.matched);
    assert_eq!(
        decode::fields(&compiled.fields, &words),
        [text("nam"), FieldValue::Signed(4)]
    );
    let mut other = thread();
    other.memory[24] = b'N';
    assert!(!other.run(&compiled.entry).0.matched);
}

#[test]
fn strings_with_a_length_are_counted_by() {
    let spec = Spec::parse("f").unwrap();
    let keys = Field::parse_list("label, tag:string[4]").unwrap();
    let compiled = Compiled::new(&Request {
        spec: &spec,
        scope: &Nodes,
        sink: Sink::Table {
            keys: &keys,
            value: None,
        },
        at_return: false,
        changes: &[],
        ret: None,
    });
    let compiled = compiled.unwrap();
    let mut thread = thread();
    assert!(thread.run(&compiled.entry).0.matched);
    let cut = FieldValue::Text {
        bytes: b"name".to_vec(),
        cut: true,
    };
    let key = decode::key(&compiled.keys, &thread.key);
    assert_eq!(key, [text("nam"), cut]);
}

#[test]
fn a_return_has_what_was_on_the_stack_of_its_call() {
    let compiled = compiled("f%return(whole.at.x, whole.counts[1], node->at.x, $retval->low)");
    let compiled = compiled.unwrap();
    let mut before = thread();
    before.run(&compiled.entry);
    // The function has changed its arguments and what they point to.
    let mut after = before.clone();
    after.registers.insert(Register::Rax as u8, BASE);
    after.memory[16] = 8;
    after.memory[48 + 8..].fill(0xee);
    let (_, words) = after.run(&compiled.ret);
    let signed = FieldValue::Signed;
    assert_eq!(
        decode::fields(&compiled.fields, &words),
        [
            signed(7),
            FieldValue::Unsigned(2),
            signed(8),
            FieldValue::Unsigned(5)
        ]
    );
}

#[test]
fn names_that_would_be_something_else_are_variables() {
    let fields = |spec: &str| compiled(spec).unwrap().entry.unwrap().steps;
    let global = fields("f(global)");
    for spec in ["f(main.Count)", "f(`main.Count`)", "f(`Box<int>::count`)"] {
        assert_eq!(fields(spec), global, "{spec}");
    }
    assert!(compiled("f(main.Other)").is_err());
}

#[test]
fn all_variables_are_there_or_a_note_says_why() {
    let compiled = compiled("f($vars)").unwrap();
    let names: Vec<&str> = compiled.fields.iter().map(|field| &*field.name).collect();
    assert_eq!(
        names,
        ["node", "two", "whole", "split", "label", "tag", "gone", "one"]
    );
    let (_, words) = thread().run(&compiled.entry);
    let values = decode::fields(&compiled.fields, &words);
    assert_eq!(values[0], FieldValue::Hex(BASE));
    assert_eq!(
        (&values[3], &values[6]),
        (&FieldValue::Absent, &FieldValue::Absent)
    );
    assert_eq!(values[7], FieldValue::Signed(1));
    assert!(compiled
        .notes
        .iter()
        .any(|note| note == "gone: it is optimized out"));
}

/// Where nothing can be had, as in much of Rust, the hits are recorded all the same.
#[test]
fn all_variables_may_be_missing() {
    let spec = Spec::parse("f($params)").unwrap();
    let compiled = Compiled::new(&Request {
        spec: &spec,
        scope: &OnlyGone,
        sink: Sink::Record,
        at_return: false,
        changes: &[],
        ret: None,
    });
    let compiled = compiled.unwrap();
    assert_eq!(compiled.entry, None);
    assert_eq!(compiled.notes, ["gone: it is optimized out"]);
    assert_eq!(decode::fields(&compiled.fields, &[]), [FieldValue::Absent]);
}

/// `Nodes`, of which the one parameter is gone.
struct OnlyGone;

impl Scope for OnlyGone {
    fn address(&self) -> u64 {
        Nodes.address()
    }
    fn variable(&self, name: &str) -> Result<Variable, ScopeError> {
        Nodes.variable(name)
    }
    fn parameters(&self) -> Result<Vec<Variable>, ScopeError> {
        Ok(vec![Nodes.variable("gone")?])
    }
    fn locals(&self) -> Result<Vec<Variable>, ScopeError> {
        Ok(Vec::new())
    }
    fn argument(&self, number: usize) -> Result<Typed, ScopeError> {
        Nodes.argument(number)
    }
    fn result(&self, _number: usize) -> Result<Typed, ScopeError> {
        Nodes.result(1)
    }
    fn resolve(&self, id: TypeId) -> Result<Type, ScopeError> {
        Nodes.resolve(id)
    }
    fn members(&self, id: TypeId) -> Result<Rc<[Member]>, ScopeError> {
        Nodes.members(id)
    }
}

#[test]
fn errors_name_what_is_there() {
    let message = |spec: &str| compiled(spec).expect_err(spec).message;
    assert!(message("f(node->colour)").contains("did you mean color?"));
    assert!(message("f(node->quantity)").contains("the members are next, color"));
    assert!(message("f(node->counts[3])").contains("3 elements"));
    assert!(message("f(node + node)").contains("cannot be added"));
    assert!(message("f(node->counts:string)").contains("numbers of 2 bytes"));
    compiled("f((char *)node->counts:string)").expect("its bytes");
    compiled("f(&node->counts[0]:bytes[6])").expect("its bytes");
    assert!(message("f if elapsed > 1").contains("did you mean $elapsed"));
    assert!(message("f(&two)").contains("no address"));
    assert!(message("f(node->low:enum)").contains("no enumeration"));
    assert!(message("f%return(one)").contains("gone when"));
    assert!(message("f%return(whole.name:string)").contains("a call that is over"));
    assert!(message("f%return(whole.counts[$retval->low])").contains("known at the entry"));
    assert!(message("f(split.x)").contains("not available"));
}

#[test]
fn types_that_lie_come_to_an_end() {
    let message = |spec: &str| compiled(spec).expect_err(spec).message;
    assert!(message("f(turtles[1])").contains("how long"));
    assert!(message("f(echo.missing)").contains("too many members"));
    assert!(message("f(echo)").contains("too many parts"));
    assert!(message("f(crowd)").contains("too many parts"));
    // An array of unknown length is where it begins.
    assert!(compiled("f(turtles)").is_ok());
}

proptest! {
    /// Whatever the words of a record are, its fields are read.
    #[test]
    fn no_record_panics(words in prop::collection::vec(any::<u64>(), 0..40)) {
        let compiled = compiled("f($vars, *node, node->counts, node->name)").unwrap();
        let values = decode::fields(&compiled.fields, &words);
        prop_assert_eq!(values.len(), compiled.fields.len());
    }
}
