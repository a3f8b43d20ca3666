//! kdump-compressed and flattened files: layout, reading, writing.
//!
//! [`mod@format`] holds the structs as they lie on disk and stands as the format's documentation. [`Layout`] and
//! [`Header`] are what a writer needs; it does its own writing. [`FlatWriter`] turns writes at offsets into a stream.
//! [`KdumpFile`] reads what any writer of the format left, and [`flat::Flattened`] puts a stream together again.

mod encoding;
pub mod flat;
pub mod format;
mod header;
mod layout;
mod reader;
mod shape;
mod utsname;

pub use flat::FlatWriter;
pub use format::PageDesc;
pub use header::{Header, STATUS_OFFSET, SUB_BLOCKS_OFFSET};
pub use layout::{Layout, LayoutError, NOTES_OFFSET};
pub use reader::{Census, Info, KdumpFile, SplitError, SplitSet, Structure};
pub use utsname::UtsName;
