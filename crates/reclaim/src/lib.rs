//! Analyses page reclaim: from trace events to a report.
//!
//! [`decode`] turns the events of all kernels into one set of types. [`Tracker`] follows every task through its intervals of
//! reclaim and adds up a [`model::Model`]. [`ReclaimReport`] derives figures from the model, the kernel's counters and the
//! command's times: every row of the table in Mel Gorman's reclaim series of 2010, and more. [`Comparison`] compares
//! reports. `docs/reclaim.md` defines each row and names the kernels that have it.

pub mod counters;
pub mod decode;
mod histogram;
pub mod model;
mod perfetto;
pub mod report;
pub mod stats;
mod tracker;

pub use histogram::{Bucket, DurationHistogram};
pub use perfetto::perfetto;
pub use report::{Comparison, ReclaimReport, ReportError, analyse, analyse_all};
pub use tracker::Tracker;
