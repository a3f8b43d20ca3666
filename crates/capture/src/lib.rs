//! The pipeline from physical memory to a dump: scan, pack, write.
//!
//! *Scan* classifies every struct page once, block by block, on every CPU, and stores which pages are kept. *Pack*
//! compresses the kept pages in batches, on every CPU. *Write* puts the batches into the file in order, so the bytes are
//! the same at any number of threads. Memory does not grow with the machine: the set of kept pages is in the file being
//! written, or is computed again for a stream.
//!
//! This crate has the policy: which pages, in which order, at which level, until which limit. The formats are in
//! `pagehaul-kdump` and [`elf`], the thread pool is `pagehaul-pool`.

mod adaptive;
mod batch;
mod compression;
mod discard;
mod error;
mod estimate;
mod identity;
mod job;
mod kept;
mod limits;
mod options;
mod owners;
mod pack;
mod priority;
mod priority_bitmaps;
mod report;
mod run;
mod scan;
mod selection;
mod split;
mod threads;
mod write;

pub use compression::{Codecs, Compression};
pub use error::CaptureError;
pub use estimate::estimate;
pub use kept::{NextPages, kept_bytes, with_kept_pages};
pub use options::{Format, KnownPages, Limits, Options, Stream, Target};
pub use owners::{CgroupRules, FileLayout, KeepRules, OwnerError, OwnerFilter, OwnerRules, ProcessTables};
pub use pagehaul_run::Outcome;
pub use priority::Priority;
pub use report::{
    CaptureReport, ClassCount, Found, MethodCount, PartReport, Phases, PriorityCount, Unreadable,
};
pub use run::{capture, capture_with};
pub use threads::threads_that_fit;
