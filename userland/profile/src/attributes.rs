// SPDX-License-Identifier: MIT OR Apache-2.0
//! What OpenTelemetry's semantic conventions call the parts of keys.

use opentelemetry_proto::tonic::common::v1::{any_value, AnyValue, KeyValue};

/// Keys that say whose something is, and their names as attributes of resources.
const OF_RESOURCES: [(&str, &str); 2] = [
    ("container", "container.name"),
    ("container_id", "container.id"),
];
/// A pod, after its namespace and a slash.
const POD: &str = "pod";
/// Keys that say more, and their names as attributes of samples and points.
const OWN: [(&str, &str); 4] = [
    ("comm", "thread.name"),
    ("cpu", "cpu.logical_number"),
    ("pid", "process.pid"),
    ("tid", "thread.id"),
];

/// Attributes that are numbers.
const NUMBERS: [&str; 3] = ["cpu.logical_number", "process.pid", "thread.id"];

/// Names and values.
pub type Attributes = Vec<(String, String)>;

/// The parts of a key that say whose something is, and the others, under the names of the conventions.
pub fn attributes(key: &[(String, String)]) -> (Attributes, Attributes) {
    let (mut of_resource, mut own) = (Attributes::new(), Attributes::new());
    let known = |names: &[(&str, &str)], name: &str| {
        let found = names.iter().find(|(key, _)| *key == name);
        found.map(|(_, attribute)| (*attribute).to_owned())
    };
    for (name, value) in key {
        if let Some(attribute) = known(&OF_RESOURCES, name) {
            of_resource.push((attribute, value.clone()));
        } else if name == POD {
            let (namespace, pod) = match value.split_once('/') {
                Some((namespace, pod)) => (Some(namespace), pod),
                None => (None, value.as_str()),
            };
            let namespace = namespace.map(|one| ("k8s.namespace.name", one));
            let parts = namespace.into_iter().chain([("k8s.pod.name", pod)]);
            of_resource.extend(parts.map(|(name, value)| (name.to_owned(), value.to_owned())));
        } else {
            let attribute = known(&OWN, name).unwrap_or_else(|| name.clone());
            own.push((attribute, value.clone()));
        }
    }
    (of_resource, own)
}

/// The attributes of a resource of this machine's.
pub fn resource_attributes(host: Option<&str>, of_resource: &Attributes) -> Vec<KeyValue> {
    let service = Some(("service.name", "nsprobe"));
    let host = host.map(|host| ("host.name", host));
    let first = service.into_iter().chain(host);
    let first = first.map(|(name, value)| key_value(name, value));
    let rest = of_resource
        .iter()
        .map(|(name, value)| key_value(name, value));
    first.chain(rest).collect()
}

/// An attribute.
pub fn key_value(name: &str, value: &str) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(attribute_value(name, value)),
        ..KeyValue::default()
    }
}

/// The value of an attribute, of the type that it has in the conventions.
pub(crate) fn attribute_value(name: &str, value: &str) -> AnyValue {
    let number = value.parse().ok().filter(|_| NUMBERS.contains(&name));
    let value = match number {
        Some(number) => any_value::Value::IntValue(number),
        None => any_value::Value::StringValue(value.to_owned()),
    };
    AnyValue { value: Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_and_its_pod_are_a_resource() {
        let key = [
            ("comm", "redis"),
            ("container", "web"),
            ("pod", "shop/web-1"),
            ("func", "f"),
        ];
        let key = key.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let (of_resource, own) = attributes(&key);
        let names = |of: &[(String, String)]| -> Vec<String> {
            of.iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect()
        };
        assert_eq!(
            names(&of_resource),
            [
                "container.name=web",
                "k8s.namespace.name=shop",
                "k8s.pod.name=web-1"
            ]
        );
        assert_eq!(names(&own), ["thread.name=redis", "func=f"]);
    }

    #[test]
    fn what_the_conventions_have_as_a_number_is_one() {
        let number = |name, value| attribute_value(name, value).value;
        let text = |text: &str| Some(any_value::Value::StringValue(text.to_owned()));
        assert_eq!(
            number("process.pid", "7"),
            Some(any_value::Value::IntValue(7))
        );
        assert_eq!(number("process.pid", "(other)"), text("(other)"));
        assert_eq!(number("thread.name", "7"), text("7"));
    }
}
