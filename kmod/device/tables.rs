// SPDX-License-Identifier: GPL-2.0-only
//! The requests about tables and their rows.

use super::{
    rights::require_capabilities,
    user_struct::{Array, UserStruct}, //
};
use crate::{
    common::{
        abi::{self, SpanOwner, ROWS_TAKE, ROWS_TAKE_MAX, SPAN_OWNERS_MAX},
        table::Kind, //
    },
    session::Session,
    sys::{cond_resched, memory, rcu_slot::wait_for_readers},
    table::Table, //
};
use kernel::{
    prelude::*,
    uaccess::{UserPtr, UserSlice, UserSliceWriter}, //
};
use zerocopy::IntoBytes;

/// `TABLE`.
pub(super) fn table(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = UserStruct::<abi::Table>::read(arg)?;
    let table = &mut request.value;
    if table.flags != 0 {
        return Err(EINVAL);
    }
    let shape = Table::shape_of(table).ok_or(EINVAL)?;
    table.id = session.make_table(shape)?;
    table.row_bytes = (shape.row_words() as u32).wrapping_mul(8);
    table.capacity = shape.rows as u32;
    let id = table.id;
    let told = request.write_back();
    if told.is_err() {
        session.forget_table(id, &shape);
    }
    told
}

/// `ROWS`.
pub(super) fn rows(session: &Session, arg: UserPtr) -> Result {
    let mut request = UserStruct::<abi::Rows>::read(arg)?;
    let rows = &mut request.value;
    if rows.flags & !ROWS_TAKE != 0 {
        return Err(EINVAL);
    }
    let table = session.table(rows.table)?;
    let row_bytes = table.shape().row_words().wrapping_mul(8);
    let count = table.shape().rows;
    if (rows.buffer_bytes as usize) < row_bytes || rows.next as usize >= count {
        return Err(EINVAL);
    }
    let buffer = UserPtr::from_addr(usize::try_from(rows.buffer)?);
    let mut writer = UserSlice::new(buffer, rows.buffer_bytes as usize).writer();
    if rows.flags & ROWS_TAKE != 0 {
        take_rows(&table, rows, &mut writer)?;
        return request.write_back();
    }
    let mut row = memory::room(table.shape().row_words())?;
    let mut index = rows.next as usize;
    rows.count = 0;
    while index < count && writer.len() >= row_bytes {
        if table.copy(index, &mut row)?.is_some() {
            writer.write_slice(row.as_bytes())?;
            rows.count = rows.count.wrapping_add(1);
        }
        index = index.wrapping_add(1);
        cond_resched();
    }
    rows.next = if index < count { index as u32 } else { 0 };
    table.report_losses(rows);
    request.write_back()
}

/// Takes rows out of the table, as many as there is room for. Rows that cannot be copied stay, and
/// are an error only if none could.
fn take_rows(table: &Table, rows: &mut abi::Rows, writer: &mut UserSliceWriter) -> Result {
    let shape = table.shape();
    if !shape.is_keyed() || shape.kind == Kind::Spans {
        return Err(EINVAL);
    }
    let mut row = memory::room(shape.row_words())?;
    let row_bytes = shape.row_words().wrapping_mul(8).max(1);
    let most = (writer.len() / row_bytes).min(ROWS_TAKE_MAX as usize);
    let mut taken = memory::room(most.min(shape.rows))?;
    let next = table.claim_rows(rows.next as usize, &mut taken, most);
    if !taken.is_empty() {
        wait_for_readers();
    }
    rows.count = 0;
    let mut result = Ok(());
    for one in &taken {
        if result.is_ok() {
            result = match table.copy_taken(one, &mut row) {
                Ok(Some(())) => writer.write_slice(row.as_bytes()).inspect(|()| {
                    rows.count = rows.count.wrapping_add(1);
                }),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
        }
        match result {
            Ok(()) => table.free_taken(one),
            Err(_) => table.put_back(one),
        }
        cond_resched();
    }
    if rows.count == 0 {
        result?;
    }
    rows.next = next as u32;
    table.report_losses(rows);
    Ok(())
}

/// `DROP_SPANS`.
pub(super) fn drop_spans(session: &Session, arg: UserPtr) -> Result {
    let mut request = UserStruct::<abi::DropSpans>::read(arg)?;
    let drop = &mut request.value;
    if drop.flags != 0 {
        return Err(EINVAL);
    }
    let table = session.table(drop.table)?;
    if table.shape().kind != Kind::Spans {
        return Err(EINVAL);
    }
    let stride = size_of::<SpanOwner>() as u32;
    let owners = Array::new(drop.owners, stride, drop.count, SPAN_OWNERS_MAX)?;
    let owners = owners.read_plain::<SpanOwner>()?;
    let rises = |pair: &[SpanOwner]| matches!(pair, [a, b] if a.word < b.word);
    if !owners.windows(2).all(rises) {
        return Err(EINVAL);
    }
    drop.dropped = 0;
    for index in 0..table.shape().rows {
        let dropped = u64::from(table.drop_span(index, &owners));
        drop.dropped = drop.dropped.wrapping_add(dropped);
        cond_resched();
    }
    request.write_back()
}
