//! Readers of the kernel's structures. Each needs the machine, and at most the tasks.

pub(crate) mod announce;
pub(crate) mod block;
pub(crate) mod clock;
pub(crate) mod crash_notes;
pub(crate) mod files;
pub(crate) mod interrupts;
pub(crate) mod ipc;
pub(crate) mod memory;
pub(crate) mod mounts;
pub(crate) mod namespaces;
pub(crate) mod net;
pub(crate) mod paths;
pub(crate) mod per_cpu_chunks;
pub(crate) mod pressure;
pub(crate) mod rcu;
pub(crate) mod registers;
pub(crate) mod slab;
pub(crate) mod sockets;
pub(crate) mod stack;
pub(crate) mod swap;
pub(crate) mod system;
pub(crate) mod tasks;
pub(crate) mod timers;
pub(crate) mod vmalloc;
pub(crate) mod vmas;
pub(crate) mod workqueues;
