/// What shows more of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The log.
    Log {
        /// Messages of this level and above it alone.
        level: Option<u8>,
    },
    /// What the driver of a network device wrote to the log, and the kernel about its queues.
    DriverLog,
    /// CPUs with their stacks.
    Cpus,
    /// Tasks by state.
    Tasks,
    /// Who waits for whom.
    Waits,
    /// Zones, counters, processes, slab caches.
    Memory,
    /// Who owns the memory.
    Owners,
    /// Network devices and their queues.
    Network,
    /// Block requests in flight, and their fields.
    Requests,
    /// The program that suspended a device-mapper device and did not resume it.
    Suspender,
    /// The stack that died, with its source.
    Backtrace,
    /// The source of the code at an address.
    Code(u64),
}
