//! `pagehaul bench`: the parts of a capture, each measured by itself.

mod capture;
#[cfg(feature = "bench")]
mod codec;
mod read;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Measure a capture and its parts: stages, reading memory, compressing it
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    Capture(capture::CaptureArguments),
    Read(read::ReadArguments),
    #[cfg(feature = "bench")]
    Codec(codec::CodecArguments),
}

pub(crate) fn run(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    match &arguments.benchmark {
        Benchmark::Capture(arguments) => capture::run(arguments)?,
        Benchmark::Read(arguments) => read::run(arguments)?,
        #[cfg(feature = "bench")]
        Benchmark::Codec(arguments) => codec::run(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// "6.2" for bytes per second, in GiB.
fn gib(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), |rate| format!("{:.2}", rate / f64::from(1 << 30)))
}
