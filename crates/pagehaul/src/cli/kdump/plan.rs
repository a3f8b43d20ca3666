//! `pagehaul kdump plan`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use pagehaul_bench::disk;
use pagehaul_bench::predict::{self, Limit, PLACE, Prediction, Rates};
use pagehaul_bench::stages::Measured;
use pagehaul_codec::{Codec, Method};
use pagehaul_kdump_setup::plan::{Changes, Reserve, Settings, changes, reserve};
use pagehaul_kdump_setup::{Config, Facts, LivePages, Release, Root, Stack, Target};
use pagehaul_kernel::DumpLevel;
use pagehaul_physmem::PAGE_SIZE;
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, bytes_per_second, count, parse_bytes};
use pagehaul_present::time::seconds;
use serde::{Deserialize, Serialize};

use super::contents::{Dump, Memory, Origin};
use crate::cli::options::{CaptureCpus, Json, RootDirectory};
use crate::makedumpfile;

/// More CPUs than this are not planned: one thread writes all pages.
const MAX_CPUS: u32 = 32;
/// CPUs pay off until the time is within this factor of the shortest.
const NEAR: f64 = 1.10;
/// The codec's part of a CPU's time when pages need not be read (docs/benchmarks/2026-11-21-pack.md: 0.84 to 0.94 with two
/// threads).
const PACK_SHARE: f64 = 0.84;
/// Dump levels of the table: all, without zero pages, without free pages, without free pages and cache, without user pages, least.
const LEVELS: [u8; 6] = [0, 1, 17, 23, 25, 31];
/// What is written to measure a disk: at most this much, for this long.
const DISK_BYTES: u64 = 256 << 20;
const DISK_TIME: Duration = Duration::from_secs(2);
/// Bytes per second of a disk that was neither given nor measured.
const ASSUMED_DISK: u64 = 200_000_000;

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

/// What is planned.
#[derive(Debug, Clone, Copy)]
struct Goal {
    level: DumpLevel,
    method: Method,
    capture_cpus: Option<u32>,
}

impl Goal {
    fn new(planned: &Planned, basis: Basis, config: &Config) -> Self {
        let configured = |of: &Config| makedumpfile::written_by(&of.collector);
        let (level, method) = Some(config)
            .filter(|_| basis == Basis::Configured)
            .and_then(configured)
            .unwrap_or((DumpLevel::ALL, Method::default_of(Codec::Zstd)));
        let cpus = config.capture_cpus().filter(|_| basis == Basis::Configured);
        Self {
            level: planned.dump_level.unwrap_or(level),
            method: planned.compress.unwrap_or(method),
            capture_cpus: planned.capture_cpus.capture_cpus.or(cpus),
        }
    }
}

pub(super) fn run(arguments: &PlanArguments) -> anyhow::Result<ExitCode> {
    let plan = make(&arguments.planned, Basis::Best)?;
    arguments.json.print(&plan, text)?;
    Ok(ExitCode::SUCCESS)
}

/// A plan.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    release: String,
    kdump: &'static str,
    memory: u64,
    cpus: u32,
    codec: String,
    /// The planned dump level.
    pub(super) level: u8,
    found: Memory,
    dumps: Vec<Dump>,
    /// Bytes per second of the disk.
    disk: u64,
    disk_rate: Origin,
    times: Vec<Prediction>,
    /// CPUs of the capture kernel.
    pub(super) capture_cpus: u32,
    /// Size of the planned dump.
    pub(super) dump_bytes: u64,
    /// Seconds that the capture takes.
    pub(super) seconds: f64,
    reserve: Reserve,
    reasons: Vec<String>,
    pub(super) changes: Changes,
}

pub(super) fn make(planned: &Planned, basis: Basis) -> anyhow::Result<Plan> {
    let described = planned.memory.is_some() && planned.root.is_this_machine();
    // The files of another machine are not known.
    let root = if described { Root::absent() } else { planned.root.open()? };
    let mut facts = Facts::read(&root);
    if described {
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
    }
    let stack = planned.distribution.map(Distribution::stack).or(facts.stack()).unwrap_or(Stack::KdumpTools);
    let config = Config::of(stack, &root, &facts.release);
    let goal = Goal::new(planned, basis, &config);
    let mut reasons = Vec::new();
    // Before memory is counted: what this frees ends in per-CPU lists.
    let (disk, disk_rate) = disk(planned, &config, &mut reasons);
    let found = memory(planned, goal.method, &root, &facts)?;
    let measured = planned.rates.as_deref().map(|path| measured(path, &goal)).transpose()?;
    let level = goal.level.bits();
    let dump = found.dump(level);
    let most = facts.cpus.clamp(1, MAX_CPUS);
    let (rates, start) = match measured {
        // What is kept is this machine's.
        Some(Measured { rates: of, start }) => {
            (Rates { scan: of.scan, pack: of.pack, ..rates(&found, &dump) }, start)
        }
        None => (rates(&found, &dump), found.start),
    };
    let times: Vec<Prediction> = candidates(most, goal.capture_cpus)
        .map(|cpus| {
            let of = predict::predict(&rates, found.bytes(), cpus, disk);
            Prediction { seconds: of.seconds + start, ..of }
        })
        .collect();
    let chosen = choose(&times, goal.capture_cpus, most, &mut reasons).context("no CPUs to plan for")?;
    let user_excluded = level & 8 != 0;
    let reserve = reserve(stack, facts.memory, chosen.cpus, &facts.release, facts.has_cma, user_excluded);
    let is_pagehaul = described || facts.collector.as_ref().is_some_and(|collector| collector.is_pagehaul);
    if !is_pagehaul {
        reasons.push(
            "the configured codec stays: install pagehaul-kdump first, makedumpfile may lack this one and would not compress"
                .into(),
        );
    }
    let wanted = Settings {
        crashkernel: reserve.parameters.clone(),
        cpus: chosen.cpus,
        level,
        codec: if is_pagehaul { option(goal.method.codec()) } else { None },
    };
    let changes = changes(&root, &facts, &config, &wanted);
    Ok(Plan {
        release: facts.release.0.clone(),
        kdump: stack.name(),
        memory: facts.memory,
        cpus: facts.cpus,
        codec: goal.method.to_string(),
        level,
        dumps: LEVELS.iter().filter(|of| **of != level).chain([&level]).map(|of| found.dump(*of)).collect(),
        found,
        disk,
        disk_rate,
        capture_cpus: chosen.cpus,
        dump_bytes: dump.bytes,
        seconds: chosen.seconds,
        times,
        reserve,
        reasons,
        changes,
    })
}

fn memory(planned: &Planned, method: Method, root: &Root, facts: &Facts) -> anyhow::Result<Memory> {
    if let Some(bytes) = planned.memory {
        return Ok(Memory::assumed(
            bytes,
            "what memory is used for is assumed: the machine is described".into(),
        ));
    }
    if !planned.root.is_this_machine() {
        return Ok(Memory::assumed(
            facts.memory,
            "what memory is used for is assumed: files hold no memory".into(),
        ));
    }
    match LivePages::read(root) {
        Ok(live) => Memory::of_running_kernel(root, live, method),
        Err(error) => {
            Ok(Memory::assumed(facts.memory, format!("what memory is used for is assumed: {error}")))
        }
    }
}

fn rates(found: &Memory, dump: &Dump) -> Rates {
    let kept = dump.pages as f64 * PAGE_SIZE as f64;
    Rates {
        level: dump.level,
        scan: found.scan,
        pack: kept / (dump.cpu_seconds / PACK_SHARE + found.read * dump.pages as f64).max(1e-9),
        place: PLACE,
        ratio: kept / dump.stored.max(1.0),
        kept: kept / found.bytes().max(1) as f64,
    }
}

/// Reads what `bench capture --json` printed, and refuses rates of other pages or of another codec.
fn measured(path: &Path, goal: &Goal) -> anyhow::Result<Measured> {
    #[derive(Deserialize)]
    struct Printed {
        codec: String,
        #[serde(flatten)]
        measured: Measured,
    }
    let name = path.display();
    let text = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    let Printed { codec, measured } = serde_json::from_slice(&text)
        .with_context(|| format!("{name} is not what `pagehaul bench capture --json` prints"))?;
    let Measured { rates, start } = &measured;
    anyhow::ensure!(
        rates.level == goal.level.bits() && codec == goal.method.to_string(),
        "{name} has rates of level {} with {codec}, and the plan is for level {} with {}: measure with the same",
        rates.level,
        goal.level.bits(),
        goal.method
    );
    let positive = |rate: f64| rate.is_finite() && rate > 0.0;
    anyhow::ensure!(
        positive(rates.scan) && positive(rates.pack) && start.is_finite() && *start >= 0.0,
        "{name} has rates that no machine has: measure again"
    );
    Ok(measured)
}

/// Numbers of CPUs to predict for: powers of two, the most, and the wanted one.
fn candidates(most: u32, wanted: Option<u32>) -> impl Iterator<Item = u32> {
    let mut all: Vec<u32> = (0..32).map(|shift| 1 << shift).take_while(|cpus| *cpus < most).collect();
    all.push(most);
    all.extend(wanted);
    all.sort_unstable();
    all.dedup();
    all.into_iter()
}

/// The fewest CPUs that are about as fast as all.
fn choose(
    times: &[Prediction],
    wanted: Option<u32>,
    most: u32,
    reasons: &mut Vec<String>,
) -> Option<Prediction> {
    if let Some(wanted) = wanted {
        return times.iter().find(|time| time.cpus == wanted).copied();
    }
    let best =
        times.iter().filter(|time| time.cpus <= most).map(|time| time.seconds).fold(f64::INFINITY, f64::min);
    let chosen =
        times.iter().find(|time| time.seconds <= best * NEAR || time.seconds <= best + 1.0).copied()?;
    reasons.push(if chosen.cpus == most {
        format!("{most} CPUs in the capture kernel: each one makes the capture faster")
    } else {
        format!(
            "{} in the capture kernel: more would save {} of {}",
            cpus(chosen.cpus),
            seconds(chosen.seconds - best),
            seconds(chosen.seconds)
        )
    });
    Some(chosen)
}

fn cpus(count: u32) -> String {
    if count == 1 { "one CPU".into() } else { format!("{count} CPUs") }
}

/// makedumpfile's option of a codec.
fn option(codec: Codec) -> Option<&'static str> {
    match codec {
        Codec::None => None,
        Codec::Zlib => Some("-c"),
        Codec::Lzo => Some("-l"),
        Codec::Snappy => Some("-p"),
        Codec::Zstd => Some("-z"),
    }
}

/// The rate of the disk: given, measured, or assumed.
fn disk(planned: &Planned, config: &Config, reasons: &mut Vec<String>) -> (u64, Origin) {
    if let Some(rate) = planned.disk {
        return (rate.max(1), Origin::Measured);
    }
    let described = planned.memory.is_some() || !planned.root.is_this_machine();
    match &config.target {
        Target::Directory(path) if !described => match disk_rate(path) {
            Ok(rate) => return (rate, Origin::Measured),
            Err(error) => reasons.push(format!("the disk's rate is assumed: {error}")),
        },
        _ => reasons.push("the rate of the target is assumed: give --disk".into()),
    }
    (ASSUMED_DISK, Origin::Assumed)
}

/// Measures how many bytes per second the disk of a directory takes.
pub(super) fn disk_rate(directory: &Path) -> Result<u64, pagehaul_bench::BenchError> {
    Ok((disk::write(directory, DISK_BYTES, DISK_TIME)?.rate() as u64).max(1))
}

fn text(plan: &Plan) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_text(&mut out, plan);
    out
}

fn write_text(out: &mut String, plan: &Plan) -> std::fmt::Result {
    writeln!(out, "Linux {}, {}, {}, {}", plan.release, bytes(plan.memory), cpus(plan.cpus), plan.kdump)?;
    let mut table = Table::new(["pages", "count", "", "zero", "stored", "packed by one CPU"]);
    for class in &plan.found.classes {
        let origin = if class.contents == Origin::Assumed { " (assumed)" } else { "" };
        table.row([
            class.name.to_owned(),
            count(class.pages),
            bytes(class.pages * PAGE_SIZE as u64),
            format!("{:.0} %", class.zero * 100.0),
            format!("{:.0} bytes{origin}", class.stored),
            bytes_per_second(PAGE_SIZE as u64, class.microseconds / 1e6),
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
