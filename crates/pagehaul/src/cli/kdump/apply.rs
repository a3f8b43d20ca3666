//! `pagehaul kdump apply`.

use std::process::ExitCode;

use clap::Args;
use pagehaul_kdump_setup::apply;

use super::plan::{self, Basis, Planned};
use crate::{exit, printed, usage};

/// Write the lines of `kdump plan` to the distribution's files
///
/// Changes the bytes of the planned values only. A value that it does not understand stays as it is, and the line to add by hand is
/// printed. Keeps what the files held before in /var/lib/pagehaul/kdump/apply.json. Applying a plan again changes nothing; --undo
/// restores the files byte for byte as they were before the first time. Runs no command: those that make the changes take effect
/// are printed.
///
/// Exit status: 0, the files are as planned; 1, an error; 2, the command line is wrong; 3, lines are left to be added by hand.
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

pub(super) fn run(arguments: &ApplyArguments) -> anyhow::Result<ExitCode> {
    let root = arguments.planned.root.open()?;
    if arguments.undo {
        let mut out = String::new();
        for path in apply::undo(&root)? {
            out += &format!("restored {}\n", path.display());
        }
        out += "reload kdump, update the boot loader and reboot, as after `kdump apply`\n";
        printed::text(&out)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.dry_run && !arguments.yes {
        return Err(usage::wrong(
            "kdump apply changes files of the system; add --yes, or --dry-run to see how",
        ));
    }
    let changes = plan::make(&arguments.planned, Basis::Best)?.changes;
    apply::check(&root, &changes.files)?;
    let mut out = pagehaul_render::kdump::changes(&changes);
    if arguments.yes && !changes.files.is_empty() {
        apply::apply(&root, &changes.files)?;
        out += "\nwritten; `pagehaul kdump apply --undo` restores the files\n";
    }
    printed::text(&out)?;
    Ok(if changes.by_hand.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::BY_HAND) })
}
