//! What tests of several crates share: a web server that fails as they want, the commands of the guide, faults at system calls of
//! a command, memory that is on a server or has lost a page, the memory of a process. Knows only `physmem` of what is under test, so that no crate is
//! compiled twice for its own tests. Synthetic machines are in `synth`.

pub mod content;
pub mod guide;
pub mod lost;
pub mod served;
pub mod server;
/// It changes registers of x86_64; tests of commands run on arm64 as well, without it.
#[cfg(target_arch = "x86_64")]
pub mod tracer;
