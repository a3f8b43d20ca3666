//! Validates cores and checkpoints of live processes in a guest, with a kernel of the lab: `oracle/validate_process.py`, as on this
//! machine.

use super::process::{Options, pause};
use super::process_report::Report;
use crate::build::ProcessPrograms;
use crate::kernels::Kernel;
use crate::tools::Tools;
use crate::workload::{self, Config, Step};
use crate::{Architecture, build, cache, criu, modules};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The guest has Debian 12 as the lab's workloads have it. lldb and drgn are left out: they read files, on any kernel alike.
const PACKAGES: [&str; 6] = ["gdb", "elfutils", "zstd", "python3", "mount", "kmod"];
/// For all parts.
const SERVERS: [&str; 2] = ["redis-server", "postgresql-15"];
/// The parts that an arm64 guest runs unless others are named. The instructions of real servers are translated, and take too long.
const ARM64_PARTS: [&str; 8] =
    ["huge", "threads", "events", "family", "writer", "running", "generations", "hugetlb"];
/// Modules that CRIU needs: without nf_tables CRIU 4.1 saves nothing, and the others are how it asks for sockets.
const MODULES: [&str; 10] = [
    "tun",
    "veth",
    "nf_tables",
    "unix_diag",
    "inet_diag",
    "tcp_diag",
    "udp_diag",
    "raw_diag",
    "netlink_diag",
    "af_packet_diag",
];
const PREPARE: &str = include_str!("../../process-guest/prepare.sh");
const REAPER: &str = include_str!("../../process-guest/reaper.py");
/// What an emulated machine needs, which is some 10 times slower.
const FOR_SLOWNESS: &str = "--deadline 240 --moments 10";
const ROUNDS: u32 = 2;
/// Rounds on arm64.
const ARM64_ROUNDS: u32 = 1;
/// Redis, postgres and a process of 200 MiB, with their cores and images in the page cache.
const MEMORY_MIB: u64 = 3072;
const SCRATCH_MIB: u64 = 6144;

/// The programs of a guest, and what it runs by default.
struct Programs {
    pagehaul: PathBuf,
    subject: PathBuf,
    clocked: PathBuf,
    packages: Vec<String>,
    parts: Vec<String>,
    rounds: u32,
}

impl Programs {
    /// `pagehaul` is that of this machine.
    fn new(architecture: Architecture, pagehaul: &Path) -> Result<Self> {
        let packages = |more: &[&str]| PACKAGES.iter().chain(more).map(|&name| name.to_owned()).collect();
        match architecture {
            Architecture::X86_64 => Ok(Self {
                pagehaul: pagehaul.to_owned(),
                subject: build::example("subject")?,
                clocked: build::example("clocked")?,
                packages: packages(&SERVERS),
                parts: Vec::new(),
                rounds: ROUNDS,
            }),
            Architecture::Arm64 => {
                let ProcessPrograms { pagehaul, subject, clocked } = build::process_programs()?;
                let (packages, parts) = (packages(&[]), ARM64_PARTS.map(str::to_owned).to_vec());
                Ok(Self { pagehaul, subject, clocked, packages, parts, rounds: ARM64_ROUNDS })
            }
            Architecture::Riscv64 => bail!("pagehaul saves no processes of riscv64"),
        }
    }
}

/// Validates `pagehaul` on real programs in a guest: on x86_64 with all parts, on arm64 with the most important ones, unless some are
/// named.
pub fn validate(kernel: &str, pagehaul: &Path, options: &Options) -> Result<()> {
    let series = Kernel::get(kernel)?;
    let programs = Programs::new(series.architecture, pagehaul)?;
    let parts = if options.parts.is_empty() { &programs.parts } else { &options.parts };
    let out = cache::directory()?.join("workloads").join(format!("process-{kernel}"));
    let draft = tempfile::tempdir().context("making a directory for the guest's files")?;
    let rounds = options.rounds.unwrap_or(programs.rounds);
    let config = Config {
        kernel: kernel.to_owned(),
        memory_mib: MEMORY_MIB,
        scratch_mib: SCRATCH_MIB,
        swap_mib: 0,
        packages: programs.packages.clone(),
        files: files(&series, &programs, draft.path())?,
        steps: vec![Step {
            name: "process".into(),
            script: script(parts, rounds),
            time_limit: time_limit(rounds),
        }],
        pagehaul: Some(programs.pagehaul.clone()),
        ..Config::default()
    };
    let ended = workload::run(&config, &out)?;
    println!("results: {}", out.display());
    let path = out.join("report.json");
    let report = Report::read(&fs::read_to_string(&path).with_context(|| path.display().to_string())?)
        .with_context(|| path.display().to_string())?;
    print!("{report}");
    report.check(parts)?;
    match ended.steps.first() {
        Some(step) if step.timed_out => bail!("the guest had no time left after {:.0} s", step.seconds),
        Some(step) if step.exit_code != Some(0) => bail!("validate_process.py failed: see process.stdout"),
        _ => Ok(()),
    }
}

/// Seconds. All parts take 15 to 25 minutes with two rounds, on a loaded machine more.
fn time_limit(rounds: u32) -> u64 {
    3600 + 400 * u64::from(rounds)
}

/// The script of the guest. What is found goes to the console as well.
fn script(parts: &[String], rounds: u32) -> String {
    let only = if parts.is_empty() { String::new() } else { format!(" --only {}", parts.join(" ")) };
    format!(
        "set -euo pipefail\n{PREPARE}\
         python3 -B /test/reaper.py python3 -B /test/oracle/validate_process.py /usr/local/bin/pagehaul /test/subject \
         --clocked /test/clocked --pause /test/pause.py --criu /test/criu/criu --without lldb drgn \
         --scratch /scratch/work --report /out/report.json {FOR_SLOWNESS} --rounds {rounds}{only} 2>&1 \
         | tee >(sed -u 's/^/\\nPHLAB process /' > /dev/console)\n"
    )
}

/// The files of the guest, of which some are made in `draft`.
fn files(kernel: &Kernel, programs: &Programs, draft: &Path) -> Result<Vec<(PathBuf, String)>> {
    let reaper = draft.join("reaper.py");
    fs::write(&reaper, REAPER).with_context(|| reaper.display().to_string())?;
    let mut files = vec![
        (programs.subject.clone(), "/test/subject".to_owned()),
        (programs.clocked.clone(), "/test/clocked".to_owned()),
        (pause(), "/test/pause.py".to_owned()),
        (reaper, "/test/reaper.py".to_owned()),
    ];
    files.extend(criu::files(kernel.architecture, "/test/criu")?);
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle");
    files.push((oracle.join("validate_process.py"), "/test/oracle/validate_process.py".to_owned()));
    for directory in ["process", "process/test_programs"] {
        files.extend(scripts(&oracle, directory)?);
    }
    let modules = modules::load_order(kernel, &Tools::get()?, &MODULES)?;
    for (number, module) in modules.into_iter().enumerate() {
        let path = draft.join(&module.name);
        fs::write(&path, &module.content).with_context(|| path.display().to_string())?;
        files.push((path, format!("/test/modules/{number:02}-{}.ko", module.name)));
    }
    Ok(files)
}

/// The Python files of a directory of the oracle.
fn scripts(oracle: &Path, directory: &str) -> Result<Vec<(PathBuf, String)>> {
    let from = oracle.join(directory);
    let mut files = Vec::new();
    for entry in fs::read_dir(&from).with_context(|| from.display().to_string())? {
        let path = entry.with_context(|| from.display().to_string())?.path();
        if path.extension().is_some_and(|extension| extension == "py") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((path, format!("/test/oracle/{directory}/{name}")));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_the_checks_are_in_the_guest() {
        let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle");
        let names: Vec<String> = ["process", "process/test_programs"]
            .iter()
            .flat_map(|directory| scripts(&oracle, directory).unwrap())
            .map(|(_, name)| name)
            .collect();
        for name in ["process/support.py", "process/test_programs/answers.py"] {
            assert!(names.contains(&format!("/test/oracle/{name}")), "{names:?}");
        }
    }

    #[test]
    fn the_script_names_parts_only_if_some_are_chosen() {
        assert!(script(&["tcp".into(), "events".into()], 20).contains("--rounds 20 --only tcp events 2>&1"));
        assert!(!script(&[], 2).contains("--only"));
    }
}
