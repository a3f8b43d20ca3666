//! Facts of many crashes: tables in Parquet, and reports on them. The program `pagehaul-fleet` runs its commands.

mod columns;
mod command;
mod compact;
mod console;
mod date;
mod extract;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod limits;
mod lock;
mod manifest;
mod metrics;
mod names;
mod one;
mod place;
mod python;
mod read;
mod remove;
mod report;
mod sql;
mod stage;
mod table;
mod tables;
mod thrift;
mod turns;
mod written;

pub use command::Program;
pub use compact::{Compacted, compact_all};
pub use read::files;
pub use report::report_text;
pub use table::{Key, Table, Values};
