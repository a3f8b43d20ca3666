//! Resource limits.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Limits the memory of this process to `bytes`, and has it leave no core, which would hold the memory of the dump's machine.
///
/// A system that refuses runs the process without limits.
pub fn limit_memory(bytes: u64) {
    let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    let _ = setrlimit(Resource::Data, limit(bytes));
    let _ = setrlimit(Resource::Core, limit(0));
}
