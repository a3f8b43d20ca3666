use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use pagehaul_bench::codecs::{self, CodecRate, DIRTINESS, METHODS, ZeroTest};
use pagehaul_codec::Method;
use pagehaul_present::Table;
use pagehaul_present::svg::{self, Axis, Chart, Line, Series};
use pagehaul_present::time::parse_duration;
use serde::Serialize;

use super::gib;
use crate::cli::options::{Json, Plot};
use crate::printed;
use crate::sandbox::{self, Sandbox};

/// Share of the sum's speed that the zero test is to reach.
const ZERO_GOAL: f64 = 0.9;

/// Measure speed and ratio of codecs and levels, on synthetic data of rising dirtiness and on real pages
///
/// Uses one thread. Dirtiness is the share of incompressible bytes.
#[derive(Debug, Args)]
pub(crate) struct CodecArguments {
    /// Dump or vmcore to sample pages from
    sample: Option<PathBuf>,
    /// Codecs and levels, as in zstd:-1,lzo
    #[arg(short, long, value_name = "CODEC[:LEVEL],…", default_value = METHODS, value_delimiter = ',')]
    compress: Vec<Method>,
    /// Pages to sample
    #[arg(long, value_name = "N", default_value_t = 8192)]
    pages: usize,
    /// Time per measurement: 100ms, 1s
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    time: Duration,
    #[command(flatten)]
    json: Json,
    #[command(flatten)]
    plot: Plot,
}

#[derive(Serialize)]
struct Measured {
    zero_test: ZeroTest,
    by_dirtiness: Vec<CodecRate>,
    /// Pages with anything in them that were sampled.
    sampled_pages: usize,
    on_sample: Vec<CodecRate>,
}

pub(super) fn run(arguments: &CodecArguments) -> anyhow::Result<()> {
    let time = arguments.time;
    arguments.plot.check(arguments.sample.as_deref())?;
    sandbox::enter(Sandbox::reading(&arguments.sample).writing(arguments.plot.path()))?;
    let sample = match &arguments.sample {
        Some(path) => codecs::sample(path, arguments.pages)
            .with_context(|| format!("cannot sample {}", path.display()))?,
        None => Vec::new(),
    };
    let measured = Measured {
        zero_test: codecs::zero_test(time),
        by_dirtiness: codecs::by_dirtiness(&arguments.compress, time)?,
        sampled_pages: sample.len(),
        on_sample: if sample.is_empty() {
            Vec::new()
        } else {
            codecs::on_pages(&arguments.compress, &sample, time)?
        },
    };
    arguments.plot.write(|| charts(&measured, &arguments.compress), arguments.sample.as_deref())?;
    if arguments.json.json { printed::json(&measured) } else { print(&measured, arguments) }
}

fn print(measured: &Measured, arguments: &CodecArguments) -> anyhow::Result<()> {
    let zero = &measured.zero_test;
    let share = zero.test / zero.sum;
    say!(
        "zero test {} GiB/s, a plain sum {} GiB/s: {share:.2} of it; goal {ZERO_GOAL}: {}",
        gib(Some(zero.test)),
        gib(Some(zero.sum)),
        if share >= ZERO_GOAL { "met" } else { "MISSED" }
    )?;
    for (title, cell) in [
        (
            "MB/s of memory, by percent of dirty bytes",
            (|rate| format!("{:.0}", rate.speed / 1e6)) as fn(&CodecRate) -> String,
        ),
        ("ratio", |rate| format!("{:.2}", rate.ratio)),
    ] {
        say!("\n{title}")?;
        let mut table =
            Table::new(std::iter::once("codec".to_owned()).chain(DIRTINESS.iter().map(u8::to_string)));
        table.rows(arguments.compress.iter().map(|method| {
            let name = method.to_string();
            let cells = measured.by_dirtiness.iter().filter(|rate| rate.method == name).map(cell);
            std::iter::once(name.clone()).chain(cells).collect::<Vec<_>>()
        }));
        printed::text(&table.to_string())?;
    }
    if let Some(path) = &arguments.sample {
        say!("\n{} pages of {}", measured.sampled_pages, path.display())?;
        let mut table = Table::new(["codec", "MB/s", "ratio", "raw %"]);
        table.rows(measured.on_sample.iter().map(|rate| {
            let numbers = [rate.speed / 1e6, rate.ratio, rate.raw * 100.0];
            let [speed, ratio, raw] = numbers;
            [rate.method.clone(), format!("{speed:.0}"), format!("{ratio:.2}"), format!("{raw:.1}")]
        }));
        printed::text(&table.to_string())?;
    }
    Ok(())
}

fn charts(measured: &Measured, methods: &[Method]) -> String {
    let lines = |number: fn(&CodecRate) -> f64| {
        methods
            .iter()
            .map(|method| {
                let name = method.to_string();
                let of = measured.by_dirtiness.iter().filter(|rate| rate.method == name);
                let points = of.filter_map(|rate| Some((f64::from(rate.dirtiness?), number(rate)))).collect();
                Series { name, points, color: None, line: Line::Marked }
            })
            .collect()
    };
    let x = Axis { title: "incompressible bytes, %", logarithmic: false, label: |n| format!("{n:.0}") };
    svg::file(&[
        Chart {
            title: "Speed of codecs by dirtiness, one thread",
            x,
            y: Axis { title: "MB/s of memory", logarithmic: true, label: |n| format!("{n:.0}") },
            series: lines(|rate| rate.speed / 1e6),
            shaded: &[],
        },
        Chart {
            title: "Ratio of codecs by dirtiness",
            x,
            y: Axis { title: "bytes in / bytes stored", logarithmic: true, label: |n| format!("{n:.0}") },
            series: lines(|rate| rate.ratio),
            shaded: &[],
        },
    ])
}
