// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the user points at: containers and processes, and the files they see.
//!
//! This crate joins namespaces and reads the host's `/proc`; it parses no ELF.
//! A file of a container is opened by a thread that joined the container's
//! mount namespace (see [`namespace`]). When that fails, the answer is an error,
//! never the host's file of the same name.
//!
//! Everything that comes from a container is hostile: paths, names and the
//! kinds of files. Escape them before they are printed.

pub mod container;
mod copy;
mod error;
mod execs;
pub mod mappings;
mod mount_view;
pub mod namespace;
mod panics;
mod pid_space;
pub mod process;
mod view;

pub use container::{
    Cgroup, Container, ContainerState, ContainerTasks, Containers, Init, Pod, Running, Runtime,
};
pub use error::{FileKind, TargetError};
pub use execs::{Execs, Executed};
pub use mappings::{Library, Mapping};
pub use mount_view::MountView;
pub use namespace::{hurry, open_here, open_in, OpenedFile, Opener, Stamp};
pub use pid_space::PidSpace;
pub use process::{
    all_processes, own_children, processes_in_pid_namespace, thread_state, thread_time, Process,
    RootId,
};

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, TargetError>;
