//! `pagehaul capture`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pagehaul_capture::Limits;
use pagehaul_kernel::DumpLevel;
use pagehaul_physmem::{Access, MapPolicy};
use pagehaul_present::number::parse_bytes;
use pagehaul_present::time::parse_duration;
use pagehaul_vmcore::Source;

use crate::cli::dump_output::{DumpOutput, PageSelection};

/// Capture a dump of a crashed kernel's memory, without the pages that the dump level excludes
///
/// SOURCE is /proc/vmcore in a capture kernel, a saved ELF64 vmcore, QEMU's dump-guest-memory, or a kdump-compressed or
/// flattened dump. crash, drgn and everything that uses libkdumpfile open the result.
///
/// Exit status: 0, the dump is complete; 1, there is no dump; 2, the command line is wrong; 3, the dump is incomplete and
/// marked so (disk full, I/O error, signal, limit): it holds the most important pages.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul capture /proc/vmcore /var/crash/dump
  pagehaul capture -d cache,cache-private,free -c zlib vmcore dump
  pagehaul capture /proc/vmcore /disk1/dump.1 /disk2/dump.2
  pagehaul capture /proc/vmcore - | ssh host 'cat > dump.flat'
  pagehaul capture --dry-run /proc/vmcore")]
pub(crate) struct CaptureArguments {
    /// Memory to capture
    source: PathBuf,
    /// File to write; `-` writes a flattened stream to standard output. Several files, each on its own disk, become the
    /// parts of a split set: faster disks take more, and what a full or failing disk leaves the others take. Give crash all
    /// of them, or join them with `convert`
    #[arg(required_unless_present = "dry_run")]
    output: Vec<PathBuf>,
    /// Pages to exclude: 0 to 31 (1 zero, 2 cache, 4 private cache, 8 user, 16 free), or names separated by commas (zero,
    /// cache, cache-private, user, free, all, none)
    #[arg(short, long, value_name = "LEVEL", default_value = "31")]
    dump_level: DumpLevel,
    #[command(flatten)]
    dump: DumpOutput,
    /// Finish within this time, with the most important pages: 90s, 10m, 1h30m. Pages are written by priority: kernel data,
    /// stacks and page tables; slab; kernel text; struct pages; other kernel memory; page cache; processes; free memory.
    /// Streams, ELF dumps, split sets and raw disks are written in order of PFN
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time_limit: Option<Duration>,
    /// Take no more disk space than this, for the most important pages: 500M, 20G. Until the end, 24 bytes more per page
    /// kept. With several outputs, the limit is per output
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size_limit: Option<u64>,
    /// Classify pages and estimate the size, but write nothing
    #[arg(long)]
    dry_run: bool,
    /// Map the source, this much at a time per thread: a power of two from 4K to 1G [default: 4M of /proc/vmcore; other
    /// files are read]
    #[arg(long, value_name = "SIZE", value_parser = map_size)]
    map_size: Option<u64>,
    /// Read the source instead of mapping it, even /proc/vmcore
    #[arg(long, conflicts_with = "map_size")]
    no_mmap: bool,
}

pub(crate) fn run(arguments: &CaptureArguments) -> anyhow::Result<ExitCode> {
    let source = Source::open(&arguments.source, arguments.map_policy())?;
    let outputs = if arguments.dry_run { &[] } else { &*arguments.output };
    let limits = Limits { time: arguments.time_limit, size: arguments.size_limit };
    let selection = PageSelection { level: arguments.dump_level, keep_all: false, limits };
    arguments.dump.write(&source, outputs, selection)
}

impl CaptureArguments {
    fn map_policy(&self) -> MapPolicy {
        let default = MapPolicy::default();
        match self.map_size {
            Some(window) => MapPolicy { window, access: Access::Map },
            None if self.no_mmap => MapPolicy { access: Access::Read, ..default },
            None => default,
        }
    }
}

fn map_size(text: &str) -> Result<u64, String> {
    let size = parse_bytes(text)?;
    if size.is_power_of_two() && (4096..=1 << 30).contains(&size) {
        Ok(size)
    } else {
        Err("expected a power of two from 4K to 1G".into())
    }
}
