//! Events of the running kernel, from a private tracefs instance.

mod instance;
mod pipe;
mod reader;
mod record;
mod seen;
mod system;
mod tracefs;

pub use instance::{Instance, InstanceOptions};
pub use pipe::CpuPipe;
pub use reader::{LiveReader, monotonic};
pub use record::{RecordSummary, Recorder, RecorderOptions};
pub use system::{machine_info, snapshot};
pub use tracefs::Tracefs;
