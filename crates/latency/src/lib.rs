//! Measures the latency of kernel functions, and the time between two trace events.
//!
//! The mechanism is what the kernel offers ([`Mechanism`]): kprobe events, fprobe events or the function
//! graph tracer, without compiler and eBPF. By default, events of entries and returns are read and matched by
//! stack frame ([`CallTracker`]), so that recursion and missed returns are accounted for.
//! [`HistTriggerSession`] lets hist triggers count inside the kernel, for functions called too often to read
//! each call.

mod call_tracker;
mod collector;
mod error;
mod event_name;
mod event_pairs;
mod function_timer;
mod functions;
mod hist_triggers;
mod histfile;
mod histogram;
mod probes;
mod recorder;
mod report;
mod session;
mod setup;
pub mod trace_file;
mod unit;

pub use call_tracker::Missed;
pub use error::LatencyError;
pub use event_name::{EventName, Key};
pub use functions::matches_glob;
pub use hist_triggers::HistTriggerSession;
pub use histfile::{Entry, HistFile};
pub use histogram::{Bucket, Histogram, PERCENTILES};
pub use probes::ProbeKind;
pub use recorder::EventRecorder;
pub use report::{LatencyReport, NamedHistogram};
pub use session::{EventSession, Session};
pub use setup::{Mechanism, Options, Setup};
pub use unit::Unit;
