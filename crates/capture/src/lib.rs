//! The pipeline from physical memory to a dump: scan, pack, place.
//!
//! *Scan* classifies every struct page once, block by block, on every CPU, and writes down which pages are kept.
//! *Pack* compresses the kept pages in batches, on every CPU. *Place* puts the batches into the file in their order,
//! whatever order they were finished in, so the bytes are the same at any number of threads. Memory does not grow with
//! the machine: the set of kept pages lives in the file being written, or is worked out again for a stream.

mod adaptive;
mod batch;
mod compression;
mod elf;
mod error;
mod estimate;
mod identity;
mod job;
mod limits;
mod options;
mod pack;
mod priority;
mod priority_bitmaps;
mod report;
mod run;
mod scan;
mod selection;
mod split;
mod write;

pub use compression::{Codecs, Compression};
pub use error::CaptureError;
pub use estimate::estimate;
pub use options::{Format, Limits, Options, Target};
pub use pagehaul_vmcore::{Source, SourceKind};
pub use priority::Priority;
pub use report::{ClassCount, Ended, Found, LeftOut, MethodCount, PartReport, Phases, Report, Unreadable};
pub use run::capture;
