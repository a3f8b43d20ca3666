//! How long kernel functions, and the ways between two trace events, take.
//!
//! Functions are caught by what the kernel offers ([`Mechanism`]): kprobe events, fprobe events, or the function graph tracer;
//! no compiler and no eBPF are needed. By default every begin and return comes out as an event and is paired here, frame by
//! frame ([`Calls`]), so that recursion and missed returns are seen for what they are; [`InKernel`] leaves the counting
//! to histogram triggers, for functions called too often for that.

mod between;
mod calls;
mod collect;
mod collector;
mod error;
mod functions;
mod histfile;
mod histogram;
mod in_kernel;
mod probes;
pub mod recorded;
mod render;
mod report;
mod session;
mod setup;
mod unit;

pub use between::{Between, EventName, Key};
pub use calls::{Calls, Missed};
pub use error::LatencyError;
pub use histfile::{Entry, HistFile};
pub use histogram::{Histogram, Row};
pub use in_kernel::InKernel;
pub use probes::ProbeKind;
pub use report::{Part, Report};
pub use session::{EventSession, Session};
pub use setup::{Mechanism, Options, Setup};
pub use unit::Unit;
