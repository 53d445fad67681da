// SPDX-License-Identifier: GPL-2.0-only
//! The requests about mapped files, their unwind rows, and stacks that have an id.

use super::{rights::require_capabilities, user_struct::UserStruct};
use crate::{
    common::abi::{self, Object},
    object::{
        unwind_rows::{self, Rows},
        Objects, //
    },
    probe::request::Refused,
    session::Session,
    sys::{
        estale,
        file_ref::Opened,
        inode::PinnedInode,
        vma::FileKey, //
    },
};
use kernel::{
    prelude::*,
    uaccess::{UserPtr, UserSlice}, //
};
use zerocopy::IntoBytes;

/// `FILE`.
pub(super) fn file(arg: UserPtr) -> Result {
    let mut request = UserStruct::<abi::File>::read(arg)?;
    let file = &mut request.value;
    if file.flags != 0 || file.remote != 0 {
        return Err(EINVAL);
    }
    let inode = PinnedInode::from_path_fd(file.fd);
    let inode = inode.map_err(|unusable| Refused::from(unusable).0)?;
    file.remote = (!inode.kernel_answers()).into();
    file.identity = inode.key().identity();
    request.write_back()
}

/// `UNWIND`.
pub(super) fn unwind(session: &Session, arg: UserPtr) -> Result {
    require_capabilities()?;
    let mut request = UserStruct::<abi::Unwind>::read(arg)?;
    let unwind = &mut request.value;
    if unwind.flags & abi::UNWIND_DROP != 0 {
        drop_rows(&session.context().objects, unwind)?;
        return request.write_back();
    }
    let key = match unwind.flags {
        0 | abi::UNWIND_NONE => {
            let inode = PinnedInode::from_fd(unwind.fd);
            inode.map_err(|unusable| Refused::from(unusable).0)?.key()
        }
        abi::UNWIND_VDSO if unwind.fd == 0 => FileKey::of_own_vdso().ok_or(ENOENT)?,
        _ => return Err(EINVAL),
    };
    match Rows::read(unwind) {
        Ok(rows) => {
            let objects = &session.context().objects;
            unwind.object = objects.give_rows(key, rows)?;
            unwind.bytes = objects.row_bytes();
            let id = unwind.object;
            let told = request.write_back();
            if told.is_err() {
                objects.take_back(id);
            }
            told
        }
        Err(unwind_rows::Refused::Request(error)) => Err(error),
        Err(unwind_rows::Refused::Defect(defect)) => {
            unwind.defect = defect as u32;
            request.write_back()?;
            Err(EINVAL)
        }
    }
}

fn drop_rows(objects: &Objects, unwind: &mut abi::Unwind) -> Result {
    let wanted = abi::Unwind {
        size: unwind.size,
        flags: abi::UNWIND_DROP,
        first: unwind.first,
        ..abi::Unwind::default()
    };
    if unwind.as_bytes() != wanted.as_bytes() {
        return Err(EINVAL);
    }
    unwind.bytes = objects.drop_unused(unwind.first);
    Ok(())
}

/// `STACK`.
pub(super) fn stack(session: &Session, arg: UserPtr) -> Result {
    let mut request = UserStruct::<abi::Stack>::read(arg)?;
    let stack = &mut request.value;
    if stack.flags != 0 || stack.reserved != 0 {
        return Err(EINVAL);
    }
    let stacks = session.context().stacks.as_ref().ok_or(ENOENT)?;
    stacks.report_use(stack);
    if stack.id == 0 {
        stack.words = 0;
        return request.write_back();
    }
    let frames = stacks.frames(stack.id).ok_or(ENOENT)?;
    let room = core::mem::replace(&mut stack.words, frames.len() as u32);
    if room < stack.words {
        request.write_back()?;
        return Err(EINVAL);
    }
    let at = UserPtr::from_addr(usize::try_from(stack.frames)?);
    let mut writer = UserSlice::new(at, frames.len().wrapping_mul(8)).writer();
    for frame in frames {
        writer.write_slice(&frame.to_ne_bytes())?;
    }
    request.write_back()
}

/// `OBJECT`.
pub(super) fn object(session: &Session, arg: UserPtr) -> Result {
    let mut request = UserStruct::<Object>::read(arg)?;
    let object = &mut request.value;
    if !matches!(
        object.flags,
        0 | abi::OBJECT_FD | abi::OBJECT_ROOT | abi::OBJECT_DROP
    ) {
        return Err(EINVAL);
    }
    let objects = &session.context().objects;
    object.identity = objects.identity(object.id).ok_or(ENOENT)?;
    object.fd = -1;
    let (id, flags) = (object.id, object.flags);
    if flags == 0 {
        return request.write_back();
    }
    require_capabilities()?;
    if flags == abi::OBJECT_DROP {
        drop((objects.take_file(id), objects.take_root(id)));
        return request.write_back();
    }
    // The descriptor is installed after the caller knows its number; on failure nothing changes.
    let mut hand_out = |opened: Result<Opened>| {
        let opened = opened?;
        request.value.fd = opened.fd();
        request.write_back()?;
        opened.install();
        Ok(())
    };
    if flags == abi::OBJECT_FD {
        let file = objects.take_file(id).ok_or_else(estale)?;
        let done = hand_out(file.reopen());
        if done.is_err() {
            objects.put_file(id, file);
        }
        done
    } else {
        let root = objects.take_root(id).ok_or_else(estale)?;
        let done = hand_out(root.open());
        if done.is_err() {
            objects.put_root(id, root);
        }
        done
    }
}
