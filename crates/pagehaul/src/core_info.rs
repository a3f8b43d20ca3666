//! `pagehaul info` for cores of processes.

use std::process::ExitCode;

use anyhow::Context;
use pagehaul_process::{CoreInfo, describe};

use crate::args::InfoArguments;
use crate::units::{bytes, count};

/// Describes a core of a process; none if the file is something else, or cannot be opened.
pub(crate) fn run(arguments: &InfoArguments) -> anyhow::Result<Option<ExitCode>> {
    if !arguments.dump.is_file() {
        return Ok(None);
    }
    let Some(info) = describe(&arguments.dump)? else { return Ok(None) };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&info).context("cannot make the description")?);
    } else {
        print!("{}", render(&info));
    }
    Ok(Some(ExitCode::SUCCESS))
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
    rows.iter().map(|(name, value)| format!("{name:14}{value}\n")).collect()
}
