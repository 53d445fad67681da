// SPDX-License-Identifier: MIT OR Apache-2.0
//! Enumerations of `nsprobe_common`, which knows no serde, as their numbers.

/// A module for `#[serde(with)]`.
macro_rules! as_number {
    ($module:ident, $kind:ty) => {
        pub(super) mod $module {
            use serde::de::{Deserialize, Deserializer, Error};
            use serde::Serializer;

            pub(in crate::syntax) fn serialize<S: Serializer>(
                value: &$kind,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serializer.serialize_u8(*value as u8)
            }

            pub(in crate::syntax) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$kind, D::Error> {
                let number = u8::deserialize(deserializer)?;
                <$kind>::from_u8(number).ok_or_else(|| Error::custom("no such number"))
            }
        }
    };
}

as_number!(register, nsprobe_common::program::Register);
as_number!(context, nsprobe_common::program::Context);
