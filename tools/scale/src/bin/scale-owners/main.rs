//! How long `pagehaul pages --owners` takes on a large machine: that of a dump, with copies of its memory.

mod grown;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use clap::Parser;
use pagehaul_inspect::Machine;
use pagehaul_kernel::{Kernel, VirtualMemory};
use pagehaul_owners::{Effort, References, balance};
use pagehaul_physmem::{MapPolicy, PhysMemory};
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count, parse_bytes};
use pagehaul_present::time::seconds;
use pagehaul_vmcore::Source;

use crate::grown::Grown;

/// Measure how long the owners of all pages of a large machine take to find
///
/// The machine is that of a dump (`lab crash --memory 10G --fill 1 --scenario crowd` makes one with 100,000 files, 10,000 cgroups
/// and 100,000 tasks), to which copies of its memory are added. Each struct page is read and counted as often as there are copies
/// of it; files, tasks and cgroups are those of the dump.
#[derive(Debug, Parser)]
struct Arguments {
    /// A vmcore, not filtered
    dump: PathBuf,
    /// Memory of the machines, besides the dump's own
    #[arg(short, long, value_name = "SIZE,…", default_value = "64G,256G,1T", value_delimiter = ',', value_parser = parse_bytes)]
    memory: Vec<u64>,
    /// Threads that read struct pages [default: one per CPU]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Runs for each size; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.map_or_else(cpus, usize::from);
    let source = Source::open(&arguments.dump, MapPolicy::default())?;
    let dump = source.memory();
    let kernel = Kernel::discover(dump)?;
    let mut table = Table::new(["memory", "struct pages", "seconds", "peak of the process"]);
    let mut add = |memory: &dyn PhysMemory, size: u64| -> anyhow::Result<()> {
        let mut taken = Vec::new();
        let mut pages = 0;
        for _ in 0..arguments.rounds {
            let start = Instant::now();
            pages = find(memory, threads)?;
            taken.push(start.elapsed().as_secs_f64());
        }
        taken.sort_by(f64::total_cmp);
        table.row([bytes(size), count(pages), seconds(taken[taken.len() / 2]), bytes(peak()?)]);
        Ok(())
    };
    add(dump, dump.ranges().bytes())?;
    for size in &arguments.memory {
        let grown = Grown::new(dump, &kernel, *size)?;
        add(&grown, grown.ranges().bytes())?;
    }
    print!("{table}");
    Ok(())
}

/// Finds the owners of all pages, and returns how many pages have a row.
fn find(memory: &dyn PhysMemory, threads: usize) -> anyhow::Result<u64> {
    // As the command does, from the start.
    let kernel = Kernel::discover(memory)?;
    let virtual_memory = VirtualMemory::new(kernel.space(), memory);
    let machine = Machine::open(kernel.space(), &virtual_memory, memory.notes())?;
    let balance = balance(&machine, &kernel, memory, Effort { threads, references: References::Never })?;
    for why in &balance.missing {
        eprintln!("missing: {why}");
    }
    Ok(balance.sum().get())
}

/// Returns the most memory that this process had.
fn peak() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib =
        line.and_then(|line| line.trim().strip_suffix(" kB")).context("/proc/self/status has no VmHWM")?;
    Ok(kib.trim().parse::<u64>()? << 10)
}
