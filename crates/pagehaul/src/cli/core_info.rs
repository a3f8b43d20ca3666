//! `pagehaul info` for cores and checkpoints of processes.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use pagehaul_process::{describe, describe_checkpoint};
use pagehaul_render::process as draw;
use serde::Serialize;

use crate::cli::options::Json;
use crate::exit;

/// Describes a core or a checkpoint; none if the file is something else, or cannot be opened.
pub(crate) fn run(path: &Path, json: Json) -> anyhow::Result<Option<ExitCode>> {
    // A checkpoint may be named by its directory. Opening a pipe would block.
    if !path.is_file() && !path.is_dir() {
        return Ok(None);
    }
    // What opens dumps says why.
    if path.is_file() && File::open(path).is_err() {
        return Ok(None);
    }
    if let Some(info) = describe_checkpoint(path)? {
        return print(&info, json, draw::checkpoint_info, info.broken.is_none()).map(Some);
    }
    if path.is_dir() {
        return Ok(None);
    }
    let Some(info) = describe(path)? else { return Ok(None) };
    print(&info, json, draw::core_info, info.incomplete_because.is_none()).map(Some)
}

fn print<I: Serialize>(
    info: &I,
    json: Json,
    render: fn(&I) -> String,
    is_whole: bool,
) -> anyhow::Result<ExitCode> {
    json.print(info, render)?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(exit::INCOMPLETE) })
}
