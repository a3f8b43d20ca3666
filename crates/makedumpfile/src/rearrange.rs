//! -R: a flattened dump on standard input becomes a file.

use std::path::Path;

use pagehaul_kdump::write::{Rearranged, rearrange as rearrange_stream};
use pagehaul_output::{DumpFileOptions, OutputFile};
use pagehaul_run::BytesWritten;
use pagehaul_sandbox::Sandbox;

use crate::done::Done;
use crate::dump::incomplete;
use crate::error::Error;
use crate::messages::{COMMON, Messages};
use crate::options::Options;

/// Reads standard input (a file, a device or a pipe) up to the end record, and ignores what is behind it.
pub(crate) fn rearrange(options: &Options, output: &Path, messages: &mut Messages) -> Result<Done, Error> {
    Sandbox::default().writing([&output.to_owned()]).enter()?;
    let mut input = std::io::stdin().lock();
    let create = DumpFileOptions { overwrite: options.overwrite, checksums: false, sources: &[] };
    let mut file = OutputFile::create(output, create, BytesWritten::default())?;
    let name = output.display();
    let end = rearrange_stream(&mut input, &mut file).inspect_err(|_| file.discard())?;
    match end {
        Rearranged::Complete => {}
        // The stream's own end: the dump says itself what it lacks.
        Rearranged::MarkedIncomplete => {
            incomplete(
                &format!("{name} was already marked incomplete when it was captured"),
                false,
                messages,
            );
        }
        Rearranged::Truncated(why) => {
            incomplete(
                &format!("{why}; {name} is marked incomplete and holds what came before"),
                false,
                messages,
            );
            return Ok(Done::Incomplete);
        }
        Rearranged::Unwritten(why) => {
            incomplete(
                &format!("cannot write to {name}: {why}; it is marked incomplete and holds what came before"),
                false,
                messages,
            );
            return Ok(Done::Incomplete);
        }
    }
    messages.say(COMMON, &format!("\nThe dumpfile is saved to {name}."));
    Ok(Done::Complete)
}
