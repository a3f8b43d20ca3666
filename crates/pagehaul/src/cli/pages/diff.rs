//! `pagehaul pages diff`.

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pagehaul_kernel::Kernel;
use pagehaul_owners::{Effort, Moment, References, growth};
use pagehaul_physmem::MapPolicy;
use pagehaul_physmem::file::open_regular;
use pagehaul_render::owners as draw;

use super::owners;
use crate::cli::completeness;
use crate::cli::options::{Identity, Json, Threads};
use crate::sandbox::{self, Sandbox};

/// The most that an output of `pages --owners --json` has: 21 rows of 100 owners, and some 200 cgroups.
const MAX_JSON: u64 = 64 << 20;

/// Show which owners of memory grew between two moments: dumps, or outputs of `pages --owners --json`
///
/// Rows, owners and memory cgroups are compared by name, the largest changes first. An owner that only one side has among its 100
/// largest of a row has a `?` on the other, and so has what a dump that lost struct pages may have had: what it has
/// is `≥` a number, and a change is a range.
///
/// Exit status: 0, the changes were printed; 1, a moment cannot be read; 2, the command line is wrong; 3, a dump is incomplete, and what
/// is there was compared.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul pages diff idle stalled
  pagehaul pages --owners --live --json > before
  pagehaul pages --owners --live --json > after
  pagehaul pages diff before after")]
pub(super) struct DiffArguments {
    /// A dump, or the output of `pages --owners --json`, of the first moment
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// One of the second moment
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(arguments: &DiffArguments) -> anyhow::Result<ExitCode> {
    let paths = [&arguments.before, &arguments.after];
    arguments.identity.hold(&paths.map(Clone::clone))?;
    sandbox::enter(Sandbox::reading(paths))?;
    let (before, of_before) = moment(arguments, &arguments.before)?;
    let (after, of_after) = moment(arguments, &arguments.after)?;
    let names = paths.map(|path| path.display().to_string());
    let grown = growth(&before, &after).with_context(|| names.join(", "))?;
    arguments.json.print(&grown, |grown| draw::growth(grown, names.each_ref().map(String::as_str)))?;
    Ok(if of_before == ExitCode::SUCCESS { of_after } else { of_before })
}

/// Reads one side.
fn moment(arguments: &DiffArguments, path: &Path) -> anyhow::Result<(Moment, ExitCode)> {
    if let Some(json) = json(path)? {
        let place = || format!("{}: expected the output of `pages --owners --json`", path.display());
        return Ok((serde_json::from_slice(&json).with_context(place)?, ExitCode::SUCCESS));
    }
    let source = pagehaul_images::open(path, None, MapPolicy::default())?;
    let effort = Effort { threads: arguments.threads.count(), references: References::Above(1) };
    let balance = Kernel::discover(source.memory())
        .with_context(|| path.display().to_string())
        .and_then(|kernel| owners::find(&source, &kernel, effort, None));
    Ok((Moment::from(completeness::explain(&source, balance)?), completeness::status(&source)))
}

/// Returns the contents of a file that is JSON; no dump begins as it does.
fn json(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let Ok(mut file) = open_regular(path) else { return Ok(None) };
    let mut contents = vec![0; 1];
    let place = || path.display().to_string();
    // Both sides can be one file, which is open once.
    file.rewind().with_context(place)?;
    if file.read(&mut contents).with_context(place)? == 0 || contents != [b'{'] {
        return Ok(None);
    }
    file.take(MAX_JSON).read_to_end(&mut contents).with_context(place)?;
    Ok(Some(contents))
}
