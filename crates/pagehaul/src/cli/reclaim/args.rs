use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::options::{Html, Json, LiveTrace, Overwrite, Quiet};

/// Show which tasks stalled in page reclaim, how long and why: record, report, compare kernels and settings
#[derive(Debug, Args)]
pub(crate) struct ReclaimArguments {
    #[command(subcommand)]
    pub(super) command: ReclaimCommand,
}

impl ReclaimArguments {
    /// Whether it prints a report.
    pub(crate) fn is_report(&self) -> bool {
        matches!(self.command, ReclaimCommand::Report(_) | ReclaimCommand::Compare(_))
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum ReclaimCommand {
    Record(RecordArguments),
    Report(ReportArguments),
    Compare(CompareArguments),
    Export(ExportArguments),
}

/// Record page reclaim while a command runs, or until stopped
///
/// Traces in a private tracefs instance, which is removed at the end, after a signal, too. Needs root. The file also
/// holds the kernel's counters before and after each run, against which the report is checked.
///
/// Exit status: that of the command (of the first run that failed); 1 if nothing could be recorded.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul reclaim record -- make -j64
  pagehaul reclaim record --repeat 5 -o before.pht -- ./benchmark
  pagehaul reclaim record --duration 30s -o now.pht")]
pub(super) struct RecordArguments {
    /// File to record to
    #[arg(short, long, default_value = "reclaim.pht")]
    pub(super) output: PathBuf,
    /// Runs of the command, for statistics over them
    #[arg(short, long, value_name = "N", default_value_t = 1, requires = "command")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) repeat: u32,
    #[command(flatten)]
    pub(super) live: LiveTrace,
    /// Clock of the kernel's time stamps; with clocks other than mono, runs cannot be distinguished
    #[arg(long, value_name = "NAME", default_value = "mono")]
    pub(super) clock: String,
    /// Further events to record, SYSTEM:EVENT
    #[arg(short, long, value_name = "EVENT")]
    pub(super) event: Vec<String>,
    #[command(flatten)]
    pub(super) quiet: Quiet,
}

/// Report on recorded reclaim: the command's result, the table of Mel Gorman's reclaim series, stalls, causes
///
/// Reads pagehaul recordings (.pht), trace-cmd's trace.dat (6 and 7), and text as from trace_pipe, `trace-cmd report`
/// or `perf script`; also compressed with gzip. `-` is standard input.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul reclaim report reclaim.pht
  pagehaul reclaim report --html stalls.html reclaim.pht
  trace-cmd report | pagehaul reclaim report -")]
pub(super) struct ReportArguments {
    /// Recorded traces; several are reported one after the other
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) json: Json,
    #[command(flatten)]
    pub(super) html: Html,
}

/// Compare recordings: kernels, settings, runs
///
/// Every figure comes with its change against the first column. Columns of several runs (record --repeat, or several
/// files joined by commas) get a 95 % confidence interval that shows whether the change is significant.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul reclaim compare before.pht after.pht
  pagehaul reclaim compare 6.1=a1.pht,a2.pht,a3.pht 6.12=b1.pht,b2.pht,b3.pht")]
pub(super) struct CompareArguments {
    /// Columns: a recording, or several of the same thing; NAME= gives the column's name
    #[arg(required = true, num_args = 2.., value_name = "[NAME=]FILE[,FILE]")]
    pub(super) columns: Vec<String>,
    #[command(flatten)]
    pub(super) json: Json,
    #[command(flatten)]
    pub(super) html: Html,
}

/// Write the stalls of a recording as a Perfetto trace
///
/// The trace has a track for each task that stalled and for each kswapd. Slices carry order, pages and causes. Opens in
/// ui.perfetto.dev and trace_processor. Times are those of the recording's clock.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul reclaim export reclaim.pht -o reclaim.perfetto-trace")]
pub(super) struct ExportArguments {
    /// Recorded trace
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// File to write
    #[arg(short, long)]
    pub(super) output: PathBuf,
    #[command(flatten)]
    pub(super) overwrite: Overwrite,
}
