//! The commands of the lab and their arguments.

mod crash;
mod workload;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use lab::{
    Accelerator, benchmark, capture_kernel, core_handler, criu, debuginfo, kdump_dracut, kdump_faults,
    kdump_measure, kdump_plan, kdump_tools, kdump_upload, kernels, oracle, power, smp, tools::Tools,
    validate,
};
use std::path::PathBuf;

/// Crashes real kernels in QEMU and validates pagehaul's dumps of them.
#[derive(Parser)]
#[command(name = "lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch QEMU and the other host programs. Every other command does so itself; none needs root.
    Setup,
    /// List the kernels.
    Kernels,
    /// Fetch CRIU of Debian 13 and print its path.
    Criu,
    /// Print the path of a makedumpfile: from PATH, or Debian's newest with its libraries.
    Makedumpfile,
    /// Print the path of a Python that has drgn.
    Python,
    /// Crash a kernel, capture it, and print where the results are.
    Crash(crash::CrashArguments),
    /// Fetch a kernel's debug symbols.
    Debuginfo {
        /// Kernel series, see `lab kernels`.
        #[arg(long)]
        kernel: String,
    },
    /// Validate dumps of real crashes against the raw vmcore, debug symbols, drgn, crash and makedumpfile.
    Validate {
        #[command(flatten)]
        on: KernelArguments,
        /// CPU model instead of the architecture's default, see `lab crash`.
        #[arg(long)]
        cpu: Option<String>,
        /// Additions to the first kernel's command line.
        #[arg(long, default_value = "", allow_hyphen_values = true)]
        append: String,
        /// Only compare pagehaul called as makedumpfile with makedumpfile of Debian 12, 13 and sid.
        #[arg(long)]
        command_lines: bool,
    },
    /// Validate `pagehaul triage` with drgn and debug symbols, on filtered, incomplete and damaged dumps, and in scenarios.
    ValidateTriage {
        #[command(flatten)]
        on: KernelArguments,
        /// Scenario to crash the kernel with; may be repeated [default: none, SysRq c only].
        #[arg(long, value_name = "NAME")]
        scenario: Vec<String>,
    },
    /// Validate cores and checkpoints of real programs with gdb, lldb, elfutils and drgn. Needs root or sudo.
    ValidateProcess {
        /// Kernel series of a guest in which they are validated instead, see `lab kernels`.
        #[arg(long, conflicts_with_all = ["mib", "scratch", "record"])]
        kernel: Option<String>,
        /// The pagehaul to validate [default: the release build next to this program].
        #[arg(long)]
        pagehaul: Option<PathBuf>,
        /// Part to run, see oracle/validate_process.py; may be repeated [default: all but `large`; on arm64 a few, and the tests
        /// of cores].
        #[arg(long, value_name = "PART")]
        only: Vec<String>,
        /// Checkpoints and restarts of each program [default: 2; on arm64 1].
        #[arg(long)]
        rounds: Option<u32>,
        /// Memory of the process in the part `large`, in MiB [default: 800].
        #[arg(long)]
        mib: Option<u64>,
        /// Directory for outputs; needs twice that memory.
        #[arg(long, value_name = "DIRECTORY")]
        scratch: Option<PathBuf>,
        /// File to append the passed checks to.
        #[arg(long, value_name = "FILE")]
        record: Option<PathBuf>,
    },
    /// Show a dump made in a capture kernel: pagehaul info, drgn, triage, and what to try next.
    Show {
        /// Kernel series, see `lab kernels`.
        #[arg(long, default_value = "6.12")]
        kernel: String,
        /// The pagehaul to run instead of building it.
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Run scripts in a guest with pagehaul and Debian packages, and collect the files they write.
    Run(workload::RunArguments),
    /// Measure what pagehaul, makedumpfile and cp do to a capture kernel with little memory and a slow disk.
    CaptureKernel {
        /// Kernel series, see `lab kernels`.
        #[arg(long, default_value = "6.12")]
        kernel: String,
        /// Memory reserved for the capture kernel, one guest for each value.
        #[arg(long, default_value = "256M,192M,128M,112M,96M,80M,64M", value_delimiter = ',')]
        crashkernel: Vec<String>,
        /// The pagehaul to run instead of building it.
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Compare what `pagehaul kdump plan` estimates in guests with the dumps that their crashes leave.
    KdumpPlan {
        /// Kernel series, see `lab kernels`.
        #[arg(long, default_value = "6.1,6.12,7.2", value_delimiter = ',')]
        kernel: Vec<String>,
        /// The pagehaul to run instead of building it, with the feature `kdump-setup`.
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Crash guests whose capture kernels have several CPUs, on the boot CPU and on another one.
    Smp {
        /// Memory reserved for the capture kernel.
        #[arg(long, default_value = "256M")]
        crashkernel: String,
        /// The pagehaul to run instead of building it.
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Measure read windows of several sizes on the real /proc/vmcore, in a capture kernel.
    BenchRead {
        /// Kernel series, see `lab kernels`.
        #[arg(long, default_value = "6.12")]
        kernel: String,
        /// The pagehaul to run instead of building it.
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Cut the power of a capture kernel at many moments, kill captures, and validate what the disks hold.
    PowerCut {
        #[command(flatten)]
        on: KernelArguments,
    },
    /// Crash guests with Debian's kdump-tools, with pagehaul-kdump installed, also over ssh or to NFS, and with it removed. Needs root
    /// or sudo.
    KdumpTools {
        /// Debian release: bookworm, trixie or all.
        #[arg(long, default_value = "all")]
        suite: String,
        /// Where the dumps go.
        #[arg(long, value_enum, default_value = "all")]
        target: kdump_tools::Target,
        /// The package pagehaul-kdump, as scripts/packages.sh builds it.
        #[arg(long)]
        deb: PathBuf,
        /// The pagehaul that reads the dumps [default: the release build next to this program].
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Crash a Debian guest with each of some faults in its kdump: what does `pagehaul kdump check` say before, and what is left? Needs
    /// root or sudo.
    KdumpFaults {
        /// Debian release: bookworm or trixie.
        #[arg(long, default_value = "trixie")]
        suite: String,
        /// A fault of kdump-tools/fault.sh, any number of times [default: none, and each].
        #[arg(long)]
        fault: Vec<String>,
        /// The package pagehaul-kdump, as scripts/packages.sh builds it.
        #[arg(long)]
        deb: PathBuf,
        /// The pagehaul that reads the dumps [default: the release build next to this program].
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Crash a guest whose hardware clock is years behind, and send the dump from its capture kernel to the host: to an S3 server with
    /// TLS, and over ssh. Needs root or sudo.
    KdumpUpload {
        /// versitygw, as scripts/versitygw.sh builds it.
        #[arg(long)]
        server: PathBuf,
        /// The pagehaul to run instead of a static build.
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Crash a guest whose kdump is Fedora's or openSUSE's, with pagehaul-kdump in its initramfs. Needs root or sudo.
    KdumpDracut {
        /// Whose kdump.
        #[arg(long, value_enum)]
        distribution: kdump_dracut::Distribution,
        /// Directory with the sources of its scripts.
        #[arg(long)]
        sources: PathBuf,
        /// The .rpm of pagehaul-kdump, as scripts/packages.sh builds it.
        #[arg(long)]
        rpm: PathBuf,
        /// The pagehaul that reads the dump [default: the release build next to this program].
        #[arg(long)]
        pagehaul: Option<PathBuf>,
    },
    /// Crash processes in a Debian 13 guest with systemd-coredump, with pagehaul-core installed and with it removed: what is written, and
    /// how long until the parent sees the process gone. Needs root or sudo.
    CoreHandler {
        /// The package pagehaul-core, as scripts/packages.sh builds it.
        #[arg(long)]
        deb: PathBuf,
        /// Memory of the processes that are measured. The guest has three times as much as the largest, and 2 GiB.
        #[arg(long, default_value = "256M", value_delimiter = ',', value_parser = mebibytes)]
        memory: Vec<u64>,
        /// How often each is measured.
        #[arg(long, default_value_t = 1)]
        rounds: u32,
    },
    /// Measure Debian's kdump from the capture kernel's start to the reboot with pagehaul, makedumpfile and cp. Needs root or sudo.
    KdumpMeasure {
        /// The package pagehaul-kdump, as scripts/packages.sh builds it.
        #[arg(long)]
        deb: PathBuf,
    },
    /// Run the scenario of page reclaim under pressure on several kernels, and compare them.
    Reclaim(workload::ScenarioArguments),
    /// Run the scenario of vmalloc areas purged after many threads freed them.
    Vmalloc(workload::ScenarioArguments),
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
        /// How QEMU executes the guest's instructions.
        #[arg(long, value_enum, default_value_t)]
        accel: Accelerator,
    },
}

/// A kernel, and the pagehaul that runs on the host.
#[derive(clap::Args)]
struct KernelArguments {
    /// Kernel series, see `lab kernels`; `validate` also takes `all`, those of x86_64 and two arm64 guests, a `few` of them, `arm64`
    /// and `riscv64`; `validate-triage` `all`.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// The pagehaul to validate [default: the release build next to this program].
    #[arg(long)]
    pagehaul: Option<PathBuf>,
}

/// Parses the command line and runs the command.
pub fn run() -> Result<()> {
    match Arguments::parse().command {
        Command::Setup => {
            println!("{}", Tools::get()?.qemu_version()?);
            Ok(())
        }
        Command::Kernels => {
            for series in &kernels::SERIES {
                println!("{:14} {}", series.name, series.suite);
            }
            Ok(())
        }
        Command::Python => {
            println!("{}", oracle::python()?.display());
            Ok(())
        }
        Command::Criu => {
            println!("{}", criu::criu(lab::Architecture::X86_64)?.display());
            Ok(())
        }
        Command::Makedumpfile => {
            println!("{}", oracle::makedumpfile()?.display());
            Ok(())
        }
        Command::Crash(arguments) => crash::crash(arguments),
        Command::Debuginfo { kernel } => {
            println!("{}", debuginfo::get(&kernels::Kernel::get(&kernel)?)?.vmlinux.display());
            Ok(())
        }
        Command::Validate { on, cpu, append, command_lines } => {
            let guests = validate::guests(&on.kernel, cpu.as_deref(), &append);
            validate::validate(&guests, &release_build(on.pagehaul)?, command_lines)
        }
        Command::ValidateTriage { on, scenario } => {
            validate::triage::validate(&on.kernel, &release_build(on.pagehaul)?, &scenario)
        }
        Command::ValidateProcess { kernel, pagehaul, only, rounds, mib, scratch, record } => {
            let pagehaul = release_build(pagehaul)?;
            let options = validate::process::Options { parts: only, rounds, mib, scratch, record };
            match kernel {
                Some(kernel) => validate::process_in_guest(&kernel, &pagehaul, &options),
                None => validate::process::validate(&pagehaul, &options),
            }
        }
        Command::Show { kernel, pagehaul } => validate::show(&kernel, pagehaul),
        Command::Run(arguments) => workload::run(arguments),
        Command::CaptureKernel { kernel, crashkernel, pagehaul } => {
            print!("{}", capture_kernel::table(&kernel, &crashkernel, pagehaul.as_deref())?);
            Ok(())
        }
        Command::KdumpPlan { kernel, pagehaul } => {
            print!("{}", kdump_plan::table(&kernel, pagehaul)?);
            Ok(())
        }
        Command::Smp { crashkernel, pagehaul } => {
            print!("{}", smp::table(&crashkernel, pagehaul.as_deref())?);
            Ok(())
        }
        Command::BenchRead { kernel, pagehaul } => {
            print!("{}", capture_kernel::bench_read(&kernel, pagehaul.as_deref())?);
            Ok(())
        }
        Command::PowerCut { on } => power::validate(&on.kernel, &release_build(on.pagehaul)?).map(drop),
        Command::KdumpTools { suite, target, deb, pagehaul } => {
            kdump_tools::validate(&suite, target, &deb, &release_build(pagehaul)?)
        }
        Command::KdumpFaults { suite, fault, deb, pagehaul } => {
            kdump_faults::validate(&suite, &fault, &deb, &release_build(pagehaul)?)
        }
        Command::KdumpDracut { distribution, sources, rpm, pagehaul } => {
            kdump_dracut::validate(distribution, &sources, &rpm, &release_build(pagehaul)?)
        }
        Command::CoreHandler { deb, memory, rounds } => {
            print!("{}", core_handler::validate(&deb, &memory, rounds)?);
            Ok(())
        }
        Command::KdumpMeasure { deb } => {
            print!("{}", kdump_measure::table(&deb)?);
            Ok(())
        }
        Command::KdumpUpload { server, pagehaul } => kdump_upload::validate(&server, pagehaul),
        Command::Reclaim(arguments) => workload::reclaim(&arguments),
        Command::Vmalloc(arguments) => workload::vmalloc(&arguments),
        Command::DumpGuest { kernel, memory, files, accel } => {
            let config = benchmark::Config { kernel, memory_mib: memory, files, accelerator: accel };
            println!("{}", benchmark::dump_guest(&config)?.display());
            Ok(())
        }
    }
}

/// Returns the pagehaul given, or the one built along with this program.
fn release_build(given: Option<PathBuf>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path,
        None => std::env::current_exe().context("finding this program")?.with_file_name("pagehaul"),
    };
    ensure!(path.is_file(), "{} does not exist: build it, or name another with --pagehaul", path.display());
    Ok(path)
}

/// Parses "640M" or "6G" to MiB.
fn mebibytes(text: &str) -> Result<u64> {
    let number = |digits: &str| digits.parse::<u64>().with_context(|| format!("invalid size {text}"));
    match text.split_at_checked(text.len().saturating_sub(1)) {
        Some((digits, "M")) => number(digits),
        Some((digits, "G")) => Ok(number(digits)?.saturating_mul(1024)),
        _ => anyhow::bail!("invalid size {text}: expected MiB or GiB, as in 640M or 6G"),
    }
}
