//! Page reclaim, from trace events to a report.
//!
//! [`decode`] gives events of all kernels one shape; [`model::Tracker`] follows every task through its stretches of reclaim
//! and adds up a [`model::Model`]; [`Report`] says what the model, the kernel's counters and the command's times mean, with
//! every row of the table that Mel Gorman's reclaim series of 2010 was judged by; [`Comparison`] sets reports side by side;
//! [`render`] makes text and web pages of them.
//! How each row is computed, and on which kernels it is to be had: `docs/reclaim.md`.

pub mod counters;
pub mod decode;
mod durations;
pub mod model;
pub mod render;
pub mod report;
pub mod stats;

pub use durations::{Bucket, Durations};
pub use report::{Comparison, Report, ReportError, analyse};
