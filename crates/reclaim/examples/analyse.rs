//! Prints the report of a recording as JSON: `cargo run --release -p pagehaul-reclaim --example analyse FILE`. For profiles.

use std::path::Path;

use pagehaul_reclaim::analyse;
use pagehaul_trace::TraceFile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: analyse FILE")?;
    let report = analyse(&mut TraceFile::open(Path::new(&path))?, &path, &path)?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
