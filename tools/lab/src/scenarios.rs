//! Scenarios: page reclaim under pressure, and purges of vmalloc areas. Each becomes a report in Markdown.

mod checks;
mod counts;

use crate::kernels::Kernel;
use crate::workload::{self, Config, Step, WorkloadReport};
use crate::{cache, kmodule};
use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Kernels of the reclaim scenario: classic LRU lists, Debian's first kernel with multi-gen LRU, the newest.
pub const RECLAIM: [&str; 3] = ["6.1", "6.12", "7.2"];
/// Kernels of the vmalloc scenario: those with vmalloc trace events.
pub const VMALLOC: [&str; 2] = ["6.12", "7.2"];
/// Tests of the reclaim scenario. Each is one recording.
const TESTS: [(&str, &str); 4] = [
    ("writeback", "dd threads write twice the memory, each with fsync"),
    (
        "hugepages",
        "huge pages from the kernel's pool, while anonymous memory and files are in use, then at rest",
    ),
    ("fio", "fio: random reads and writes of 16 KiB, 70 % reads, on files of the size of memory"),
    ("sysbench", "sysbench fileio: random reads and writes on 16 files of the size of memory"),
];

const MEMORY_MIB: u64 = 512;
const RECLAIM_SCRIPT: &str = include_str!("../scenarios/reclaim.sh");
const VMALLOC_SCRIPT: &str = include_str!("../scenarios/vmalloc.sh");

/// Which results to report.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// The static pagehaul for the guests. By default the lab builds it.
    pub guest_pagehaul: Option<PathBuf>,
    /// Whether to reuse results of earlier runs.
    pub earlier: bool,
}

/// Runs the reclaim scenario on kernels. Returns the report, made with the host's `pagehaul`, and the number of page
/// totals that differ from the kernel's counters.
pub fn reclaim(kernels: &[&str], pagehaul: &Path, runs: &Runs) -> Result<(String, usize)> {
    let settings =
        format!("WRITERS=4\nFILE_MIB={}\nHUGE_MIB={}\nSECONDS_EACH=15\n", MEMORY_MIB * 2, MEMORY_MIB / 2);
    let packages = ["fio", "sysbench", "mount", "procps"].map(str::to_owned).to_vec();
    let mut directories = Vec::new();
    for kernel in kernels {
        let config = Config {
            kernel: (*kernel).to_owned(),
            memory_mib: MEMORY_MIB,
            packages: packages.clone(),
            steps: vec![step("reclaim", format!("{settings}{RECLAIM_SCRIPT}"))],
            pagehaul: runs.guest_pagehaul.clone(),
            ..Config::default()
        };
        directories.push(run("reclaim", &config, runs.earlier)?);
    }
    let mut report = String::from("# Page reclaim in the lab\n");
    let _ = write!(
        report,
        "\n`make lab-reclaim`: guests of {MEMORY_MIB} MiB and 2 CPUs under software emulation (TCG), scratch disk ext4 without \
         a journal, swap on a separate disk. Times are those of an emulated machine: compare columns, not with hardware.\n\n"
    );
    for directory in &directories {
        let lists = match text(directory, "lru_gen").trim() {
            "" => "classic lists".to_owned(),
            "0x0000" => "multi-generational lists built in, off".to_owned(),
            bits => format!("multi-generational lists on ({bits})"),
        };
        let _ = writeln!(report, "- {}: {lists}", text(directory, "release").trim());
    }
    for (test, what) in TESTS {
        let _ = write!(report, "\n## {test}\n{what}\n");
        for (kernel, directory) in kernels.iter().zip(&directories) {
            let log = text(directory, &format!("{test}.log"));
            let lines: Vec<&str> = log.lines().filter(|line| is_result(line)).collect();
            if !lines.is_empty() {
                let _ = write!(report, "\n{kernel}:\n```\n{}\n```\n", lines.join("\n"));
            }
        }
        let columns: Vec<String> = kernels
            .iter()
            .zip(&directories)
            .map(|(kernel, directory)| {
                format!("{kernel}={}", directory.join(format!("{test}.pht")).display())
            })
            .collect();
        let arguments: Vec<&str> = match columns.as_slice() {
            [one] => vec!["reclaim", "report", one.split_once('=').map_or(one, |(_, path)| path)],
            _ => ["reclaim", "compare"].into_iter().chain(columns.iter().map(String::as_str)).collect(),
        };
        let _ = write!(report, "\n```\n{}```\n", output(pagehaul, &arguments)?);
    }
    let files: Vec<_> = kernels
        .iter()
        .zip(&directories)
        .flat_map(|(kernel, directory)| {
            TESTS.map(|(test, _)| (*kernel, test, directory.join(format!("{test}.pht"))))
        })
        .collect();
    let recordings: Vec<_> =
        files.iter().map(|(kernel, test, file)| checks::Recording { kernel, test, file }).collect();
    let (section, unequal) = checks::section(pagehaul, &recordings)?;
    Ok((report + &section, unequal))
}

/// Runs the vmalloc scenario on kernels and returns the report.
pub fn vmalloc(kernels: &[&str], runs: &Runs) -> Result<String> {
    let mut report = String::from("# Purging vmalloc areas in the lab\n");
    let _ = write!(
        report,
        "\n`make lab-vmalloc`: guests of 768 MiB and 2 CPUs under software emulation (TCG). The module \
         `tools/lab/module/vmalloc_stress.c` allocates and frees areas of 1 to 4 pages from four threads.\n"
    );
    for kernel in kernels {
        if !VMALLOC.contains(kernel) {
            bail!(
                "kernel {kernel} has no vmalloc trace events: the scenario supports {}",
                VMALLOC.join(" and ")
            );
        }
        let module = kmodule::build(&Kernel::get(kernel)?, kmodule::VMALLOC_STRESS)?;
        let config = Config {
            kernel: (*kernel).to_owned(),
            memory_mib: 768,
            scratch_mib: 64,
            swap_mib: 0,
            packages: ["linux-perf", "kmod", "procps"].map(str::to_owned).to_vec(),
            files: vec![(module, format!("/{}.ko", kmodule::VMALLOC_STRESS))],
            steps: vec![step("vmalloc", VMALLOC_SCRIPT.to_owned())],
            pagehaul: runs.guest_pagehaul.clone(),
            ..Config::default()
        };
        let directory = run("vmalloc", &config, runs.earlier)?;
        let _ = write!(report, "\n## {}\n{}", text(&directory, "release").trim(), counts::table(&directory));
        for (file, title) in [
            (
                "calls-kprobe.txt",
                "300 calls of `nice`: `pagehaul latency -u __x64_sys_getpriority` (kprobe events)",
            ),
            ("calls-fprobe.txt", "the same with fprobe events"),
            ("calls-graph.txt", "the same with the function graph tracer"),
            ("calls-in-kernel.txt", "the same counted in the kernel (nanoseconds)"),
            ("calls-perf.txt", "`perf ftrace latency -T __x64_sys_getpriority` of the same run"),
            ("module.txt", "what the module did"),
            ("purge-kprobe.txt", "`pagehaul latency -u purge_vmap_node` (kprobe events)"),
            ("purge-fprobe.txt", "the same with fprobe events"),
            ("purge-graph.txt", "the same with the function graph tracer"),
            ("purge-in-kernel.txt", "the same counted in the kernel (nanoseconds)"),
            (
                "purge-perf.txt",
                "`perf ftrace latency -T purge_vmap_node`, begun before and ended after the others, whose probes make purges too",
            ),
            ("backlog.txt", "`pagehaul vmalloc -i 1` over another run"),
            ("snapshot.txt", "`pagehaul vmalloc` after it"),
            (
                "overhead.txt",
                "areas allocated and freed in 4 s by two threads, while alloc_vmap_area is timed",
            ),
        ] {
            let _ = write!(report, "\n{title}:\n```\n{}\n```\n", text(&directory, file).trim_end());
        }
    }
    Ok(report)
}

fn step(name: &str, script: String) -> Step {
    Step { name: name.to_owned(), script, time_limit: 900 }
}

/// Runs a guest and returns the directory of its results.
fn run(scenario: &str, config: &Config, earlier: bool) -> Result<PathBuf> {
    let out = cache::directory()?.join("workloads").join(format!("{scenario}-{}", config.kernel));
    if earlier && out.join("release").exists() {
        return Ok(out);
    }
    let report: WorkloadReport = workload::run(config, &out)?;
    if let Some(step) = report.steps.iter().find(|step| step.exit_code != Some(0)) {
        bail!("{} failed on {}: see {}", step.name, report.release, out.display());
    }
    Ok(out)
}

/// Returns whether a line of a tool's output is a result.
fn is_result(line: &str) -> bool {
    const WORDS: [&str; 8] = [
        "huge pages,",
        "read: IOPS",
        "write: IOPS",
        "clat percentiles",
        "reads/s:",
        "writes/s:",
        "fsyncs/s:",
        "95th percentile:",
    ];
    WORDS.iter().any(|word| line.contains(word))
}

fn text(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap_or_default()
}

fn output(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("running {}", program.display()))?;
    if !output.status.success() {
        bail!("pagehaul {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
