//! Events of the running kernel, from a private tracefs instance.

mod instance;
mod pipe;
mod reader;
mod tracefs;

pub use instance::{Instance, InstanceOptions};
pub use pipe::CpuPipe;
pub use reader::LiveReader;
pub use tracefs::Tracefs;
