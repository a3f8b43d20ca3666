//! The protocol between the lab's host side and its guests: stamps, and the files they exchange.
//!
//! The binary of this package is the guest program. It runs as init in the kernel that crashes and in the capture
//! kernel.

pub mod class;
pub mod pattern;
pub mod plan;
pub mod results;
pub mod secrets;
pub mod stamp;
pub mod workload;

pub use class::Class;
