//! Options that several commands share: one spelling and one meaning each.

use std::thread;

use clap::Args;

/// `--threads`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Threads {
    /// Worker threads [default: all CPUs available to this process]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl Threads {
    /// How many threads to use.
    pub(crate) fn count(self) -> usize {
        self.threads.map_or_else(|| thread::available_parallelism().map_or(1, Into::into), usize::from)
    }
}

/// `--force`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Overwrite {
    /// Replace OUTPUT if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

/// `--json` and `--quiet`, of commands that report what they did.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Reporting {
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors only
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
