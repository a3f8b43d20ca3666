//! What vmalloc is doing.
//!
//! [`Snapshot`] says what there is now, from `/proc/vmallocinfo` and `/proc/meminfo`. [`Monitor`] follows the `vmalloc:` trace
//! events: who allocates, how large the backlog of areas is that were freed but not purged, how many areas a purge takes and,
//! where the kernel has probes, how long.

mod activity;
mod areas;
mod error;
mod monitor;
mod render;
mod snapshot;

pub use activity::{Activity, Counts};
pub use areas::{Area, AreaKind, Areas};
pub use error::VmallocError;
pub use monitor::{Interval, Monitor, PURGES, from_trace, record};
pub use render::{interval_header, interval_row, summary};
pub use snapshot::{Caller, Snapshot, Space, Sum};
