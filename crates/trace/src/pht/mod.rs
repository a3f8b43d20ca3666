//! pagehaul recordings (`.pht`): everything that a report needs in one file, readable up to wherever it is
//! truncated.
//!
//! The file is `MAGIC` followed by blocks, which are only ever appended. A block is a header of 24
//! bytes, little-endian, and a zstd frame with a checksum. The kinds of blocks:
//!
//! | kind | `cpu` | contents |
//! |---|---|---|
//! | 1 machine | 0 | JSON: release, hostname, machine, clock, big_endian, cpus, command, settings |
//! | 2 header page | 0 | text of `events/header_page` |
//! | 3 format | 0 | the event system, a zero byte, text of the `format` file |
//! | 4 sub-buffers | the CPU | ring-buffer sub-buffers in order, each of the size in `header_page` |
//! | 5 tasks | 0 | lines of PID and name |
//! | 6 symbols | 0 | lines as in `/proc/kallsyms`, of the functions whose addresses occur in events |
//! | 7 before, 8 after | 0 | JSON: a [`crate::KernelCounters`] |
//! | 9 run | 0 | JSON: a [`crate::Run`] |
//! | 11 cgroups | 0 | lines `pid PID PATH` and `id INODE PATH` |
//! | 10 end | 0 | JSON: lost events by CPU; the recording is complete |
//!
//! Readers skip unknown kinds.

mod block;
mod read;
mod write;

pub(crate) use block::MAGIC;
pub(crate) use read::{Blocks, open};
pub(crate) use write::BlockEncoder;
pub use write::PhtWriter;
