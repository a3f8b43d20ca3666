//! `pagehaul kdump plan` in a guest, against the dumps that its crash leaves a moment later.

use crate::vm::Accelerator;
use crate::{Config, build, crash};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fmt::Write;
use std::path::PathBuf;

/// Guest memory in MiB.
const MEMORY_MIB: u64 = 1536;
/// Levels to compare: each is in the plan's table.
const LEVELS: [u64; 3] = [31, 17, 0];
/// The planned level, whose time is compared.
const PLANNED: u64 = LEVELS[0];
/// Goals in percent.
const SIZE_GOAL: f64 = 5.0;
const TIME_GOAL: f64 = 30.0;

/// Crashes a guest of each kernel, and returns a Markdown table. Builds pagehaul unless given.
pub fn table(kernels: &[String], pagehaul: Option<PathBuf>) -> Result<String> {
    let pagehaul = match pagehaul {
        Some(path) => path,
        None => build::pagehaul_for_running(crate::Architecture::X86_64)?,
    };
    let mut out = String::from(
        "| kernel | level | planned MiB | range MiB | dump MiB | off by | goal 5 % | planned s | took s | off by | goal 30 % |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for kernel in kernels {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        // The disk of the lab is the host's memory. One CPU: several share the host's with other programs.
        let before = words("kdump plan --json --disk 2G --capture-cpus 1");
        let crash = crash(&Config {
            kernel: kernel.clone(),
            memory_mib: MEMORY_MIB,
            capture_cpus: Some(1),
            before,
            accelerator: Accelerator::Counted,
            captures: LEVELS.iter().map(|level| words(&format!("-d {level} -c zstd"))).collect(),
            pagehaul: Some(pagehaul.clone()),
            save_vmcore: false,
            ..Config::default()
        })?;
        let plan: Value = serde_json::from_str(&crash.manifest().before).context("the plan is not JSON")?;
        for (level, dump) in LEVELS.iter().zip(crash.dumps()) {
            let dumps = plan["dumps"].as_array().context("the plan has dumps")?;
            let planned = dumps.iter().find(|of| of["level"] == *level).context("the plan lacks a level")?;
            let size = |name: &str| planned[name].as_f64().context("a dump has a size");
            let range = [size("bytes")?, size("least")?, size("most")?];
            row(&mut out, kernel, *level, range, dump.report.dump_bytes as f64)?;
            if *level == PLANNED {
                let planned = plan["seconds"].as_f64().context("the plan has a time")?;
                let off = percent(planned, dump.report.seconds);
                writeln!(
                    out,
                    " {planned:.2} | {:.2} | {off:+.0} % | {} |",
                    dump.report.seconds,
                    verdict(off, TIME_GOAL)
                )?;
            } else {
                out.push_str(" | | | |\n");
            }
        }
    }
    Ok(out)
}

fn row(
    out: &mut String,
    kernel: &str,
    level: u64,
    [planned, least, most]: [f64; 3],
    found: f64,
) -> Result<()> {
    let off = percent(planned, found);
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    write!(
        out,
        "| {kernel} | {level} | {:.1} | {:.1}-{:.1} | {:.1} | {off:+.1} % | {} |",
        mib(planned),
        mib(least),
        mib(most),
        mib(found),
        verdict(off, SIZE_GOAL)
    )?;
    Ok(())
}

fn percent(planned: f64, found: f64) -> f64 {
    (planned / found.max(1e-9) - 1.0) * 100.0
}

fn verdict(off: f64, goal: f64) -> &'static str {
    if off.abs() <= goal { "met" } else { "**missed**" }
}
