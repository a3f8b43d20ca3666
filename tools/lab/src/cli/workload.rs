//! `lab run`, `lab reclaim`, `lab vmalloc`: the commands that run workloads.

use super::{mebibytes, release_build};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use lab::workload::{self, Config, Step, WorkloadReport};
use lab::{cache, scenarios};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct RunArguments {
    /// Kernel series, see `lab kernels`.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Guest memory.
    #[arg(long, default_value = "768M", value_parser = mebibytes)]
    memory: u64,
    /// CPUs.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Size of the scratch disk, /scratch in the guest.
    #[arg(long, default_value = "4G", value_parser = mebibytes)]
    scratch: u64,
    /// Size of the swap disk, $SWAP in the guest; 0M for none.
    #[arg(long, default_value = "512M", value_parser = mebibytes)]
    swap: u64,
    /// Additions to the kernel's command line.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    append: String,
    /// Debian package to install in the guest, with its dependencies; may be repeated.
    #[arg(long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// File to copy into the guest, as HOST:GUEST; may be repeated.
    #[arg(long = "file", value_name = "HOST:GUEST", value_parser = pair)]
    files: Vec<(PathBuf, String)>,
    /// The pagehaul to run in the guest instead of building it.
    #[arg(long)]
    pagehaul: Option<PathBuf>,
    /// Time limit of each script in seconds.
    #[arg(long, default_value_t = 600)]
    time_limit: u64,
    /// Directory for what the scripts write to /out [default: one in the cache].
    #[arg(long)]
    out: Option<PathBuf>,
    /// bash scripts, run one after the other.
    #[arg(required = true)]
    scripts: Vec<PathBuf>,
}

#[derive(Args)]
pub struct ScenarioArguments {
    /// Kernel series, see `lab kernels`; or all that the scenario supports.
    #[arg(long, default_value = "all")]
    kernel: String,
    /// The pagehaul that reports [default: the release build next to this program].
    #[arg(long)]
    pagehaul: Option<PathBuf>,
    /// The static pagehaul to run in the guest instead of building it.
    #[arg(long)]
    guest_pagehaul: Option<PathBuf>,
    /// Reuse results of earlier runs from the cache; run only kernels without results.
    #[arg(long)]
    earlier: bool,
    /// File to write the report to instead of standard output.
    #[arg(long)]
    out: Option<PathBuf>,
}

impl ScenarioArguments {
    fn runs(&self) -> scenarios::Runs {
        scenarios::Runs { guest_pagehaul: self.guest_pagehaul.clone(), earlier: self.earlier }
    }

    fn kernels<'a>(&'a self, all: &'a [&'a str]) -> Vec<&'a str> {
        if self.kernel == "all" { all.to_vec() } else { vec![&self.kernel] }
    }

    fn write(&self, report: &str) -> Result<()> {
        match &self.out {
            Some(path) => std::fs::write(path, report).with_context(|| path.display().to_string()),
            None => {
                print!("{report}");
                Ok(())
            }
        }
    }
}

/// Runs the scenario of page reclaim.
pub fn reclaim(from: &ScenarioArguments) -> Result<()> {
    let pagehaul = release_build(from.pagehaul.clone())?;
    let kernels = from.kernels(&scenarios::RECLAIM);
    let (report, unequal) = scenarios::reclaim(&kernels, &pagehaul, &from.runs())?;
    from.write(&report)?;
    ensure!(unequal == 0, "{unequal} totals of pages differ from /proc/vmstat: see the report");
    Ok(())
}

/// Runs the scenario of vmalloc.
pub fn vmalloc(from: &ScenarioArguments) -> Result<()> {
    from.write(&scenarios::vmalloc(&from.kernels(&scenarios::VMALLOC), &from.runs())?)
}

/// Runs scripts in a guest, and prints how they ended.
pub fn run(from: RunArguments) -> Result<()> {
    let steps = from.scripts.iter().map(|path| step(path, from.time_limit)).collect::<Result<_>>()?;
    let config = Config {
        kernel: from.kernel,
        memory_mib: from.memory,
        cpus: from.cpus,
        scratch_mib: from.scratch,
        swap_mib: from.swap,
        append: from.append,
        packages: from.packages,
        files: from.files,
        steps,
        pagehaul: from.pagehaul,
    };
    let out = match from.out {
        Some(out) => out,
        None => {
            cache::directory()?.join("workloads").join(format!("{}-{}", config.kernel, config.steps[0].name))
        }
    };
    let report = workload::run(&config, &out)?;
    print_report(&report, &out);
    let failed: Vec<&str> =
        report.steps.iter().filter(|step| step.exit_code != Some(0)).map(|step| step.name.as_str()).collect();
    if failed.is_empty() { Ok(()) } else { bail!("{} failed", failed.join(", ")) }
}

fn step(path: &Path, time_limit: u64) -> Result<Step> {
    let script = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let name = path.file_stem().with_context(|| format!("{} has no name", path.display()))?;
    Ok(Step { name: name.to_string_lossy().into_owned(), script, time_limit })
}

fn print_report(report: &WorkloadReport, out: &Path) {
    println!("release   {}", report.release);
    println!("results   {}", out.display());
    for step in &report.steps {
        let end = match (step.exit_code, step.timed_out) {
            (_, true) => "killed: time limit".to_owned(),
            (Some(code), _) => format!("exit code {code}"),
            (None, _) => format!("signal {}", step.signal.unwrap_or(0)),
        };
        println!(
            "step      {} ({end}, {:.1} s, user {:.1} s, system {:.1} s)",
            step.name, step.seconds, step.user_seconds, step.system_seconds
        );
    }
}

fn pair(text: &str) -> Result<(PathBuf, String)> {
    let (host, guest) = text.split_once(':').with_context(|| format!("{text} is not HOST:GUEST"))?;
    Ok((host.into(), guest.to_owned()))
}
