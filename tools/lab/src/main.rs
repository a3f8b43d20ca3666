//! Command line of the lab.

mod work;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use lab::{
    Accelerator, Config, Crash, benchmark, capture_kernel, criu, debuginfo, kernels, oracle, power,
    tools::Tools, validate,
};
use std::path::PathBuf;
use std::process::ExitCode;

/// Crashes real kernels in QEMU and brings their memory out.
#[derive(Parser)]
#[command(name = "lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch QEMU and the other host programs. Every other command does so by itself; neither needs root.
    Setup,
    /// List the kernels.
    Kernels,
    /// Fetch CRIU of Debian 13 and say where it is.
    Criu,
    /// Say where a Python is that has drgn.
    Python,
    /// Crash a kernel, capture it, and say where everything is.
    Crash(CrashArguments),
    /// Fetch a kernel's debug symbols.
    Debuginfo {
        /// Kernel series, see `lab kernels`.
        #[arg(long)]
        kernel: String,
    },
    /// Hold pagehaul's dumps of real crashes against the crash, debug symbols, drgn, crash and makedumpfile.
    Validate {
        /// Kernel series, see `lab kernels`; or all.
        #[arg(long, default_value = "6.12")]
        kernel: String,
        /// The pagehaul to prove; by default the release build beside this program.
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Show a dump made in a capture kernel, with pagehaul and drgn.
    Show {
        /// Kernel series, see `lab kernels`.
        #[arg(long, default_value = "6.12")]
        kernel: String,
        /// The pagehaul to use; by default the release build beside this program.
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Run scripts in a guest, with pagehaul and Debian packages in it, and bring files out.
    Run(work::RunArguments),
    /// Measure what pagehaul, makedumpfile and cp do to a capture kernel with little memory and a slow disk.
    CaptureKernel {
        /// Kernel series, see `lab kernels`.
        #[arg(long, default_value = "6.12")]
        kernel: String,
        /// Memory reserved for the capture kernel, one guest for each.
        #[arg(long, default_value = "256M,192M,128M,112M,96M,80M,64M", value_delimiter = ',')]
        crashkernel: Vec<String>,
        /// The pagehaul to run instead of building it.
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Sweep the map size over the real /proc/vmcore, in a capture kernel.
    BenchRead {
        /// Kernel series, see `lab kernels`.
        #[arg(long, default_value = "6.12")]
        kernel: String,
        /// The pagehaul to run instead of building it.
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Cut the power of a capture kernel, kill captures in it, and look at what is left.
    PowerCut {
        /// Kernel series, see `lab kernels`.
        #[arg(long, default_value = "6.12")]
        kernel: String,
        /// The pagehaul that looks; by default the release build beside this program.
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Page reclaim under pressure on several kernels, and how they compare.
    Reclaim(work::ScenarioArguments),
    /// Purges of vmalloc areas freed by many threads.
    Vmalloc(work::ScenarioArguments),
    /// Make a large vmcore for benchmarks.
    DumpGuest {
        /// Kernel series, see `lab kernels`.
        #[arg(long, default_value = "6.12")]
        kernel: String,
        /// Guest memory.
        #[arg(long, default_value = "6G", value_parser = mebibytes)]
        memory: u64,
        /// Directory whose files fill the memory.
        #[arg(long, default_value = "/usr")]
        files: PathBuf,
        /// What executes the guest's instructions.
        #[arg(long, value_enum, default_value_t)]
        accel: Accelerator,
    },
}

#[derive(clap::Args)]
struct CrashArguments {
    /// Kernel series, see `lab kernels`.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Guest memory.
    #[arg(long, default_value = "640M", value_parser = mebibytes)]
    memory: u64,
    /// CPUs of both kernels.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// CPU model: Haswell-noTSX works everywhere, max has 5-level page tables.
    #[arg(long, default_value = "Haswell-noTSX")]
    cpu: String,
    /// Added to the first kernel's command line.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    append: String,
    /// Memory reserved for the capture kernel.
    #[arg(long, default_value = "256M")]
    crashkernel: String,
    /// Percent of available memory to fill with stamped pages.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=90))]
    fill: u32,
    /// Arguments of a `pagehaul capture` in the capture kernel; may be given several times.
    #[arg(long, allow_hyphen_values = true)]
    capture_args: Vec<String>,
    /// The pagehaul to run instead of building it.
    #[arg(long)]
    pagehaul: Option<PathBuf>,
    /// Seconds a run of pagehaul may take.
    #[arg(long, default_value_t = 300)]
    time_limit: u64,
    /// What executes the guest's instructions.
    #[arg(long, value_enum, default_value_t)]
    accel: Accelerator,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("lab: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    match Arguments::parse().command {
        Command::Setup => {
            println!("{}", Tools::get()?.qemu_version()?);
            Ok(())
        }
        Command::Kernels => {
            for series in &kernels::SERIES {
                println!("{:6} {}", series.name, series.suite);
            }
            Ok(())
        }
        Command::Python => {
            println!("{}", oracle::python()?.display());
            Ok(())
        }
        Command::Criu => {
            println!("{}", criu::criu()?.display());
            Ok(())
        }
        Command::Crash(arguments) => {
            print_crash(&lab::crash(&arguments.into())?);
            Ok(())
        }
        Command::Debuginfo { kernel } => {
            println!("{}", debuginfo::get(&kernels::Kernel::get(&kernel)?)?.vmlinux.display());
            Ok(())
        }
        Command::Validate { kernel, pagehaul } => validate::validate(&kernel, &binary(pagehaul)?),
        Command::Show { kernel, pagehaul } => validate::show(&kernel, &binary(pagehaul)?),
        Command::Run(arguments) => work::run(arguments),
        Command::CaptureKernel { kernel, crashkernel, pagehaul } => {
            print!("{}", capture_kernel::table(&kernel, &crashkernel, pagehaul.as_deref())?);
            Ok(())
        }
        Command::BenchRead { kernel, pagehaul } => {
            print!("{}", capture_kernel::bench_read(&kernel, pagehaul.as_deref())?);
            Ok(())
        }
        Command::PowerCut { kernel, pagehaul } => power::validate(&kernel, &binary(pagehaul)?).map(drop),
        Command::Reclaim(arguments) => work::reclaim(&arguments),
        Command::Vmalloc(arguments) => work::vmalloc(&arguments),
        Command::DumpGuest { kernel, memory, files, accel } => {
            let config = benchmark::Config { kernel, memory_mib: memory, files, accelerator: accel };
            println!("{}", benchmark::dump_guest(&config)?.display());
            Ok(())
        }
    }
}

impl From<CrashArguments> for Config {
    fn from(from: CrashArguments) -> Config {
        let words = |line: &String| line.split_whitespace().map(str::to_owned).collect();
        Config {
            kernel: from.kernel,
            memory_mib: from.memory,
            cpus: from.cpus,
            cpu: from.cpu,
            accelerator: from.accel,
            append: from.append,
            crashkernel: from.crashkernel,
            fill: from.fill,
            captures: from.capture_args.iter().map(words).collect(),
            pagehaul: from.pagehaul,
            time_limit: from.time_limit,
            ..Config::default()
        }
    }
}

/// The pagehaul asked for, or the one that was built with this program.
fn binary(asked: Option<PathBuf>) -> Result<PathBuf> {
    let path = match asked {
        Some(path) => path,
        None => std::env::current_exe().context("finding this program")?.with_file_name("pagehaul"),
    };
    anyhow::ensure!(
        path.is_file(),
        "{} is not there: build it, or name another with --pagehaul",
        path.display()
    );
    Ok(path)
}

fn print_crash(crash: &Crash) {
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
        let place = if dump.path.exists() {
            dump.path.display().to_string()
        } else {
            format!("none of {}", report.name)
        };
        println!(
            "dump      {place} ({end}, {:.1} s, {} MiB, peak RSS {} MiB, anonymous {} MiB)",
            report.seconds,
            report.dump_bytes >> 20,
            report.peak_rss_kib >> 10,
            report.peak_anonymous_kib >> 10
        );
    }
}

/// Parses "640M" or "6G".
fn mebibytes(text: &str) -> Result<u64> {
    let number =
        |digits: &str| digits.parse::<u64>().with_context(|| format!("{text} is no amount of memory"));
    match text.split_at_checked(text.len().saturating_sub(1)) {
        Some((digits, "M")) => number(digits),
        Some((digits, "G")) => Ok(number(digits)?.saturating_mul(1024)),
        _ => anyhow::bail!("{text} is no amount of memory: write it as 640M or 6G"),
    }
}
