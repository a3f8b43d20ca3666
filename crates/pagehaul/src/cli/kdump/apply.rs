//! `pagehaul kdump apply`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pagehaul_kdump_setup::Root;
use serde::{Deserialize, Serialize};

use super::plan::{self, Basis, Planned, write_changes};
use super::state;
use crate::{printed, usage};

/// What was applied, for `--undo`.
const STATE: &str = "apply.json";

/// Write the lines of `kdump plan` to the distribution's files
///
/// Keeps what the files held before in /var/lib/pagehaul/kdump/apply.json. Applying a plan again changes nothing; --undo restores
/// the files as they were before the first time. Runs no command: those that make the changes take effect are printed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul kdump apply --dry-run
  pagehaul kdump apply --yes
  pagehaul kdump apply --undo")]
pub(crate) struct ApplyArguments {
    #[command(flatten)]
    planned: Planned,
    /// Print the lines, but write nothing
    #[arg(long, conflicts_with_all = ["yes", "undo"])]
    dry_run: bool,
    /// Write the files
    #[arg(long, conflicts_with = "undo")]
    yes: bool,
    /// Restore the files as they were before the first `kdump apply`
    #[arg(long)]
    undo: bool,
}

/// A file that was changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Applied {
    path: PathBuf,
    /// Its text before the first change; `None` if it did not exist.
    before: Option<String>,
    /// Its text after the last one.
    after: String,
}

pub(super) fn run(arguments: &ApplyArguments) -> anyhow::Result<ExitCode> {
    let root = Root::new(&arguments.planned.root.root);
    if arguments.undo {
        return undo(&root);
    }
    if !arguments.dry_run && !arguments.yes {
        return Err(usage::wrong(
            "kdump apply changes files of the system; add --yes, or --dry-run to see how",
        ));
    }
    let changes = plan::make(&arguments.planned, Basis::Best)?.changes;
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_changes(&mut out, &changes);
    if arguments.yes && !changes.files.is_empty() {
        let mut applied: Vec<Applied> = state::read(&root, STATE)?.unwrap_or_default();
        for change in &changes.files {
            let change = change.clone();
            match applied.iter_mut().find(|applied| applied.path == change.path) {
                Some(applied) => {
                    // Somebody changed it since then, which an undo keeps.
                    if change.before.as_ref() != Some(&applied.after) {
                        applied.before = change.before;
                    }
                    applied.after = change.after;
                }
                None => {
                    applied.push(Applied { path: change.path, before: change.before, after: change.after })
                }
            }
        }
        // First, so that whatever is written can be undone.
        state::save(&root, STATE, &applied)?;
        for change in &changes.files {
            state::write(&target(&root, &change.path), &change.after, false)?;
        }
        out += "\nwritten; `pagehaul kdump apply --undo` restores the files\n";
    }
    printed::text(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// The file that a path leads to below the root: a symbolic link stays one.
fn target(root: &Root, path: &Path) -> PathBuf {
    root.resolve(path).unwrap_or_else(|| root.path(path))
}

fn undo(root: &Root) -> anyhow::Result<ExitCode> {
    let Some(applied) = state::read::<Vec<Applied>>(root, STATE)? else {
        bail!("nothing to undo: {} does not exist", state::path(root, STATE).display());
    };
    // All or nothing: a file changed since then has lines of somebody else.
    for file in &applied {
        let path = target(root, &file.path);
        let now = match fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        if now != file.before && now.as_ref() != Some(&file.after) {
            bail!(
                "{} has changed since `kdump apply`; restore it by hand from {}",
                file.path.display(),
                state::path(root, STATE).display()
            );
        }
    }
    let mut out = String::new();
    for file in &applied {
        let path = target(root, &file.path);
        match &file.before {
            Some(text) => state::write(&path, text, false)?,
            None => match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                }
                _ => {}
            },
        }
        out += &format!("restored {}\n", file.path.display());
    }
    let state = state::path(root, STATE);
    fs::remove_file(&state).with_context(|| format!("cannot remove {}", state.display()))?;
    out += "reload kdump, update the boot loader and reboot, as after `kdump apply`\n";
    printed::text(&out)?;
    Ok(ExitCode::SUCCESS)
}
