//! `pagehaul bench`: the parts of a capture, each measured by itself.

#[cfg(feature = "bench")]
mod codec;
mod read;
#[cfg(feature = "bench")]
mod scale;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use comfy_table::{CellAlignment, Table, presets};

/// Measure what a capture is made of: reading memory, compressing it, and the size of the machine
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    instrument: Instrument,
}

#[derive(Debug, Subcommand)]
enum Instrument {
    Read(read::ReadArguments),
    #[cfg(feature = "bench")]
    Codec(codec::CodecArguments),
    #[cfg(feature = "bench")]
    Scale(scale::ScaleArguments),
}

pub(crate) fn run(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    match &arguments.instrument {
        Instrument::Read(arguments) => read::run(arguments)?,
        #[cfg(feature = "bench")]
        Instrument::Codec(arguments) => codec::run(arguments)?,
        #[cfg(feature = "bench")]
        Instrument::Scale(arguments) => scale::run(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a table without rules, numbers to the right.
fn print_table<R: Into<comfy_table::Row>>(
    header: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for line in table.to_string().lines() {
        say!("{}", line.trim_end())?;
    }
    Ok(())
}

/// "6.2" for bytes per second, in GiB.
fn gib(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), |rate| format!("{:.2}", rate / f64::from(1 << 30)))
}
