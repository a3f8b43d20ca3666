use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use pagehaul_reclaim::{Comparison, render};

use super::args::CompareArguments;
use super::load;
use crate::{files, printed};

pub(super) fn run(arguments: &CompareArguments) -> Result<ExitCode> {
    let reports = arguments.columns.iter().map(|column| load::column(column)).collect::<Result<Vec<_>>>()?;
    let comparison = Comparison::new(&reports);
    if let Some(path) = &arguments.html {
        let page = render::comparison_page(&comparison, &reports);
        let files = arguments.columns.iter().flat_map(|column| load::files(column).1);
        files::write(path, &page, files.map(Path::new))?;
    } else if arguments.json {
        printed::json(&comparison)?;
    } else {
        printed::text(&render::comparison(&comparison))?;
    }
    Ok(ExitCode::SUCCESS)
}
