//! Options that several commands share: one spelling and one meaning each.

use std::thread;

use clap::Args;
#[cfg(feature = "stalls")]
use pagehaul_present::number::parse_bytes;

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

/// Parses the size of a kernel trace buffer, and returns it in KiB, which tracefs takes.
#[cfg(feature = "stalls")]
pub(crate) fn trace_buffer_kb(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    u32::try_from(bytes >> 10)
        .ok()
        .filter(|kb| (16..=4 << 20).contains(kb) && bytes.is_multiple_of(1 << 10))
        .ok_or_else(|| "expected a size from 16K to 4G such as 512K, 8M".to_owned())
}
