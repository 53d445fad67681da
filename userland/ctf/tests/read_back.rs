// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is written can be read, with any fields, any values, times in disorder, losses, and
//! hostile text. By babeltrace2: the tests of the CLI's export.

use crate::support::{read, Channels, ReadEvent, Scratch, UUID};
use nsprobe_ctf::{Channel, CtfError, Description, EventClass, Field, Totals, Trace, Type, Value};
use nsprobe_text::escaped;
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::Path;

/// An event, or a loss, that is to be written.
#[derive(Clone, Debug)]
struct Given {
    channel: usize,
    cpu: u32,
    time_ns: u64,
    /// A loss of so many in place of an event.
    loss: Option<u64>,
    class: usize,
    context: Vec<Value<'static>>,
    values: Vec<Value<'static>>,
}

fn simple_type() -> impl Strategy<Value = Type> {
    prop_oneof![
        (
            prop_oneof![Just(8), Just(16), Just(32), Just(64)],
            any::<bool>()
        )
            .prop_map(|(bits, signed)| match signed {
                true => Type::signed(bits),
                false => Type::unsigned(bits),
            }),
        Just(Type::Float),
        Just(Type::Text),
        Just(Type::hex()),
    ]
}

fn any_type() -> impl Strategy<Value = Type> {
    prop_oneof![
        4 => simple_type(),
        1 => (1u8..40).prop_map(|bytes| Type::Name { bytes }),
        1 => simple_type().prop_map(Type::sequence),
    ]
}

fn fields(most: usize) -> impl Strategy<Value = Vec<Field>> {
    vec(any_type(), 0..most).prop_map(|kinds| {
        let kinds = kinds.into_iter().enumerate();
        kinds
            .map(|(number, kind)| Field::new(format!("f{number}"), kind))
            .collect()
    })
}

/// Names of events are anything.
fn class() -> impl Strategy<Value = EventClass> {
    ("\\PC{1,12}|[\\x00-\\x7f]{1,8}", fields(6))
        .prop_map(|(name, fields)| EventClass { name, fields })
}

fn channels() -> impl Strategy<Value = Channels> {
    vec((fields(3), vec(class(), 1..5)), 1..3)
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..20),
        "\\PC{0,10}".prop_map(String::into_bytes),
        Just(b"\x1b[31m\xe2\x80\xae\n\\x\0%n\"".to_vec()),
    ]
}

/// A value of that type.
fn value(kind: &Type) -> BoxedStrategy<Value<'static>> {
    match kind {
        Type::Integer { bits, signed, .. } => {
            let unused = 64 - u32::from(*bits);
            match signed {
                true => any::<i64>()
                    .prop_map(move |number| Value::Signed(number >> unused))
                    .boxed(),
                false => any::<u64>()
                    .prop_map(move |number| Value::Unsigned(number >> unused))
                    .boxed(),
            }
        }
        Type::Float => any::<u32>()
            .prop_map(|number| Value::Float(f64::from(number) / 3.0))
            .boxed(),
        Type::Text | Type::Name { .. } => text().prop_map(|text| Value::Text(text.into())).boxed(),
        Type::Sequence { element, .. } => vec(value(element), 0..6).prop_map(Value::List).boxed(),
    }
}

fn values(fields: &[Field]) -> Vec<BoxedStrategy<Value<'static>>> {
    fields.iter().map(|field| value(field.kind())).collect()
}

/// Times: close together, further apart than 32 bits of nanoseconds, and back.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![
        1_000_000u64..1_000_100,
        1_000_000u64..20_000_000_000,
        Just(u64::from(u32::MAX)),
        Just(1 << 32),
    ]
}

fn given(channels: Channels) -> impl Strategy<Value = Given> {
    (0..channels.len()).prop_flat_map(move |channel| {
        let (context, classes) = channels[channel].clone();
        (0..classes.len()).prop_flat_map(move |class| {
            let loss = prop_oneof![9 => Just(None), 1 => (1u64..1000).prop_map(Some)];
            let place = (0u32..3, time(), loss);
            (place, values(&context), values(&classes[class].fields)).prop_map(
                move |((cpu, time_ns, loss), context, values)| Given {
                    channel,
                    cpu,
                    time_ns,
                    loss,
                    class,
                    context,
                    values,
                },
            )
        })
    })
}

fn all() -> impl Strategy<Value = (Channels, Vec<Given>)> {
    channels().prop_flat_map(|channels| {
        let events = vec(given(channels.clone()), 0..60);
        (Just(channels), events)
    })
}

fn write(path: &Path, channels: &Channels, events: &[Given]) -> Result<Totals, CtfError> {
    let description = Description {
        uuid: UUID,
        clock_offset_ns: 1_700_000_000_000_000_000,
        ..Description::default()
    };
    let mut trace = Trace::create(path, description)?;
    let mut ids = Vec::new();
    for (number, (context, classes)) in channels.iter().enumerate() {
        let channel = trace.channel(Channel {
            name: format!("c{number}"),
            context: context.clone(),
        });
        let classes = classes.iter().cloned();
        let classes = classes.map(|class| trace.class(channel, class));
        ids.push((channel, classes.collect::<Result<Vec<_>, _>>()?));
    }
    for event in events {
        let (channel, classes) = &ids[event.channel];
        let Given { cpu, time_ns, .. } = *event;
        match event.loss {
            Some(count) => trace.loss(*channel, cpu, time_ns, count)?,
            None => {
                let class = classes[event.class];
                trace.event(class, cpu, time_ns, &event.context, &event.values)?;
            }
        }
    }
    trace.finish()
}

/// A value as a reader must see it.
fn shown(kind: &Type, value: &Value<'static>) -> Value<'static> {
    match (kind, value) {
        (Type::Text, Value::Text(text)) => {
            Value::Text(escaped(&**text).to_string().into_bytes().into())
        }
        (Type::Sequence { element, .. }, Value::List(all)) => {
            Value::List(all.iter().map(|value| shown(element, value)).collect())
        }
        (_, value) => value.clone(),
    }
}

/// Whether it was read as it was given. Names may have changed in their length's bounds: of
/// these only what no rule changes is compared.
fn is_same(kind: &Type, given: &Value<'static>, read: &Value<'static>) -> bool {
    match (kind, given, read) {
        (Type::Name { bytes }, Value::Text(given), Value::Text(read)) => {
            let end = given.iter().position(|byte| *byte == 0);
            let given = &given[..end.unwrap_or(given.len()).min(usize::from(*bytes))];
            let plain = |byte: &u8| (b' '..=b'~').contains(byte);
            given.len() == read.len()
                && given
                    .iter()
                    .zip(read.iter())
                    .all(|(given, read)| given == read || (!plain(given) && *read == b'?'))
        }
        _ => shown(kind, given) == *read,
    }
}

fn same_event(channels: &Channels, given: &Given, read: &ReadEvent) -> bool {
    let (context, classes) = &channels[given.channel];
    let same = |fields: &[Field], given: &[Value<'static>], read: &[Value<'static>]| {
        let kinds = fields.iter().map(Field::kind);
        let mut all = kinds.zip(given.iter().zip(read));
        all.all(|(kind, (given, read))| is_same(kind, given, read))
    };
    given.time_ns == read.time_ns
        && given.class == read.class as usize
        && same(context, &given.context, &read.context)
        && same(&classes[given.class].fields, &given.values, &read.values)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn all_events_come_back_in_order((channels, events) in all()) {
        let scratch = Scratch::new("read-back");
        let path = scratch.0.join("trace");
        let totals = write(&path, &channels, &events).unwrap();
        let streams = read(&path, &channels);
        prop_assert_eq!(streams.len() as u64, totals.streams);
        let mut given: Vec<&Given> = events.iter().filter(|given| given.loss.is_none()).collect();
        given.sort_by_key(|given| given.time_ns);
        for stream in &streams {
            let of_stream = given.iter().filter(|given| {
                (given.channel as u32, given.cpu) == (stream.channel, stream.cpu)
            });
            let of_stream: Vec<_> = of_stream.collect();
            prop_assert_eq!(of_stream.len(), stream.events.len());
            for (given, read) in of_stream.into_iter().zip(&stream.events) {
                prop_assert!(same_event(&channels, given, read), "{:?} {:?}", given, read);
            }
        }
        let lost = events.iter().filter_map(|given| given.loss).sum();
        let read: usize = streams.iter().map(|stream| stream.events.len()).sum();
        prop_assert_eq!((given.len(), given.len() as u64), (read, totals.events));
        let discarded: u64 = streams.iter().map(|stream| stream.discarded).sum();
        prop_assert_eq!((lost, lost), (discarded, totals.discarded));
    }
}

fn one_class() -> Channels {
    let fields = vec![Field::new("n", Type::unsigned(32))];
    let name = "e".to_owned();
    vec![(Vec::new(), vec![EventClass { name, fields }])]
}

fn plain(cpu: u32, time_ns: u64) -> Given {
    Given {
        channel: 0,
        cpu,
        time_ns,
        loss: None,
        class: 0,
        context: Vec::new(),
        values: vec![Value::Unsigned(time_ns)],
    }
}

/// More events than wait for older ones; then times go back by all of them.
#[test]
fn times_that_go_far_back_have_a_stream_of_their_own() {
    let scratch = Scratch::new("back");
    let path = scratch.0.join("trace");
    let twice = (0..2).flat_map(|_| (0..100_000).map(|time| plain(0, time)));
    let events: Vec<Given> = twice.collect();
    let totals = write(&path, &one_class(), &events).unwrap();
    assert_eq!((totals.events, totals.streams), (200_000, 2));
    let streams = read(&path, &one_class());
    let read: usize = streams.iter().map(|stream| stream.events.len()).sum();
    assert_eq!(read, 200_000);
}

/// Readers take the difference from packet to packet, and so would miss it.
#[test]
fn a_loss_before_the_first_event_is_told() {
    let scratch = Scratch::new("first-loss");
    let path = scratch.0.join("trace");
    let mut loss = plain(0, 1000);
    loss.loss = Some(7);
    let totals = write(&path, &one_class(), &[loss, plain(0, 2000)]).unwrap();
    assert_eq!((totals.events, totals.discarded), (1, 7));
}

/// As a damaged capsule may say.
#[test]
fn events_of_too_many_cpus_or_in_no_order_are_refused() {
    let scratch = Scratch::new("refused");
    let path = scratch.0.join("trace");
    let events: Vec<Given> = (0..8193).map(|cpu| plain(cpu, 1)).collect();
    let error = write(&path, &one_class(), &events).unwrap_err();
    assert!(error.to_string().contains("more than 8192 CPUs"), "{error}");
    let backwards = (0..3_000_000u64).rev().map(|time| plain(0, time));
    let events: Vec<Given> = backwards.collect();
    let error = write(&path, &one_class(), &events).unwrap_err();
    assert!(error.to_string().contains("in no order"), "{error}");
    let left: Vec<_> = std::fs::read_dir(&scratch.0).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_is_in_the_way_stays_and_nothing_is_left() {
    let scratch = Scratch::new("way");
    let path = scratch.0.join("trace");
    std::fs::write(&path, "mine").unwrap();
    let error = write(&path, &one_class(), &[]).unwrap_err();
    assert!(matches!(error, CtfError::Exists(_)), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    let nowhere = write(&scratch.0.join("no/trace"), &one_class(), &[]).unwrap_err();
    assert!(nowhere.to_string().contains("no/trace"), "{nowhere}");
    let later = scratch.0.join("later");
    let trace = Trace::create(&later, Description::default()).unwrap();
    std::fs::create_dir(&later).unwrap();
    assert!(matches!(trace.finish().unwrap_err(), CtfError::Exists(_)));
    let mut left: Vec<_> = std::fs::read_dir(&scratch.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["later", "trace"]);
}

#[test]
fn a_value_of_another_type_is_refused() {
    let scratch = Scratch::new("mismatch");
    let mut wrong = plain(0, 1);
    for values in [
        vec![],
        vec![Value::Signed(-1)],
        vec![Value::Unsigned(1 << 32)],
        vec![Value::text("1")],
        vec![Value::Unsigned(1), Value::Unsigned(1)],
    ] {
        wrong.values = values;
        let error = write(&scratch.0.join("trace"), &one_class(), &[wrong.clone()]).unwrap_err();
        assert!(matches!(error, CtfError::Mismatch { .. }), "{error}");
    }
}
