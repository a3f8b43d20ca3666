//! trace-cmd's `trace.dat`, versions 6 and 7 (trace-cmd.dat.v6(5), trace-cmd.dat.v7(5)).

mod compression;
mod cpu_data;
mod cursor;
mod metadata;
mod options;
mod reader;
mod v6;
mod v7;

pub(crate) use cpu_data::CpuData;
pub(crate) use reader::open;

/// Magic number: three bytes and a word.
pub(crate) const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

/// Upper bound of a section's uncompressed size.
const MAX_SECTION: u32 = 256 << 20;
/// Upper bound of a chunk's uncompressed size.
const MAX_CHUNK: u32 = 64 << 20;
