//! What identifies a crash, from the notes and the log of its dump: an ID, the kind of death, a signature that groups
//! crashes of the same cause over builds and machines. No symbols, no types, no debug files.

#![deny(missing_docs)]

mod crash;
mod document;
mod event;
mod frame;
mod identity;
mod line;
mod names;
mod pstore;
mod registers;
mod signature;
mod similar;
mod skip;
mod stored;
mod trace;

pub use crash::Crash;
pub use document::{Facts, LogRecord, Missing, SCHEMA_VERSION};
pub use event::{Event, Kind};
pub use frame::is_messenger;
pub use identity::{CrashId, crash_id};
pub use line::{Line, lines_of, lines_of_text};
pub use names::UtsNames;
pub use pstore::{PstoreError, PstoreFile, PstoreRecords, Remark, is_pstore};
pub use registers::{CpuRegisters, registers_of};
pub use signature::{COARSE_VERSION, FRAMES, SIGNATURE_VERSION, Signature};
pub use similar::{Similar, similar};
pub use stored::StoredError;
