// SPDX-License-Identifier: GPL-2.0-only
//! The device node and its file operations.
//!
//! The kernel crate's `MiscDevice` of 7.2 sets no owner, so that the module could be unloaded under
//! an open file, and has no `poll`. This module has its own table: entry points turn raw pointers
//! into types, call one method of [`Driver`] and turn its result into an errno.

use core::{
    cell::UnsafeCell,
    ffi::{c_int, c_uint, c_void},
    marker::PhantomData, //
};
use kernel::{
    bindings,
    error::to_result,
    fs::File,
    mm::virt::VmaNew,
    prelude::*,
    seq_file::SeqFile,
    sync::poll::PollTable,
    types::ForeignOwnable,
    uaccess::{UserPtr, UserSlice, UserSliceWriter}, //
};

/// The methods of the device; `Self` is one open file. All run in task context and may sleep.
pub(crate) trait Driver: Sized + Send + Sync + 'static {
    /// Opens a file of the device.
    fn open() -> Result<Pin<KBox<Self>>>;
    /// Handles request `cmd` with argument `arg`, an address in the caller.
    fn ioctl(self: Pin<&Self>, cmd: u32, arg: UserPtr) -> Result<isize>;
    /// Fills `out`, and returns the number of bytes written.
    fn read(self: Pin<&Self>, nonblocking: bool, out: UserSliceWriter) -> Result<usize>;
    /// Whether there is something to read; registers the caller to be woken.
    fn poll(self: Pin<&Self>, file: &File, table: PollTable<'_>) -> bool;
    /// Maps the file from page `page_offset` on.
    fn mmap(self: Pin<&Self>, page_offset: usize, vma: &VmaNew) -> Result;
    /// Describes the file in `/proc/PID/fdinfo`.
    fn show(self: Pin<&Self>, out: &SeqFile);
}

/// A device node, for as long as this lives.
pub(crate) struct Registration<D: Driver> {
    misc: KBox<Node>,
    _driver: PhantomData<fn() -> D>,
}

/// The node and the table it points to; both stay where they are.
struct Node {
    misc: UnsafeCell<bindings::miscdevice>,
    fops: bindings::file_operations,
}

// SAFETY: After registration only the misc core touches the node, under its lock.
unsafe impl<D: Driver> Send for Registration<D> {}
// SAFETY: As above.
unsafe impl<D: Driver> Sync for Registration<D> {}

impl<D: Driver> Registration<D> {
    /// Makes `/dev/NAME`, mode 0600. The module cannot be unloaded while a file is
    /// open or a ring is mapped.
    pub(crate) fn new(module: &'static ThisModule, name: &'static CStr) -> Result<Self> {
        let node = KBox::new(
            Node {
                misc: UnsafeCell::new(pin_init::zeroed()),
                fops: bindings::file_operations {
                    owner: module.as_ptr(),
                    open: Some(open::<D>),
                    release: Some(release::<D>),
                    unlocked_ioctl: Some(ioctl::<D>),
                    compat_ioctl: bindings::compat_ptr_ioctl,
                    read: Some(read::<D>),
                    poll: Some(poll::<D>),
                    mmap: Some(mmap::<D>),
                    show_fdinfo: Some(show_fdinfo::<D>),
                    llseek: Some(bindings::noop_llseek),
                    ..pin_init::zeroed()
                },
            },
            GFP_KERNEL,
        )?;
        // SAFETY: The node is not registered yet, so nobody else looks at it, and it
        // stays in its box, with the table, until it is deregistered. The name is
        // static.
        unsafe {
            let misc = node.misc.get();
            (*misc).minor = bindings::MISC_DYNAMIC_MINOR as c_int;
            (*misc).name = name.as_char_ptr();
            (*misc).fops = &raw const node.fops;
            (*misc).mode = 0o600;
            to_result(bindings::misc_register(misc))?;
        }
        Ok(Registration {
            misc: node,
            _driver: PhantomData,
        })
    }
}

impl<D: Driver> Drop for Registration<D> {
    fn drop(&mut self) {
        // SAFETY: The node was registered by `new`. No file is open: each holds the
        // module, and this runs when the module goes.
        unsafe { bindings::misc_deregister(self.misc.misc.get()) };
    }
}

/// The open file's driver.
///
/// # Safety
///
/// `file` must be a file of this device between its `open` and its `release`.
unsafe fn driver<'a, D: Driver>(file: *mut bindings::file) -> Pin<&'a D> {
    // SAFETY: `open` stored the box, and only `release` takes it out.
    unsafe { <Pin<KBox<D>> as ForeignOwnable>::borrow((*file).private_data) }
}

fn errno(result: Result<isize>) -> isize {
    match result {
        Ok(value) => value,
        Err(error) => error.to_errno() as isize,
    }
}

/// # Safety
///
/// `file` is being opened for this device.
unsafe extern "C" fn open<D: Driver>(_: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    match D::open() {
        Ok(driver) => {
            // SAFETY: The file is being opened by us, so its private data is ours.
            unsafe { (*file).private_data = driver.into_foreign() };
            0
        }
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// The last reference of `file`, a file of this device, goes.
unsafe extern "C" fn release<D: Driver>(
    _: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: The last reference of the file goes, so no other operation runs, and
    // `open` stored the box.
    drop(unsafe { <Pin<KBox<D>> as ForeignOwnable>::from_foreign((*file).private_data) });
    0
}

/// # Safety
///
/// `file` is a file of this device, open during the call.
unsafe extern "C" fn ioctl<D: Driver>(file: *mut bindings::file, cmd: c_uint, arg: usize) -> isize {
    // SAFETY: The file is open during the call.
    let driver = unsafe { driver::<D>(file) };
    errno(driver.ioctl(cmd, UserPtr::from_addr(arg)))
}

/// # Safety
///
/// `file` is a file of this device, open during the call; `out` is an address of
/// the caller and is not trusted.
unsafe extern "C" fn read<D: Driver>(
    file: *mut bindings::file,
    out: *mut u8,
    length: usize,
    _offset: *mut i64,
) -> isize {
    // SAFETY: The file is open during the call.
    let (driver, flags) = unsafe { (driver::<D>(file), (*file).f_flags) };
    let out = UserSlice::new(UserPtr::from_ptr(out.cast::<c_void>()), length).writer();
    let nonblocking = flags & bindings::O_NONBLOCK != 0;
    errno(driver.read(nonblocking, out).map(|count| count as isize))
}

/// # Safety
///
/// `file` is a file of this device, open during the call; `table` is valid or null.
unsafe extern "C" fn poll<D: Driver>(
    file: *mut bindings::file,
    table: *mut bindings::poll_table_struct,
) -> bindings::__poll_t {
    // SAFETY: The file is open and the table valid (or null) during the call; no
    // `fdget_pos` of this thread is active in `poll`.
    let (driver, file, table) = unsafe {
        (
            driver::<D>(file),
            File::from_raw_file(file),
            PollTable::from_raw(table),
        )
    };
    match driver.poll(file, table) {
        true => bindings::POLLIN | bindings::POLLRDNORM,
        false => 0,
    }
}

/// # Safety
///
/// `file` is a file of this device, open during the call; `vma` is being set up for
/// it.
unsafe extern "C" fn mmap<D: Driver>(
    file: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: The file is open during the call, and the VMA is being set up for it.
    let (driver, new, flags, first) = unsafe {
        (
            driver::<D>(file),
            VmaNew::from_raw(vma),
            VmaNew::from_raw(vma).flags(),
            (*vma).vm_pgoff,
        )
    };
    // A private mapping would get copies of the pages.
    if flags & kernel::mm::virt::flags::SHARED == 0 {
        return EINVAL.to_errno();
    }
    errno(driver.mmap(first, new).map(|()| 0)) as c_int
}

/// # Safety
///
/// `file` is a file of this device, open during the call; `out` is a valid seq_file
/// that nobody else uses.
unsafe extern "C" fn show_fdinfo<D: Driver>(
    out: *mut bindings::seq_file,
    file: *mut bindings::file,
) {
    // SAFETY: The file is open and the seq_file is ours during the call.
    let (driver, out) = unsafe { (driver::<D>(file), SeqFile::from_raw(out)) };
    driver.show(out);
}
