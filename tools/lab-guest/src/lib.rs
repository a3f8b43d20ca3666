//! What the lab's host side and its guest agree on: stamps, and the files they hand to each other.
//!
//! The guest program itself is the binary of this package; it runs as init both in the kernel that is to crash
//! and in the capture kernel.

pub mod class;
pub mod plan;
pub mod results;
pub mod stamp;
pub mod workload;

pub use class::Class;
