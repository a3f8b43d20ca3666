//! Watches the kernel's vmalloc.
//!
//! [`Usage`] is the present state, from `/proc/vmallocinfo` and `/proc/meminfo`. [`Monitor`] follows the
//! `vmalloc:` trace events: callers, the backlog of areas that are freed but not purged, areas per purge and,
//! if the kernel has probes, the latency of purges.

mod activity;
mod areas;
mod error;
mod monitor;
mod usage;

pub use activity::{Activity, Counts};
pub use areas::{Area, AreaKind, Areas};
pub use error::VmallocError;
pub use monitor::{Interval, Monitor, purge_report, read_trace, record};
pub use usage::{AreaTotal, NamedTotal, Space, Usage};
