//! Measures the parts of a capture, each by itself.
//!
//! [`read`] sweeps the size of the windows a source is mapped or read through. [`stages`] measures a capture stage by stage;
//! [`predict`] computes from the measured rates how long other machines take. With the feature
//! `codecs`, [`codecs`] sweeps codecs over the dirtiness of data and over real pages. Nothing here prints.

#[cfg(feature = "codecs")]
pub mod codecs;
pub mod contents;
pub mod disk;
mod error;
#[cfg(feature = "codecs")]
pub mod pages;
pub mod predict;
pub mod read;
pub mod stages;
mod threads;

pub use error::BenchError;
