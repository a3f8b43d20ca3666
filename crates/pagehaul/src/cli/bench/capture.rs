use std::path::PathBuf;

use clap::Args;
use pagehaul_bench::stages::{Bound, Config, Stages, measure};
use pagehaul_codec::{Codec, Method};
use pagehaul_kernel::DumpLevel;
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, bytes_per_second, count};
use pagehaul_run::Progress;

use crate::cli::options::{Json, Threads};

/// Measure a capture stage by stage, each next to its limit, and what bounds this machine
///
/// Stages: prepare (find the kernel), scan (classify struct pages), read (kept pages), pack (read and compress them), write (pack
/// and write them, until they are on the disk). A limit is measured in the same run, on as many threads: struct pages read once,
/// the file read in order, the codec alone, as many bytes written. Needs room for two dumps in the scratch directory, one after
/// the other. `kdump plan --rates` takes the JSON.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul bench capture /proc/vmcore --scratch /var/crash
  pagehaul bench capture vmcore --json > rates.json")]
pub(crate) struct CaptureArguments {
    /// Memory to capture, as for `capture`
    source: PathBuf,
    /// Pages to exclude, as for `capture`
    #[arg(short, long, value_name = "LEVEL", default_value = "31")]
    dump_level: DumpLevel,
    /// Codec and level, as for `capture`
    #[arg(short, long, value_name = "CODEC[:LEVEL]", default_value_t = Method::default_of(Codec::Zstd))]
    compress: Method,
    #[command(flatten)]
    threads: Threads,
    /// Directory on the disk that dumps go to
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Runs of each measurement; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(arguments: &CaptureArguments) -> anyhow::Result<()> {
    let config = Config {
        source: &arguments.source,
        level: arguments.dump_level,
        method: arguments.compress,
        threads: arguments.threads.count(),
        directory: &arguments.scratch,
        rounds: arguments.rounds.into(),
    };
    let stages = measure(&config, &Progress::default())?;
    arguments.json.print(&stages, text)
}

fn text(stages: &Stages) -> String {
    let threads = if stages.threads == 1 { "1 thread".into() } else { format!("{} threads", stages.threads) };
    let mut out = format!(
        "{}: {} of memory, {} of struct pages, {} pages kept at level {}, {}, {threads}, dump of {}\n",
        stages.source,
        bytes(stages.memory_bytes),
        bytes(stages.struct_page_bytes),
        count(stages.pages),
        stages.level,
        stages.codec,
        bytes(stages.output_bytes)
    );
    let mut table = Table::new(["stage", "s", "limit s", "times", "limit"]);
    table.rows(stages.stages.iter().map(|stage| {
        let number = |number: Option<f64>, decimals| number.map_or("-".into(), |n| format!("{n:.decimals$}"));
        [
            stage.name.to_owned(),
            number(Some(stage.seconds), 3),
            number(stage.limit, 3),
            number(stage.ratio(), 2),
            stage.limit_is.to_owned(),
        ]
    }));
    out += &table.to_string();
    let (bound, faster) = match stages.bound {
        Bound::Scan => ("the scan of struct pages", "more CPUs"),
        Bound::Read => ("reading the kept pages", "a faster source"),
        Bound::Codec => ("compression", "more CPUs or a faster codec"),
        Bound::Disk => ("the disk", "a faster disk, several outputs, or -c auto"),
    };
    out += &format!(
        "whole capture: {:.3} s, predicted from these rates {:.3} s; disk {}\nbound by {bound}: {faster} would help most\n",
        stages.seconds,
        stages.predicted,
        bytes_per_second(stages.disk as u64, 1.0)
    );
    out
}
