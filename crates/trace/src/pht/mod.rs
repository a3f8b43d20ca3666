//! Our own recording: everything a report needs in one file that is useful wherever it is cut.
//!
//! The file is [`MAGIC`], then blocks. A block is a [`BlockHeader`] of 24 bytes, little-endian, and a zstd frame with a
//! checksum. Blocks are only ever appended. The kinds:
//!
//! | kind | `cpu` | contents |
//! |---|---|---|
//! | 1 machine | 0 | JSON: release, hostname, machine, clock, big_endian, cpus, command, settings |
//! | 2 header page | 0 | text of `events/header_page` |
//! | 3 format | 0 | the subsystem, a zero byte, text of the `format` file |
//! | 4 pages | the CPU | ring-buffer sub-buffers, each of the size `header_page` says, in order |
//! | 5 tasks | 0 | lines of PID and name |
//! | 6 symbols | 0 | lines as in `/proc/kallsyms`, those that events name |
//! | 7 begin, 8 end | 0 | JSON: a [`crate::KernelCounters`] |
//! | 9 run | 0 | JSON: a [`crate::Run`] |
//! | 11 cgroups | 0 | lines `pid PID PATH` and `id INODE PATH` |
//! | 10 done | 0 | JSON: lost events by CPU; the recording is complete |
//!
//! Readers skip kinds they do not know.

mod block;
mod read;
mod write;

pub use block::{BlockHeader, BlockKind, MAGIC};
pub use read::PhtReader;
pub use write::{BlockEncoder, MachineInfo, PhtWriter};
