/// Parts of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Kind of crash, its stack and signature.
    What,
    /// Findings.
    Verdict,
    /// Each CPU with its stack.
    Cpus,
    /// Tasks by state.
    Tasks,
    /// Locks.
    Waits,
    /// Memory.
    Memory,
    /// Block requests.
    Io,
    /// The network.
    Net,
    /// Timers.
    Timers,
    /// Modules.
    Modules,
    /// The end of the log.
    Log,
}

impl Section {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 11] = [
        Self::What,
        Self::Verdict,
        Self::Cpus,
        Self::Tasks,
        Self::Waits,
        Self::Memory,
        Self::Io,
        Self::Net,
        Self::Timers,
        Self::Modules,
        Self::Log,
    ];

    /// The name by which it is asked for.
    pub fn name(self) -> &'static str {
        match self {
            Self::What => "what",
            Self::Verdict => "verdict",
            Self::Cpus => "cpus",
            Self::Tasks => "tasks",
            Self::Waits => "waits",
            Self::Memory => "memory",
            Self::Io => "io",
            Self::Net => "net",
            Self::Timers => "timers",
            Self::Modules => "modules",
            Self::Log => "log",
        }
    }

    /// What it has, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Self::What => "Kind of crash, its stack and signature",
            Self::Verdict => "Findings",
            Self::Cpus => "Each CPU with its stack",
            Self::Tasks => "Tasks by state, blocked tasks by stack",
            Self::Waits => "Locks: who waits for whom",
            Self::Memory => "Zones, counters, largest processes, slab caches, vmalloc",
            Self::Io => "Block requests in flight",
            Self::Net => "Network devices, their transmit queues, backlogs of received packets",
            Self::Timers => "Pending timers of each CPU",
            Self::Modules => "Loaded modules",
            Self::Log => "The end of the kernel log",
        }
    }
}
