//! Captures simulated machines of up to 64 TiB, and predicts from the rates how long real ones take.

mod offsets;
mod simulated;
mod sweep;
mod table;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use pagehaul_bench::predict::{Prediction, Rates};
use pagehaul_codec::{Codec, Method};
use pagehaul_kernel::DumpLevel;
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, parse_bytes};
use pagehaul_present::svg::{self, Axis, Chart, Line, Series};
use pagehaul_present::time::seconds;
use serde::Serialize;

use crate::sweep::{Config, Run, SIZES, tib};
use crate::table::{ASSUMPTIONS, CPUS};

/// The largest time per TiB may be so many times the smallest, from 1 TiB up.
const SPREAD_GOAL: f64 = 1.1;

/// Capture simulated machines from 1 GiB to 64 TiB, and predict how long real ones take
///
/// Every struct page of the machine is classified. Where packing every page would take too long, one page block in so
/// many is packed (column "packed"), evenly spread. The dump goes to a temporary file, whose every descriptor is checked.
#[derive(Debug, Parser)]
struct Arguments {
    /// Largest machine
    #[arg(long, value_name = "SIZE", default_value = "64T", value_parser = parse_bytes)]
    max: u64,
    /// Dump levels
    #[arg(short, long, value_name = "LEVEL,…", default_value = "31,0", value_delimiter = ',')]
    dump_level: Vec<DumpLevel>,
    /// Codec and level
    #[arg(short, long, value_name = "CODEC[:LEVEL]", default_value_t = Method::default_of(Codec::Zstd))]
    compress: Method,
    /// Threads that scan and pack [default: one per CPU]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Runs per machine of less than 16 TiB; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Directory for the dumps: up to 10 GB, and 20 GB at 64 TiB; best in memory
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    scratch: PathBuf,
    /// Disk bandwidths to predict for, in MB/s
    #[arg(long, value_name = "MB/S,…", default_value = "200,1000,3000,10000", value_delimiter = ',')]
    disks: Vec<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write charts to FILE, a new one, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct Measured {
    runs: Vec<Run>,
    rates: Vec<Rates>,
    predictions: Vec<Prediction>,
    assumptions: [&'static str; ASSUMPTIONS.len()],
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.map_or_else(cpus, usize::from);
    // Before minutes are spent.
    let plot = arguments.plot.as_deref().map(create).transpose()?;
    let config = Config {
        sizes: SIZES.into_iter().filter(|size| *size <= arguments.max).collect(),
        levels: arguments.dump_level.clone(),
        method: arguments.compress,
        threads,
        scratch: arguments.scratch.clone(),
        rounds: arguments.rounds,
    };
    let mut told = |run: &Run| {
        eprintln!(
            "scale: {} at level {}: scan {}, pack {}",
            bytes(run.memory),
            run.level,
            seconds(run.scan),
            seconds(run.pack)
        );
    };
    let runs = sweep::run(&config, &mut told)?;
    // What the writing thread can do, seen where nothing else is in its way: pages as they are.
    let plain =
        Config { sizes: vec![8 << 30], levels: vec![DumpLevel::NONE], method: Method::NONE, ..config };
    let place = sweep::run(&plain, &mut told)?.first().map_or(f64::INFINITY, Run::pack_rate);
    let rates: Vec<Rates> =
        arguments.dump_level.iter().filter_map(|level| rates(&runs, *level, place)).collect();
    let disks: Vec<u64> = arguments.disks.iter().map(|disk| disk * 1_000_000).collect();
    let predictions = table::table(&rates, &disks);
    let measured = Measured { runs, rates, predictions, assumptions: ASSUMPTIONS };
    if let Some((mut file, name)) = plot {
        file.write_all(charts(&measured).as_bytes()).with_context(|| format!("cannot write to {name}"))?;
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&measured)?);
    } else {
        print(&measured, &arguments);
    }
    Ok(())
}

/// Creates a file that does not exist.
fn create(path: &Path) -> anyhow::Result<(File, String)> {
    let name = path.display().to_string();
    let file = File::create_new(path).with_context(|| format!("cannot create {name}"))?;
    Ok((file, name))
}

/// The rates of one CPU, from the largest machine.
fn rates(runs: &[Run], level: DumpLevel, place: f64) -> Option<Rates> {
    let run = runs.iter().filter(|run| run.level == level.bits()).max_by_key(|run| run.memory)?;
    let threads = run.threads as f64;
    Some(Rates {
        level: run.level,
        scan: run.scan_rate() / threads,
        pack: run.pack_rate() / threads,
        place,
        ratio: run.ratio(),
        kept: run.kept(),
    })
}

fn print(measured: &Measured, arguments: &Arguments) {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let mut table = Table::new([
        "memory",
        "-d",
        "packed",
        "scan s",
        "pack s",
        "Mpages/s",
        "MB/s",
        "scan s/TiB",
        "pack s/TiB",
        "RssAnon MiB",
        "offsets checked",
    ]);
    table.rows(measured.runs.iter().map(|run| {
        vec![
            bytes(run.memory),
            run.level.to_string(),
            format!("1/{}", run.sample),
            format!("{:.2}", run.scan),
            format!("{:.2}", run.pack),
            format!("{:.0}", run.scan_rate() / 1e6),
            format!("{:.0}", run.pack_rate() / 1e6),
            format!("{:.2}", run.scan_per_tib()),
            format!("{:.0}", run.pack_per_tib()),
            format!("{} of {}", mib(run.peak_anonymous), mib(run.bound)),
            run.offsets.checked.to_string(),
        ]
    }));
    print!("{table}");
    let within = measured.runs.iter().all(|run| run.peak_anonymous <= run.bound);
    println!("\ngoal: anonymous memory within 32 MiB + 8 MiB per thread: {}", met(within));
    for level in &arguments.dump_level {
        if let Some(spread) = sweep::spread(&measured.runs, level.bits()) {
            println!(
                "goal: time per TiB within {:.0} % from 1 TiB up, level {level}: {:.1} %, {}",
                (SPREAD_GOAL - 1.0) * 100.0,
                (spread - 1.0) * 100.0,
                met(spread <= SPREAD_GOAL)
            );
        }
    }
    for rates in &measured.rates {
        println!(
            "\nrates of one CPU at level {}: scan {:.0} million struct pages/s, pack {:.0} MB/s ({:.2} to 1); {:.1} % of memory kept; \
             the writing thread places {:.0} MB/s at most",
            rates.level,
            rates.scan / 1e6,
            rates.pack / 1e6,
            rates.ratio,
            rates.kept * 100.0,
            rates.place / 1e6
        );
        let cpus = CPUS.iter().map(|cpus| format!("{cpus} CPU"));
        let mut table = Table::new(["memory", "disk MB/s"].map(str::to_owned).into_iter().chain(cpus));
        let of_level: Vec<_> = measured.predictions.iter().filter(|p| p.level == rates.level).collect();
        table.rows(of_level.chunks(CPUS.len()).filter_map(|row| {
            let first = row.first()?;
            let head = [format!("{:.0} TiB", tib(first.memory)), (first.disk / 1_000_000).to_string()];
            Some(head.into_iter().chain(row.iter().map(|p| seconds(p.seconds))).collect::<Vec<_>>())
        }));
        print!("{table}");
    }
    println!("\nassumed:");
    for assumption in ASSUMPTIONS {
        println!("- {assumption}");
    }
}

fn met(is: bool) -> &'static str {
    if is { "met" } else { "MISSED" }
}

fn charts(measured: &Measured) -> String {
    let memory = Axis { title: "memory of the machine", logarithmic: true, label: |n| bytes(n as u64) };
    let line = |name: String, level: u8, number: fn(&Run) -> f64| {
        let of = measured.runs.iter().filter(|run| run.level == level);
        Series {
            name,
            points: of.map(|run| (run.memory as f64, number(run))).collect(),
            color: None,
            line: Line::Marked,
        }
    };
    let levels: Vec<u8> = measured.rates.iter().map(|rates| rates.level).collect();
    let each = |name: &str, number: fn(&Run) -> f64| -> Vec<Series<'static>> {
        levels.iter().map(|level| line(format!("{name}, -d {level}"), *level, number)).collect()
    };
    let mut memory_lines = each("in use", |run| run.peak_anonymous as f64 / f64::from(1 << 20));
    if let Some(level) = levels.first() {
        let bound = line("bound".into(), *level, |run| run.bound as f64 / f64::from(1 << 20));
        memory_lines.push(Series { line: Line::Dashed, color: Some("#444"), ..bound });
    }
    let target = 12u64 << 40;
    let by_cpus = levels.first().into_iter().flat_map(|level| {
        let of = measured.predictions.iter().filter(move |p| p.level == *level && p.memory == target);
        let mut disks: Vec<u64> = of.clone().map(|p| p.disk).collect();
        disks.dedup();
        disks.into_iter().map(move |disk| Series {
            name: format!("{} MB/s, -d {level}", disk / 1_000_000),
            points: of
                .clone()
                .filter(|p| p.disk == disk)
                .map(|p| (f64::from(p.cpus), p.seconds / 60.0))
                .collect(),
            color: None,
            line: Line::Marked,
        })
    });
    svg::file(&[
        Chart {
            title: "Time per TiB, by stage",
            x: memory,
            y: Axis { title: "seconds per TiB", logarithmic: true, label: |n| format!("{n:.1}") },
            series: [each("scan", Run::scan_per_tib), each("pack", Run::pack_per_tib)]
                .into_iter()
                .flatten()
                .collect(),
            shaded: &[],
        },
        Chart {
            title: "Anonymous memory",
            x: memory,
            y: Axis { title: "MiB", logarithmic: false, label: |n| format!("{n:.0}") },
            series: memory_lines,
            shaded: &[],
        },
        Chart {
            title: "Predicted: a machine of 12 TiB, by disk",
            x: Axis { title: "CPUs of the capture kernel", logarithmic: true, label: |n| format!("{n:.0}") },
            y: Axis { title: "minutes", logarithmic: true, label: |n| format!("{n:.0}") },
            series: by_cpus.collect(),
            shaded: &[],
        },
    ])
}
