//! The sections of a report of `triage`.

/// Their names, as `--section` takes them.
pub const SECTIONS: [&str; 21] = [
    "what",
    "verdict",
    "cpus",
    "tasks",
    "waits",
    "memory",
    "io",
    "net",
    "modules",
    "log",
    "workqueues",
    "interrupts",
    "rcu",
    "timers",
    "signals",
    "counts",
    "pressure",
    "sockets",
    "mounts",
    "swap",
    "ipc",
];
