//! `pagehaul pages diff`.

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use pagehaul_kernel::Kernel;
use pagehaul_owners::{Effort, Moment, References, growth};
use pagehaul_physmem::MapPolicy;
use pagehaul_physmem::file::open_regular;
use pagehaul_render::owners as draw;

use super::owners;
use crate::cli::completeness;
use crate::cli::options::{Identity, Json, Threads};
use crate::exit;
use crate::sandbox::{self, Sandbox};

/// The most that an output of `pages --owners --json` has: 21 rows of 100 owners, and some 200 cgroups.
const MAX_JSON: u64 = 64 << 20;

/// Show which owners of memory grew between two moments: dumps, or outputs of `pages --owners --json`
///
/// Rows, owners and memory cgroups are compared by name, the largest changes first. An owner that only one side has among its 100
/// largest of a row has a `?` on the other. Of a dump that lost struct pages or other pages of the kernel, rows that the struct pages
/// left tell are `≥` a number, and so are changes to it; changes from it are `≤` a number. Its other rows, such as page tables and
/// those without an owner, are `?`: what is lost can make them larger or smaller.
///
/// Exit status: 0, the changes were printed; 1, a moment cannot be read, or lost all its struct pages; 2, the command line is wrong; 3, a
/// moment is of an incomplete dump, and what is there was compared.
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
    for (path, moment) in paths.into_iter().zip([&before, &after]) {
        ensure!(
            !moment.lost_all(),
            "{}: the struct pages of all its memory are lost: nothing can be compared",
            path.display()
        );
    }
    let names = paths.map(|path| path.display().to_string());
    let grown = growth(&before, &after).with_context(|| names.join(", "))?;
    arguments.json.print(&grown, |grown| draw::growth(grown, names.each_ref().map(String::as_str)))?;
    Ok(if of_before == ExitCode::SUCCESS { of_after } else { of_before })
}

/// Reads one side.
fn moment(arguments: &DiffArguments, path: &Path) -> anyhow::Result<(Moment, ExitCode)> {
    if let Some(json) = json(path)? {
        let place = || format!("{}: expected the output of `pages --owners --json`", path.display());
        let moment: Moment = serde_json::from_slice(&json).with_context(place)?;
        let status = status(&moment);
        return Ok((moment, status));
    }
    let source = pagehaul_images::open(path, None, MapPolicy::default())?;
    let effort = Effort { threads: arguments.threads.count(), references: References::Above(1) };
    let balance = Kernel::discover(source.memory())
        .with_context(|| path.display().to_string())
        .and_then(|kernel| owners::find(&source, &kernel, effort, None));
    let moment = Moment::from(completeness::explain(&source, balance)?);
    // A failure of the server is reported in the end, with its own status.
    let status = if completeness::has_failed() { ExitCode::SUCCESS } else { status(&moment) };
    Ok((moment, status))
}

/// The same of a dump and of its JSON.
fn status(moment: &Moment) -> ExitCode {
    if moment.is_incomplete() { ExitCode::from(exit::INCOMPLETE) } else { ExitCode::SUCCESS }
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
