//! `pagehaul info` for cores and checkpoints of processes.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use pagehaul_present::number::{bytes, count};
use pagehaul_present::printable;
use pagehaul_process::{CoreInfo, describe, describe_checkpoint};
use serde::Serialize;

use crate::cli::checkpoint;
use crate::cli::options::Json;

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
        return print(&info, json, checkpoint::describe).map(Some);
    }
    if path.is_dir() {
        return Ok(None);
    }
    describe(path)?.map(|info| print(&info, json, render)).transpose()
}

fn print<I: Serialize>(info: &I, json: Json, render: fn(&I) -> String) -> anyhow::Result<ExitCode> {
    json.print(info, render)?;
    Ok(ExitCode::SUCCESS)
}

fn render(info: &CoreInfo) -> String {
    let complete = info.incomplete_because.as_ref().map_or("yes".into(), |why| format!("no: {why}"));
    let mut rows = vec![
        ("format", info.format.to_owned()),
        ("complete", complete),
        ("process", format!("{} ({})", info.pid, info.name)),
        ("arguments", info.arguments.clone()),
        ("threads", count(info.threads)),
        ("mappings", format!("{} ({})", count(info.mappings), bytes(info.mapped_bytes))),
        ("held", bytes(info.held_bytes)),
        ("file", bytes(info.file_bytes)),
    ];
    if info.frames > 0 {
        rows.push(("frames", count(info.frames)));
    }
    rows.iter().map(|(name, value)| format!("{name:14}{}\n", printable(value))).collect()
}
