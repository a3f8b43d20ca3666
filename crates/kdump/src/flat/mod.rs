//! Flattened files: a dump as a stream of records, each with the offset where its bytes belong, for pipes that
//! cannot seek.

mod index;
mod read;
mod write;

pub use read::Flattened;
pub use write::FlatWriter;
