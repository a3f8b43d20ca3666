use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pagehaul_bench::read::sweep;
use pagehaul_present::Table;
use pagehaul_present::number::bytes;
use pagehaul_present::time::parse_duration;

use super::gib;
use crate::cli::options::Json;
#[cfg(feature = "bench")]
use crate::cli::options::Plot;
use crate::printed;

/// Measure how fast memory is mapped, touched and read through windows of 4 KiB to 64 MiB
///
/// Columns, in GiB/s: mapped only; one word per page read; every word read; read(2) into a buffer. Run it in a capture
/// kernel to choose --map-size there.
#[derive(Debug, Args)]
pub(crate) struct ReadArguments {
    /// File to read
    #[arg(default_value = "/proc/vmcore")]
    source: PathBuf,
    /// Time per measurement: 100ms, 1s
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = parse_duration)]
    time: Duration,
    #[command(flatten)]
    json: Json,
    #[cfg(feature = "bench")]
    #[command(flatten)]
    plot: Plot,
}

pub(super) fn run(arguments: &ReadArguments) -> anyhow::Result<()> {
    #[cfg(feature = "bench")]
    arguments.plot.check([arguments.source.as_path()])?;
    let mut progress = |window| tell!("pagehaul: windows of {}", bytes(window));
    let sweep = sweep(&arguments.source, arguments.time, &mut progress)?;
    #[cfg(feature = "bench")]
    arguments.plot.write(|| chart(&sweep), [arguments.source.as_path()])?;
    if arguments.json.json {
        return printed::json(&sweep);
    }
    say!("{} ({}), GiB/s", sweep.source, bytes(sweep.bytes))?;
    let mut table = Table::new(["window", "page table", "mapped", "touched", "summed", "read"]);
    table.rows(sweep.rows.iter().map(|row| {
        let rates = [row.mapped, row.touched, row.summed, row.read].map(gib);
        [vec![bytes(row.window), bytes(row.page_table)], rates.to_vec()].concat()
    }));
    printed::text(&table.to_string())?;
    match sweep.advised {
        Some(window) => say!(
            "the smallest window within 5 % of the fastest, every word read: {}; the default is 4 MiB (--map-size)",
            bytes(window)
        )?,
        None => say!("it cannot be mapped")?,
    }
    Ok(())
}

#[cfg(feature = "bench")]
fn chart(sweep: &pagehaul_bench::read::Sweep) -> String {
    use pagehaul_bench::read::WindowRate;
    use pagehaul_present::svg::{self, Axis, Chart, Line, Series};
    let line = |name: &str, rate: fn(&WindowRate) -> Option<f64>| Series {
        name: name.into(),
        points: sweep
            .rows
            .iter()
            .filter_map(|row| Some((row.window as f64, rate(row)? / f64::from(1 << 30))))
            .collect(),
        color: None,
        line: Line::Marked,
    };
    svg::file(&[Chart {
        title: &format!("{} by size of the window", sweep.source),
        x: Axis { title: "window", logarithmic: true, label: |n| bytes(n as u64) },
        y: Axis {
            title: "GiB/s",
            logarithmic: true,
            label: |n| format!("{n:.3}").trim_end_matches(['0', '.']).to_owned(),
        },
        series: vec![
            line("mapped, left alone", |row| row.mapped),
            line("a word of every page", |row| row.touched),
            line("every word", |row| row.summed),
            line("read", |row| row.read),
        ],
        shaded: &[],
    }])
}
