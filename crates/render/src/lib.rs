//! Draws reports: text and web pages of what the libraries find.
//!
//! One rule holds for all reports. The library that finds something returns typed values, which are JSON by `serde`; a module here, one a
//! report, makes text and web pages of them; the command line chooses between them and writes files. Nothing is printed here.

pub mod capture;
#[cfg(feature = "census")]
pub mod census;
#[cfg(feature = "kdump-setup")]
pub mod kdump;
#[cfg(feature = "stalls")]
pub mod latency;
#[cfg(feature = "html")]
pub mod memory_use;
#[cfg(feature = "census")]
pub mod owners;
#[cfg(feature = "process")]
pub mod process;
pub mod pstore;
#[cfg(feature = "stalls")]
pub mod reclaim;
pub mod triage;
#[cfg(feature = "stalls")]
pub mod vmalloc;
#[cfg(feature = "stalls")]
mod warnings;
