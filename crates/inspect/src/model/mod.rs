//! What several structures say together.

pub(crate) mod cpus;
pub(crate) mod detail;
pub(crate) mod locks;
pub(crate) mod per_cpu_lists;
pub(crate) mod stacks;
pub(crate) mod waits;
pub(crate) mod workers;
