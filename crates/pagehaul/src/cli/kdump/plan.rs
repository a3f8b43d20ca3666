//! `pagehaul kdump plan`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use pagehaul_bench::predict::Limit;
use pagehaul_codec::{Codec, Method};
use pagehaul_kdump_plan::{Goal, Machine, Origin, Plan, measured_rates};
use pagehaul_kdump_setup::plan::Changes;
use pagehaul_kdump_setup::{Config, Facts, Release, Root, Stack};
use pagehaul_kernel::DumpLevel;
use pagehaul_makedumpfile as makedumpfile;
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, bytes_per_second, count, parse_bytes};
use pagehaul_present::time::seconds;

use crate::cli::options::{CaptureCpus, Json, RootDirectory};

/// Plan the kdump set-up of this machine or of one that is described
///
/// Estimates how large a dump is at each level (from /proc/kpageflags, and a sample of pages read through /proc/kcore), how long
/// the capture takes (from the rates that `bench capture` measures), how many CPUs of the capture kernel pay off, and how much
/// memory to reserve for it. Prints the lines of the
/// distribution's files that follow, which `kdump apply` writes. Changes nothing, but measures the disk of a local target by a
/// temporary file of at most 256 MiB, unless --disk is given. Needs root for this machine's pages.
///
/// The estimate is of memory as it is now: page cache, user and free memory change by gigabytes in minutes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul kdump plan
  pagehaul kdump plan -d 17 --json
  pagehaul kdump plan --memory 4T --cpus 256 --disk 2G --distribution fedora")]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    pub(super) planned: Planned,
    #[command(flatten)]
    json: Json,
}

/// What is planned, and for which machine.
#[derive(Debug, Args)]
pub(crate) struct Planned {
    /// Pages to exclude, as for `capture` [default: 31; for `kdump test`, as configured]
    #[arg(short, long, value_name = "LEVEL")]
    dump_level: Option<DumpLevel>,
    /// Codec and level, as for `capture` [default: zstd:1; for `kdump test`, as configured]
    #[arg(short, long, value_name = "CODEC[:LEVEL]")]
    compress: Option<Method>,
    #[command(flatten)]
    capture_cpus: CaptureCpus,
    /// Bytes per second that the disk or network takes [default: measured for a local target, else 200 MB/s]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    disk: Option<u64>,
    /// Rates of a capture, as `bench capture --json` measured them: best in the capture kernel itself, with the same level and
    /// codec [default: measured on a sample of this machine's memory]
    #[arg(long, value_name = "FILE")]
    rates: Option<PathBuf>,
    /// RAM of a machine that is described; what it is used for is assumed
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// CPUs of a machine that is described
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8192))]
    cpus: Option<u32>,
    /// Kernel release of a machine that is described
    #[arg(long, value_name = "RELEASE")]
    kernel: Option<String>,
    /// Distribution [default: the one whose kdump is installed, or debian]
    #[arg(long, value_enum)]
    distribution: Option<Distribution>,
    #[command(flatten)]
    pub(super) root: RootDirectory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Distribution {
    /// kdump-tools of Debian and Ubuntu
    Debian,
    /// kdump-utils of Fedora and RHEL
    Fedora,
    /// kdump of openSUSE and SLES
    Suse,
}

impl Distribution {
    fn stack(self) -> Stack {
        match self {
            Self::Debian => Stack::KdumpTools,
            Self::Fedora => Stack::KdumpUtils,
            Self::Suse => Stack::Suse,
        }
    }
}

/// What a plan takes where no option says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// The best: level 31 with zstd, on as many CPUs as pay off.
    Best,
    /// What the next crash does, by the distribution's files.
    Configured,
}

fn goal(planned: &Planned, basis: Basis, config: &Config) -> anyhow::Result<Goal> {
    let configured = |of: &Config| makedumpfile::written_by(&of.collector);
    let (level, method) = Some(config)
        .filter(|_| basis == Basis::Configured)
        .and_then(configured)
        .unwrap_or((DumpLevel::ALL, Method::default_of(Codec::Zstd)));
    let cpus = config.capture_cpus().filter(|_| basis == Basis::Configured);
    let (level, method) = (planned.dump_level.unwrap_or(level), planned.compress.unwrap_or(method));
    let rates = planned.rates.as_deref().map(|path| measured_rates(path, level, method)).transpose()?;
    let capture_cpus = planned.capture_cpus.capture_cpus.or(cpus);
    Ok(Goal { level, method, capture_cpus, disk: planned.disk, rates })
}

pub(super) fn run(arguments: &PlanArguments) -> anyhow::Result<ExitCode> {
    let plan = make(&arguments.planned, Basis::Best)?;
    arguments.json.print(&plan, text)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn make(planned: &Planned, basis: Basis) -> anyhow::Result<Plan> {
    let is_described = planned.memory.is_some();
    // The files of another machine are not known.
    let no_files = is_described && planned.root.is_this_machine();
    let root = if no_files { Root::absent() } else { planned.root.open()? };
    let mut facts = Facts::read(&root);
    if no_files {
        facts.release = Facts::read(&planned.root.open()?).release;
    }
    if let Some(release) = &planned.kernel {
        facts.release = Release(release.clone());
    }
    if let Some(memory) = planned.memory {
        facts.memory = memory;
    }
    if let Some(cpus) = planned.cpus {
        facts.cpus = cpus;
    } else if facts.cpus == 0 {
        tell!("pagehaul: the number of CPUs is not known, and one is assumed; give --cpus");
        facts.cpus = 1;
    }
    let stack = planned.distribution.map(Distribution::stack).or(facts.stack()).unwrap_or(Stack::KdumpTools);
    let config = Config::of(stack, &root, &facts.release);
    let goal = goal(planned, basis, &config)?;
    let is_here = planned.root.is_this_machine();
    let machine = Machine { root: &root, facts: &facts, stack, config: &config, is_here, is_described };
    Ok(Plan::new(&machine, &goal)?)
}

fn text(plan: &Plan) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_text(&mut out, plan);
    out
}

fn cpus(count: u32) -> String {
    if count == 1 { "one CPU".into() } else { format!("{count} CPUs") }
}

fn write_text(out: &mut String, plan: &Plan) -> std::fmt::Result {
    writeln!(out, "Linux {}, {}, {}, {}", plan.release, bytes(plan.memory), cpus(plan.cpus), plan.kdump)?;
    let mut table = Table::new(["pages", "count", "", "zero", "stored", "packed by one CPU"]);
    let page_size = plan.found.page_size;
    for class in &plan.found.classes {
        let origin = if class.contents == Origin::Assumed { " (assumed)" } else { "" };
        table.row([
            class.name.to_owned(),
            count(class.pages),
            bytes(page_size.bytes_of(class.pages)),
            format!("{:.0} %", class.zero * 100.0),
            format!("{:.0} bytes{origin}", class.stored),
            bytes_per_second(page_size.bytes() as u64, class.microseconds / 1e6),
        ]);
    }
    write!(out, "\n{table}")?;
    let mut table = Table::new(["level", "pages", "dump", "least", "most"]);
    for dump in &plan.dumps {
        let sizes = [dump.bytes, dump.least, dump.most].map(bytes);
        table.row([vec![dump.level.to_string(), count(dump.pages)], sizes.to_vec()].concat());
    }
    write!(out, "\nSize with {}:\n{table}", plan.codec)?;
    let assumed = if plan.disk_rate == Origin::Assumed { " (assumed)" } else { "" };
    writeln!(out, "\nTime at level {}, disk {}{assumed}:", plan.level, bytes_per_second(plan.disk, 1.0))?;
    let mut table = Table::new(["CPUs", "time", "limited by"]);
    for time in &plan.times {
        let limit = match time.limit {
            Limit::Cpus => "CPUs",
            Limit::Disk => "disk",
            Limit::Writer => "the writing thread",
        };
        table.row([time.cpus.to_string(), seconds(time.seconds), limit.to_owned()]);
    }
    write!(out, "{table}")?;
    writeln!(
        out,
        "\nPlan: a dump of {} in {}, {} in the capture kernel, {}",
        bytes(plan.dump_bytes),
        seconds(plan.seconds),
        cpus(plan.capture_cpus),
        plan.reserve.parameters.join(" ")
    )?;
    for reason in plan.reasons.iter().chain(&plan.reserve.reasons).chain(&plan.found.notes) {
        writeln!(out, "  - {reason}")?;
    }
    if let Some(alternative) = &plan.reserve.alternative {
        writeln!(out, "  or {}", alternative.join(" "))?;
    }
    write_changes(out, &plan.changes)
}

/// The lines of each file, and the commands to run afterwards.
pub(super) fn write_changes(out: &mut String, changes: &Changes) -> std::fmt::Result {
    if changes.files.is_empty() && changes.by_hand.is_empty() {
        return writeln!(out, "\nThe files are as planned.");
    }
    for change in &changes.files {
        writeln!(out, "\n{}  ({})", change.path.display(), change.why)?;
        for line in &change.lines {
            writeln!(out, "  {line}")?;
        }
    }
    for left in &changes.by_hand {
        writeln!(out, "\n{}  ({}): not changed, {}", left.path.display(), left.why, left.reason)?;
        writeln!(out, "  add by hand:  {}", left.line)?;
    }
    writeln!(out, "\nthen")?;
    for command in &changes.commands {
        writeln!(out, "  # {command}")?;
    }
    Ok(())
}
