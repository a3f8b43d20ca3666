//! The command line: one module a command.

pub(crate) mod bench;
pub(crate) mod capture;
#[cfg(feature = "process")]
pub(crate) mod checkpoint;
pub(crate) mod convert;
#[cfg(feature = "process")]
pub(crate) mod core;
#[cfg(feature = "process")]
pub(crate) mod core_info;
pub(crate) mod dmesg;
pub(crate) mod generate;
pub(crate) mod info;
#[cfg(feature = "stalls")]
pub(crate) mod latency;
#[cfg(feature = "mount")]
pub(crate) mod mount;
#[cfg(feature = "census")]
pub(crate) mod pages;
pub(crate) mod read;
#[cfg(feature = "stalls")]
pub(crate) mod reclaim;
pub(crate) mod verify;
#[cfg(feature = "process")]
pub(crate) mod verify_process;
#[cfg(feature = "stalls")]
pub(crate) mod vmalloc;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pagehaul_capture::{Codecs, Compression};
use pagehaul_kernel::DumpLevel;

use pagehaul_present::{number, time};

/// Gets the memory of a Linux machine out, fast, and makes sense of it
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Bench(bench::BenchArguments),
    Capture(CaptureArguments),
    #[cfg(feature = "process")]
    Checkpoint(checkpoint::CheckpointArguments),
    #[cfg(feature = "process")]
    Core(core::CoreArguments),
    #[cfg(feature = "process")]
    Restart(checkpoint::RestartArguments),
    #[cfg(feature = "process")]
    #[command(hide = true, name = pagehaul_process::SNAPSHOT_HELPER)]
    HoldSnapshot {
        pid: i32,
        state: u8,
    },
    Info(InfoArguments),
    #[cfg(feature = "stalls")]
    Reclaim(reclaim::ReclaimArguments),
    Convert(convert::ConvertArguments),
    Dmesg(dmesg::DmesgArguments),
    #[cfg(feature = "mount")]
    Mount(mount::MountArguments),
    #[cfg(feature = "census")]
    Pages(pages::PagesArguments),
    Read(read::ReadArguments),
    Verify(verify::VerifyArguments),
    #[cfg(feature = "stalls")]
    Latency(latency::LatencyArguments),
    #[cfg(feature = "stalls")]
    Vmalloc(vmalloc::VmallocArguments),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    Man {
        /// Folder to write them to
        directory: PathBuf,
    },
}

/// Take a dump of a crashed kernel's memory, without the pages nobody needs
///
/// SOURCE is /proc/vmcore in a capture kernel, a saved ELF64 vmcore, QEMU's dump-guest-memory, or a kdump-compressed or
/// flattened dump. The dump opens in crash, drgn and everything that uses libkdumpfile.
///
/// Exit status: 0, the dump is complete; 1, there is no dump; 2, the command line is wrong; 3, the dump was left
/// incomplete (disk full, I/O error, interrupted, a limit reached): it is marked so, and holds the most important pages.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul capture /proc/vmcore /var/crash/dump
  pagehaul capture -d cache,cache-private,free -c zlib vmcore dump
  pagehaul capture /proc/vmcore /disk1/dump.1 /disk2/dump.2
  pagehaul capture /proc/vmcore - | ssh host 'cat > dump.flat'
  pagehaul capture --dry-run /proc/vmcore")]
pub(crate) struct CaptureArguments {
    /// Memory to take the dump of
    pub(crate) source: PathBuf,
    /// File to write; `-` writes a flattened stream to standard output. Several files, each on a disk of its own, become
    /// the parts of one dump: the faster disk takes more, and what a full or failing one leaves the others take. List all
    /// of them to crash, or make one file of them with `convert`
    #[arg(required_unless_present = "dry_run")]
    pub(crate) output: Vec<PathBuf>,
    /// Pages to leave out: 0 to 31 (1 zero, 2 cache, 4 private cache, 8 user, 16 free), or their names joined by commas
    /// (zero, cache, cache-private, user, free, all, none)
    #[arg(short, long, value_name = "LEVEL", default_value = "31")]
    pub(crate) dump_level: DumpLevel,
    /// none, zlib, lzo, snappy or zstd, and a level: zstd:3, zstd:-5, zlib:6. Or auto: as hard as the processors can while
    /// the disk keeps up; the bytes then differ from run to run, the pages do not
    #[arg(short, long, value_name = "CODEC[:LEVEL]", default_value_t)]
    pub(crate) compress: Compression,
    /// The codecs that `--compress auto` may use, joined by commas [default: zlib, lzo, snappy, zstd]. crash knows zstd since
    /// 8.0.0 (2021)
    #[arg(long, value_name = "CODECS")]
    pub(crate) codecs: Option<Codecs>,
    /// Threads that scan and compress [default: every CPU this process may use]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// How the dump is laid out [default: kdump, flattened for `-`]
    #[arg(short, long, value_enum)]
    pub(crate) format: Option<FormatArgument>,
    /// Be done by then, with the most important pages: 90s, 10m, 1h30m. Pages are written in this order: kernel data,
    /// stacks and page tables; slab; kernel text; struct pages; other kernel memory; page cache; processes; free memory.
    /// In streams, ELF dumps and several parts, and on raw disks, they come as they lie in memory
    #[arg(long, value_name = "TIME", value_parser = time::parse_duration)]
    pub(crate) time_limit: Option<Duration>,
    /// Take no more room on disk than this, for the most important pages: 500M, 20G. Until the end, 24 bytes more for each
    /// page that was to be kept. Of several outputs, each may take so much
    #[arg(long, value_name = "SIZE", value_parser = number::parse_bytes)]
    pub(crate) size_limit: Option<u64>,
    /// Classify and estimate the size, but write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Write the checksums of the output to OUTPUT.sums, for `verify`
    #[arg(long)]
    pub(crate) checksums: bool,
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors only
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print more about what was found
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Map the source, this many bytes at a time in each thread: a power of two from 4K to 1G [default: 4M of
    /// /proc/vmcore; other files are read]
    #[arg(long, value_name = "SIZE", value_parser = map_size)]
    pub(crate) map_size: Option<u64>,
    /// Read the source, also /proc/vmcore
    #[arg(long, conflicts_with = "map_size")]
    pub(crate) no_mmap: bool,
}

/// Say what a dump is: format, kernel, time, level, codecs, whether it is complete; memory map, registers
#[derive(Debug, Args)]
pub(crate) struct InfoArguments {
    /// A vmcore or dump of any format, or the parts of a split set
    #[arg(required = true, value_name = "DUMP")]
    pub(crate) dumps: Vec<PathBuf>,
    /// Count the pages of each class too, by the kernel's struct pages
    #[arg(short, long)]
    pub(crate) classes: bool,
    /// List every note, and all registers of each CPU
    #[arg(short, long)]
    pub(crate) notes: bool,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArgument {
    /// kdump-compressed, version 6
    Kdump,
    /// ELF64, uncompressed, dropped pages as holes
    Elf,
    /// kdump-compressed as a stream, as makedumpfile -F writes it
    Flattened,
}

fn map_size(text: &str) -> Result<u64, String> {
    let size = number::parse_bytes(text)?;
    if size.is_power_of_two() && (4096..=1 << 30).contains(&size) {
        Ok(size)
    } else {
        Err("expected a power of two from 4K to 1G".into())
    }
}
