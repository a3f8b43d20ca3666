//! Stacks of the kernel. Those of x86_64 are unwound with ORC (`arch/x86/kernel/unwind_orc.c`, `tools/objtool`): tables that every
//! kernel keeps in its memory since 4.14 (ee9f8fce9964), and one per module. Those of arm64 and riscv64 are chains of
//! [`FrameRecords`].
//!
//! A frame is certain if each step to it followed an ORC entry. If there is none, as in
//! `__crash_kexec` of every kernel, the next return address is searched on the stack, and [`Frame::guess`] is set.

mod frame_records;
mod guess;
mod orc;
mod step;
mod table;
mod unwinder;

pub use frame_records::FrameRecords;
pub use orc::{Entry, EntryKind, Register, Version};
pub use step::Registers;
pub use table::{Table, TableError};
pub use unwinder::{End, Frame, Stack, Unwinder};
