//! Output files, and what every dump writer shares: large aligned writes, write-behind, and checksums.
//!
//! [`NewFile`] creates every file that this program writes, and replaces files that exist.
//!
//! An [`Output`] takes bytes at any offset: a file ([`OutputFile`]) or a stream. [`ChunkWriter`] gathers consecutive
//! bytes into large aligned writes; [`WriteBehind`] does the same and writes on a thread of its own. A format
//! implements [`DumpWriter`] on top of them.

mod aligned;
mod bitmap;
pub mod checksums;
mod chunk_writer;
mod dump;
mod error;
mod file;
mod new_file;
mod output;
#[cfg(test)]
mod test_disk;
mod write_behind;
mod write_meter;

pub use aligned::AlignedBuffer;
pub use bitmap::StoredBitmap;
pub use chunk_writer::ChunkWriter;
pub use dump::{DumpWriter, FinishBound, PageBatch, Recorded, StoredPage};
pub use error::{WriteError, is_full};
pub use file::{DumpFileOptions, OutputFile};
pub use new_file::{CreateOptions, Naming, NewFile, OutputError, Special, names_open_file};
pub use output::Output;
pub use write_behind::WriteBehind;
pub use write_meter::{WriteCosts, WriteMeter};
