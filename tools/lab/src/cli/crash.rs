//! `lab crash`.

use super::mebibytes;
use anyhow::Result;
use lab::{Accelerator, Config, Crash, validate};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct CrashArguments {
    /// Kernel series, see `lab kernels`.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Guest memory.
    #[arg(long, default_value = "640M", value_parser = mebibytes)]
    memory: u64,
    /// CPUs of both kernels.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// CPU model; `max` has 5-level page tables, or on arm64 LPA2 [default: Haswell-noTSX, on arm64 neoverse-n1, on riscv64 rv64].
    #[arg(long)]
    cpu: Option<String>,
    /// Additions to the first kernel's command line.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    append: String,
    /// Memory reserved for the capture kernel.
    #[arg(long, default_value = "256M")]
    crashkernel: String,
    /// Percent of available memory to fill with stamped pages.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=90))]
    fill: u32,
    /// Arguments of a `pagehaul capture` in the capture kernel; may be repeated.
    #[arg(long, allow_hyphen_values = true)]
    capture_args: Vec<String>,
    /// The pagehaul to run instead of building it.
    #[arg(long)]
    pagehaul: Option<PathBuf>,
    /// Time limit of each capture in seconds.
    #[arg(long, default_value_t = 300)]
    time_limit: u64,
    /// How to crash, instead of by SysRq c; mostly implies one CPU, because the capture kernel has to start on the boot CPU.
    #[arg(long, value_parser = validate::triage::names())]
    scenario: Option<String>,
    /// Save images of the memory with QEMU before the crash and while the capture kernel runs: raw, ELF, kdump-compressed.
    #[arg(long)]
    images: bool,
    /// On riscv64, let kexec(8) see all of /proc/iomem: the vmcore lacks the struct pages then.
    #[arg(long)]
    whole_iomem: bool,
    /// How QEMU executes the guest's instructions.
    #[arg(long, value_enum, default_value_t)]
    accel: Accelerator,
}

impl From<CrashArguments> for Config {
    fn from(from: CrashArguments) -> Config {
        let words = |line: &String| line.split_whitespace().map(str::to_owned).collect();
        Config {
            kernel: from.kernel,
            memory_mib: from.memory,
            cpus: from.scenario.as_deref().map_or(from.cpus, validate::triage::cpus),
            scenario: from.scenario,
            cpu: from.cpu,
            accelerator: from.accel,
            append: from.append,
            crashkernel: from.crashkernel,
            fill: from.fill,
            captures: from.capture_args.iter().map(words).collect(),
            pagehaul: from.pagehaul,
            time_limit: from.time_limit,
            images: from.images,
            whole_iomem: from.whole_iomem,
            ..Config::default()
        }
    }
}

/// Crashes a kernel and prints the results.
pub fn crash(arguments: CrashArguments) -> Result<()> {
    print(&lab::crash(&arguments.into())?);
    Ok(())
}

fn print(crash: &Crash) {
    println!("release   {}", crash.release());
    println!("vmcore    {}", crash.vmcore().display());
    println!("console   {}", crash.console().display());
    println!("stamped pages:");
    for filled in &crash.manifest().classes {
        println!("  {:14} {:7} in {} runs", filled.class, filled.count, filled.ranges.len());
    }
    for (class, why) in &crash.manifest().missing {
        println!("  {class:14}       - {why}");
    }
    for dump in crash.dumps() {
        let report = &dump.report;
        let end = match (report.exit_code, report.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or(0)),
        };
        let path = if dump.path.exists() {
            dump.path.display().to_string()
        } else {
            format!("none of {}", report.name)
        };
        println!(
            "dump      {path} ({end}, {:.1} s, {} MiB, peak RSS {} MiB, anonymous {} MiB)",
            report.seconds,
            report.dump_bytes >> 20,
            report.peak_rss_kib >> 10,
            report.peak_anonymous_kib >> 10
        );
    }
}
