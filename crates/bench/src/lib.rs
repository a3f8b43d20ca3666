//! Measures the parts of a capture, each by itself.
//!
//! [`read`] sweeps the size of the windows a source is mapped or read through. [`stages`] measures a capture stage by stage, and
//! [`live`] a running machine; [`predict`] computes from the measured rates how long other machines take. With the feature
//! `simulation`, [`codecs`] sweeps codecs over the dirtiness of data and over real pages, and [`scale`] runs the capture engine
//! on simulated machines from 1 GiB to 64 TiB. Nothing here prints.

#[cfg(feature = "simulation")]
pub mod codecs;
pub mod disk;
mod error;
pub mod live;
#[cfg(feature = "simulation")]
mod offsets;
#[cfg(feature = "simulation")]
pub mod pages;
pub mod predict;
pub mod read;
#[cfg(feature = "simulation")]
pub mod scale;
#[cfg(feature = "simulation")]
pub mod simulated;
pub mod stages;
mod threads;

pub use error::BenchError;

/// Bytes of anonymous memory this process uses now (RssAnon of /proc/self/status).
#[cfg(feature = "simulation")]
fn anonymous_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or("0 kB");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}
