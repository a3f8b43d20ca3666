//! Prints the events of a trace file with all fields: `cargo run -p pagehaul-trace --example events FILE`.

use std::io::{BufWriter, Write};
use std::path::Path;

use pagehaul_trace::{EventSource, TraceFile};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: events FILE")?;
    let mut recording = TraceFile::open(Path::new(&path))?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    while let Some(event) = recording.next_event()? {
        let format = event.format();
        let comm = event.comm().unwrap_or("<...>");
        let (seconds, rest) = (event.ts() / 1_000_000_000, event.ts() % 1_000_000_000);
        write!(out, "{comm}-{} [{:03}] {seconds}.{rest:09}: {}:", event.pid(), event.cpu(), format.name)?;
        for field in format.fields.iter().filter(|field| !field.name.starts_with("common_")) {
            match (event.text(field.slot), event.i64(field.slot)) {
                (Some(text), _) => write!(out, " {}={text}", field.name)?,
                (None, Some(value)) => write!(out, " {}={value}", field.name)?,
                (None, None) => write!(out, " {}=?", field.name)?,
            }
        }
        writeln!(out)?;
    }
    eprintln!("{:?}", recording.losses());
    Ok(())
}
