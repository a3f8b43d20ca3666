//! Measures memory, reclaim and write-back in the capture kernel, for pagehaul, makedumpfile and cp and several values
//! of `crashkernel=`.

use crate::{Architecture, Config, Crash, Dump, crash, oracle, tree};
use anyhow::{Context, Result};
use lab_guest::plan::Run;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

/// Guest memory in MiB.
const MEMORY_MIB: u64 = 2048;
/// Write rate of the disk in bytes per second.
const WRITE_RATE: u64 = 30_000_000;
/// Percentage of memory to fill: more would only make cp take longer.
const FILL: u32 = 30;
/// Time limit of a run in seconds: cp writes 2 GiB.
const TIME_LIMIT: u64 = 400;
/// Reserved memory in MiB below which only pagehaul runs, to find its minimum.
const MIN_FOR_PEERS: u64 = 128;
/// Duration of each measurement of `bench read` in milliseconds.
const MEASUREMENT_MS: u64 = 400;
/// Directories of makedumpfile and cp on the disk for results.
const PEER: &str = "tools-makedumpfile";
const BASE: &str = "tools-base";

/// Prefixes of /proc/vmstat counters that rise when memory is short.
const COUNTERS: [(&str, &str); 5] = [
    ("allocstall", "stalls of allocations (allocstall_*)"),
    ("pgscan_direct", "pages scanned by allocating tasks (pgscan_direct*)"),
    ("pgscan_kswapd", "pages scanned by kswapd"),
    ("nr_vmscan_write", "pages written back by reclaim (nr_vmscan_write)"),
    ("oom_kill", "OOM kills"),
];

/// Measures each amount of reserved memory and returns a Markdown table. Builds pagehaul unless given.
pub fn table(kernel: &str, reserved: &[String], pagehaul: Option<&Path>) -> Result<String> {
    let mut out = String::from("| crashkernel | run | ended | seconds | dump MiB | peak RssAnon MiB |");
    for (counter, _) in COUNTERS {
        write!(out, " {counter} |")?;
    }
    out.push_str("\n|---|---|---|---|---|---|");
    out.push_str(&"---|".repeat(COUNTERS.len()));
    out.push('\n');
    for crashkernel in reserved {
        match crash(&config(kernel, crashkernel, pagehaul)?) {
            Ok(crash) => rows(&mut out, crashkernel, &crash)?,
            // This is a result: the memory is too small.
            Err(why) => {
                let why = format!("{why:#}");
                let first = why.lines().next().unwrap_or_default();
                writeln!(
                    out,
                    "| {crashkernel} | - | the capture kernel fails: {first} | | | |{}",
                    " |".repeat(COUNTERS.len())
                )?;
            }
        }
    }
    out.push('\n');
    for (counter, what) in COUNTERS {
        writeln!(out, "- `{counter}`: {what}")?;
    }
    Ok(out)
}

fn config(kernel: &str, crashkernel: &str, pagehaul: Option<&Path>) -> Result<Config> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let run = |name: &str, program: Vec<String>, line: &str| Run {
        name: name.into(),
        arguments: words(line),
        time_limit: TIME_LIMIT,
        program,
        discard: true,
    };
    let loader = |tree: &str, loader: &str, program: &str| {
        let libraries = format!("/out/{tree}/usr/lib/x86_64-linux-gnu:/out/{tree}/lib/x86_64-linux-gnu");
        vec![
            format!("/out/{tree}/{loader}"),
            "--library-path".into(),
            libraries,
            format!("/out/{tree}/{program}"),
        ]
    };
    let peer = loader(PEER, "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "usr/bin/makedumpfile");
    let cp = loader(BASE, "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "bin/cp");
    let mut runs = vec![
        run("pagehaul-31", Vec::new(), "capture --json -d 31 /proc/vmcore {out}"),
        run("pagehaul-0-none", Vec::new(), "capture --json -d 0 -c none /proc/vmcore {out}"),
    ];
    let mib = crashkernel.strip_suffix('M').and_then(|mib| mib.parse::<u64>().ok());
    if mib.is_none_or(|mib| mib >= MIN_FOR_PEERS) {
        runs.extend([
            run("makedumpfile-31", peer.clone(), "--message-level 1 -d 31 -z /proc/vmcore {out}"),
            run("makedumpfile-0", peer, "--message-level 1 -d 0 /proc/vmcore {out}"),
            run("cp", cp, "/proc/vmcore {out}"),
        ]);
    }
    let directory = oracle::makedumpfile()?;
    let directory = directory.parent().context("the path of makedumpfile has no parent")?.to_owned();
    Ok(Config {
        kernel: kernel.into(),
        memory_mib: MEMORY_MIB,
        crashkernel: crashkernel.into(),
        fill: FILL,
        pagehaul: pagehaul.map(Path::to_owned),
        runs,
        tools: vec![(directory, PEER), (tree::get(Architecture::X86_64, &[])?, BASE)],
        write_rate: Some(WRITE_RATE),
        save_vmcore: false,
        ..Config::default()
    })
}

fn rows(out: &mut String, crashkernel: &str, crash: &Crash) -> Result<()> {
    for dump in crash.dumps() {
        let report = &dump.report;
        let end = match (report.exit_code, report.signal) {
            (Some(0), _) => "ok".to_owned(),
            (Some(code), _) => format!("exit code {code}"),
            (None, _) if report.timed_out => "time limit".to_owned(),
            (None, signal) => format!("killed, signal {}", signal.unwrap_or(0)),
        };
        write!(
            out,
            "| {crashkernel} | {} | {end} | {:.1} | {} | {:.1} |",
            report.name,
            report.seconds,
            report.dump_bytes >> 20,
            report.peak_anonymous_kib as f64 / 1024.0
        )?;
        for (counter, _) in COUNTERS {
            write!(out, " {} |", change(dump, counter))?;
        }
        out.push('\n');
    }
    Ok(())
}

/// Runs `pagehaul bench read` on the real /proc/vmcore in a capture kernel of 256 MiB, and returns a Markdown table.
pub fn bench_read(kernel: &str, pagehaul: Option<&Path>) -> Result<String> {
    let line = format!("bench read --time {MEASUREMENT_MS}ms --json /proc/vmcore");
    let run = Run {
        name: "bench-read".into(),
        arguments: line.split_whitespace().map(str::to_owned).collect(),
        time_limit: TIME_LIMIT,
        ..Run::default()
    };
    let crash = crash(&Config {
        kernel: kernel.into(),
        memory_mib: MEMORY_MIB,
        fill: FILL,
        pagehaul: pagehaul.map(Path::to_owned),
        runs: vec![run],
        save_vmcore: false,
        ..Config::default()
    })?;
    let dump = crash.dumps().first().context("the guest left no report")?;
    let sweep: Value = serde_json::from_str(&dump.stdout).with_context(|| dump.stderr.clone())?;
    let rows = sweep["rows"].as_array().context("the report of `bench read` has rows")?;
    let mut out = String::from(
        "| window KiB | mapped | a word of every page | every word | read |\n|---|---|---|---|---|\n",
    );
    for row in rows {
        write!(out, "| {} |", row["window"].as_u64().unwrap_or_default() >> 10)?;
        for rate in ["mapped", "touched", "summed", "read"] {
            match row[rate].as_f64() {
                Some(rate) => write!(out, " {:.0} |", rate / f64::from(1 << 20))?,
                None => out.push_str(" - |"),
            }
        }
        out.push('\n');
    }
    let advised = sweep["advised"].as_u64().unwrap_or_default() >> 10;
    write!(
        out,
        "\nMiB/s. The smallest window within 5 % of the fastest, reading every word: {advised} KiB.\n"
    )?;
    Ok(out)
}

/// Returns the sum of the changes of all counters that start with `prefix`.
fn change(dump: &Dump, prefix: &str) -> i64 {
    dump.vmstat.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, by)| by).sum()
}
