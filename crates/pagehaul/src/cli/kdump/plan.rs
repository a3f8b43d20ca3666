//! `pagehaul kdump plan`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use pagehaul_codec::{Codec, Method};
use pagehaul_kdump_plan::{Goal, Machine, Plan, measured_rates};
use pagehaul_kdump_setup::{Config, Facts, Release, Root, Stack};
use pagehaul_kernel::DumpLevel;
use pagehaul_makedumpfile as makedumpfile;
use pagehaul_present::number::parse_bytes;
use pagehaul_render::kdump as draw;

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
    /// Codec and level, as for `capture` [default: zstd:1, or what is configured where that stays (an ELF dump, another program
    /// than pagehaul); for `kdump test`, as configured]
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

fn goal(planned: &Planned, basis: Basis, machine: &Machine<'_>) -> anyhow::Result<Goal> {
    let config = machine.config;
    let best = (DumpLevel::ALL, Method::default_of(Codec::Zstd));
    let configured = makedumpfile::written_by(&config.collector).unwrap_or(best);
    let stays = !machine.has_pagehaul() || config.writes_elf();
    let (level, method) = match basis {
        Basis::Configured => configured,
        Basis::Best if stays => (best.0, configured.1),
        Basis::Best => best,
    };
    let cpus = config.capture_cpus().filter(|_| basis == Basis::Configured);
    let (level, method) = (planned.dump_level.unwrap_or(level), planned.compress.unwrap_or(method));
    let rates = planned.rates.as_deref().map(|path| measured_rates(path, level, method)).transpose()?;
    let capture_cpus = planned.capture_cpus.capture_cpus.or(cpus);
    // The files name a codec, without its level.
    let written = match basis {
        Basis::Best if stays || method == Method::NONE => configured.1,
        Basis::Best => Method::default_of(method.codec()),
        Basis::Configured => configured.1,
    };
    Ok(Goal { level, method, written, capture_cpus, disk: planned.disk, rates })
}

pub(super) fn run(arguments: &PlanArguments) -> anyhow::Result<ExitCode> {
    let plan = make(&arguments.planned, Basis::Best)?;
    arguments.json.print(&plan, draw::plan)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn make(planned: &Planned, basis: Basis) -> anyhow::Result<Plan> {
    let is_described = planned.memory.is_some();
    // The files of another machine are not known.
    let no_files = is_described && planned.root.is_this_machine();
    let root = if no_files { Root::absent() } else { planned.root.open()? };
    let mut facts = Facts::read(&root);
    facts.recipients = super::recipients::of_machine(&root);
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
    facts.refused = super::refused(&config, facts.recipients.is_some());
    let is_here = planned.root.is_this_machine();
    let machine = Machine { root: &root, facts: &facts, stack, config: &config, is_here, is_described };
    Ok(Plan::new(&machine, &goal(planned, basis, &machine)?)?)
}
