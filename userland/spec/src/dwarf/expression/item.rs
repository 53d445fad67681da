// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lies on the stack of a DWARF expression: values with their types (DWARF 5,
//! section 2.5.1).

use super::super::units::DwarfBytes;
use crate::value::{BinaryOperator, Value};
use gimli::Operation;

/// An item of the stack: a value, extended to 64 bits from its type.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) value: Value,
    pub(super) nodes: usize,
    /// None: the generic type, 64 bits without a sign of their own.
    pub(super) kind: Option<IntegerType>,
}

/// An integer type of at most 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IntegerType {
    pub(super) bits: u8,
    pub(super) signed: bool,
}

impl Item {
    pub(super) fn generic(value: Value) -> Item {
        Item {
            value,
            nodes: 2,
            kind: None,
        }
    }

    /// The value as one of `kind`.
    pub(super) fn into_kind(self, kind: Option<IntegerType>) -> Item {
        let value = match kind {
            Some(kind) if kind.bits < 64 => Value::Truncate {
                value: Box::new(self.value),
                bits: kind.bits,
                signed: kind.signed,
            },
            _ => self.value,
        };
        Item {
            value,
            nodes: self.nodes + 1,
            kind,
        }
    }
}

/// Two items joined by an operator.
pub(super) fn joined(operator: BinaryOperator, left: Item, right: Item) -> Result<Item, String> {
    let shift = matches!(
        operator,
        BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight | BinaryOperator::ShiftRightSigned
    );
    if left.kind != right.kind && !shift {
        return Err("its location is damaged (it joins two types)".to_owned());
    }
    let kind = left.kind;
    let compares = matches!(
        operator,
        BinaryOperator::Equal
            | BinaryOperator::Below
            | BinaryOperator::BelowOrEqual
            | BinaryOperator::Less
            | BinaryOperator::LessOrEqual
    );
    let result = Item {
        nodes: left.nodes + right.nodes + 1,
        value: Value::Binary(operator, Box::new(left.value), Box::new(right.value)),
        kind: if compares { None } else { kind },
    };
    Ok(if compares {
        result
    } else {
        result.into_kind(kind)
    })
}

/// The name of an operation that the machine refuses.
pub(super) fn operation_name(operation: &Operation<DwarfBytes<'_>>) -> &'static str {
    match operation {
        Operation::Abs => "DW_OP_abs",
        Operation::Div => "DW_OP_div",
        Operation::Mod => "DW_OP_mod with a sign",
        Operation::Shr => "DW_OP_shr with a sign",
        Operation::Shra => "DW_OP_shra without a sign",
        Operation::Bra { .. } => "DW_OP_bra",
        Operation::Skip { .. } => "DW_OP_skip",
        Operation::PushObjectAddress => "DW_OP_push_object_address",
        Operation::Call { .. } => "DW_OP_call",
        Operation::VariableValue { .. } => "DW_OP_GNU_variable_value",
        Operation::TLS => "DW_OP_form_tls_address (it is thread-local)",
        Operation::ParameterRef { .. } => "DW_OP_GNU_parameter_ref",
        _ => "an unknown operation",
    }
}
