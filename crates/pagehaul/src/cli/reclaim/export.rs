use std::process::ExitCode;

use anyhow::Result;
use pagehaul_reclaim::{analyse_all, perfetto};
use pagehaul_trace::{EventSource, Input, TraceFile};

use super::args::ExportArguments;
use crate::files;
use crate::sandbox::{self, Sandbox};

pub(super) fn run(arguments: &ExportArguments) -> Result<ExitCode> {
    let (sources, overwrite) = ([arguments.file.as_path()], arguments.overwrite.force);
    files::check(&arguments.output, sources, overwrite)?;
    let input = Input::open(&arguments.file)?;
    sandbox::enter(Sandbox::default().writing([&arguments.output]))?;
    let name = arguments.file.display().to_string();
    let mut trace = TraceFile::from_input(input)?;
    let (_, intervals) = analyse_all(&mut trace, &name, "")?;
    for warning in trace.warnings() {
        tell!("pagehaul: {warning}");
    }
    if intervals.stalls.is_empty() && intervals.kswapd.is_empty() {
        let output = arguments.output.display();
        tell!("pagehaul: no task stalled in reclaim and no kswapd ran: {output} has nothing to show");
    }
    files::write(&arguments.output, perfetto(intervals), sources, overwrite)?;
    Ok(ExitCode::SUCCESS)
}
