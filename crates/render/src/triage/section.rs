use pagehaul_inspect::Requested;

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
    /// Workqueues.
    Workqueues,
    /// Interrupts and softirqs.
    Interrupts,
    /// RCU.
    Rcu,
    /// Timers.
    Timers,
    /// Signals that wait.
    Signals,
    /// Counts of tasks.
    Counts,
    /// Pressure.
    Pressure,
    /// Sockets.
    Sockets,
    /// Mounts.
    Mounts,
    /// Swap devices.
    Swap,
    /// IPC of System V.
    Ipc,
    /// Modules.
    Modules,
    /// The end of the log.
    Log,
}

impl Section {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 21] = [
        Self::What,
        Self::Verdict,
        Self::Cpus,
        Self::Tasks,
        Self::Waits,
        Self::Memory,
        Self::Io,
        Self::Net,
        Self::Workqueues,
        Self::Interrupts,
        Self::Rcu,
        Self::Timers,
        Self::Signals,
        Self::Counts,
        Self::Pressure,
        Self::Sockets,
        Self::Mounts,
        Self::Swap,
        Self::Ipc,
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
            Self::Workqueues => "workqueues",
            Self::Interrupts => "interrupts",
            Self::Rcu => "rcu",
            Self::Timers => "timers",
            Self::Signals => "signals",
            Self::Counts => "counts",
            Self::Pressure => "pressure",
            Self::Sockets => "sockets",
            Self::Mounts => "mounts",
            Self::Swap => "swap",
            Self::Ipc => "ipc",
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
            Self::Workqueues => "Works that wait, and the pools of workers",
            Self::Interrupts => "Interrupts and softirqs of each CPU",
            Self::Rcu => "The grace period of RCU, and which CPUs and tasks it waits for",
            Self::Timers => "Pending timers of each CPU",
            Self::Signals => "Signals that wait to be delivered, and which of them are blocked",
            Self::Counts => "Counts of tasks by name and by parent",
            Self::Pressure => "How long tasks waited for CPUs, memory and disks (PSI)",
            Self::Sockets => "Sockets of all processes, with what waits in their queues",
            Self::Mounts => "Mounted file systems of all mount namespaces",
            Self::Swap => "Swap devices and files",
            Self::Ipc => "Shared memory, semaphores and message queues of System V",
            Self::Modules => "Loaded modules",
            Self::Log => "The end of the kernel log",
        }
    }

    /// What has to be read for it besides the report.
    pub fn requested(self) -> Option<Requested> {
        Some(match self {
            Self::Workqueues => Requested::Workqueues,
            Self::Interrupts => Requested::Interrupts,
            Self::Rcu => Requested::Rcu,
            Self::Timers => Requested::Timers,
            Self::Signals => Requested::Signals,
            Self::Counts => Requested::Counts,
            Self::Pressure => Requested::Pressure,
            Self::Sockets => Requested::Sockets,
            Self::Mounts => Requested::Mounts,
            Self::Swap => Requested::Swap,
            Self::Ipc => Requested::Ipc,
            _ => return None,
        })
    }
}
