//! Completions and manual pages, made from the command line's definition.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::Arguments;
use crate::printed;

pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    // To memory first: the generator panics where it cannot write.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "pagehaul", &mut text);
    printed::out(|out| out.write_all(&text))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man_pages(directory: &Path) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory))
        .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
