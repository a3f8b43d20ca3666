//! kdump-compressed dumps, split sets and flattened streams: their format, reading and writing.
//!
//! [`mod@format`] documents the format and holds its structs as they are on disk. [`mod@read`] reads what any writer of
//! the format produced: [`KdumpFile`], [`SplitSet`], and [`Flattened`], which presents a stream as the file it
//! describes. [`mod@write`] writes, and documents the invariants that keep a dump valid at any moment.

#![deny(missing_docs)]

pub mod format;
pub mod read;
pub mod write;

pub use format::{Header, Layout, LayoutError, PageDesc, STATUS_OFFSET, UtsName};
pub use read::{Census, Flattened, Info, KdumpFile, SplitError, SplitSet, Structure, TRUNCATED_STREAM};
