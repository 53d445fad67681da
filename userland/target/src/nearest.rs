// SPDX-License-Identifier: MIT OR Apache-2.0
//! The most similar names, for messages about a name that does not exist.
