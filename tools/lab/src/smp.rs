//! Capture kernels with several CPUs: what they take of the reserved memory, and what happens when the crash is on another CPU
//! than the boot CPU, with `disable_cpu_apicid=` and without.

use crate::{Config, Crash, crash};
use anyhow::Result;
use std::fmt::Write;
use std::path::Path;

/// CPUs of the machine.
const CPUS: u32 = 8;
/// The boot CPU's APIC ID in QEMU.
const DISABLE: &str = "disable_cpu_apicid=0";
/// Levels of the captures, one after the other.
const LEVELS: [&str; 2] = ["31", "0"];

/// A guest of the table.
struct Guest {
    kernel: &'static str,
    capture_cpus: u32,
    crash_cpu: usize,
    append: &'static str,
}

const fn guest(kernel: &'static str, capture_cpus: u32, crash_cpu: usize, append: &'static str) -> Guest {
    Guest { kernel, capture_cpus, crash_cpu, append }
}

/// Linux 6.1 needs the parameter; 6.9 (5c5682b9f87a) finds the boot CPU itself, and has the parameter no more.
const GUESTS: [Guest; 13] = [
    guest("6.1", 1, 0, ""),
    guest("6.1", 2, 0, ""),
    guest("6.1", 4, 0, ""),
    guest("6.1", 4, 0, DISABLE),
    guest("6.1", 2, 3, ""),
    guest("6.1", 2, 3, DISABLE),
    guest("6.1", 4, 3, ""),
    guest("6.1", 4, 3, DISABLE),
    guest("6.12", 1, 0, ""),
    guest("6.12", 2, 3, ""),
    guest("6.12", 4, 0, ""),
    guest("6.12", 4, 3, ""),
    guest("6.12", 8, 3, ""),
];

/// Crashes all guests and returns a Markdown table. Builds pagehaul unless given.
pub fn table(crashkernel: &str, pagehaul: Option<&Path>) -> Result<String> {
    let mut out = String::from(
        "| kernel | nr_cpus | crash on CPU | parameter | CPUs online | boot s | MemTotal MiB | MemAvailable MiB |",
    );
    for level in LEVELS {
        write!(out, " `-d {level}` s | threads | dump MiB | peak RssAnon MiB |")?;
    }
    writeln!(out, "\n|---|---|---|---|---|---|---|---|{}", "---|".repeat(4 * LEVELS.len()))?;
    for guest in &GUESTS {
        let parameter = if guest.append.is_empty() { "-" } else { guest.append };
        write!(out, "| {} | {} | {} | {parameter} |", guest.kernel, guest.capture_cpus, guest.crash_cpu)?;
        match crash(&config(guest, crashkernel, pagehaul)) {
            Ok(crash) => row(&mut out, &crash)?,
            // A machine that resets or hangs is a result.
            Err(why) => {
                let why = format!("{why:#}");
                let first = why.lines().next().unwrap_or_default();
                writeln!(out, " {first} |{}", " |".repeat(3 + 4 * LEVELS.len()))?;
            }
        }
    }
    Ok(out)
}

fn config(guest: &Guest, crashkernel: &str, pagehaul: Option<&Path>) -> Config {
    let words = |line: String| line.split_whitespace().map(str::to_owned).collect();
    Config {
        kernel: guest.kernel.into(),
        cpus: CPUS,
        capture_cpus: Some(guest.capture_cpus),
        capture_append: guest.append.into(),
        crash_cpu: guest.crash_cpu,
        crashkernel: crashkernel.into(),
        captures: LEVELS.iter().map(|level| words(format!("-d {level} -c zstd"))).collect(),
        pagehaul: pagehaul.map(Path::to_owned),
        save_vmcore: false,
        ..Config::default()
    }
}

fn row(out: &mut String, crash: &Crash) -> Result<()> {
    let report = crash.report();
    write!(
        out,
        " {} | {:.1} | {} | {} |",
        report.cpus,
        report.uptime,
        report.memory_kib >> 10,
        report.available_kib >> 10
    )?;
    for dump in crash.dumps() {
        let run = &dump.report;
        let end = match run.exit_code {
            Some(0) => String::new(),
            Some(code) => format!(" (exit code {code})"),
            None => format!(" (signal {})", run.signal.unwrap_or(0)),
        };
        write!(
            out,
            " {:.1}{end} | {} | {} | {:.1} |",
            run.seconds,
            run.peak_threads,
            run.dump_bytes >> 20,
            run.peak_anonymous_kib as f64 / 1024.0
        )?;
    }
    out.push('\n');
    Ok(())
}
