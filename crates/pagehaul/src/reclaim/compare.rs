use std::process::ExitCode;

use anyhow::{Context, Result};
use pagehaul_reclaim::{Comparison, render};

use super::args::CompareArguments;
use super::load;

pub(super) fn run(arguments: &CompareArguments) -> Result<ExitCode> {
    let reports = arguments.columns.iter().map(|column| load::column(column)).collect::<Result<Vec<_>>>()?;
    let comparison = Comparison::new(&reports);
    if let Some(path) = &arguments.html {
        let page = render::comparison_page(&comparison, &reports);
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    } else if arguments.json {
        println!("{}", serde_json::to_string_pretty(&comparison).context("cannot make the comparison")?);
    } else {
        print!("{}", render::comparison(&comparison));
    }
    Ok(ExitCode::SUCCESS)
}
