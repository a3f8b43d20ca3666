//! Events of the running kernel, from a private tracefs instance.

mod instance;
mod machine;
mod pipe;
mod reader;
mod record;
mod references;
mod tracefs;

pub use instance::{Instance, InstanceOptions};
pub use machine::read_counters;
use pipe::CpuPipe;
pub use reader::{LiveReader, monotonic};
pub use record::{Recorder, RecorderOptions, RecordingSummary};
pub use tracefs::Tracefs;
