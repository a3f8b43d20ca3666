use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use pagehaul_reclaim::Comparison;
use pagehaul_render::reclaim as draw;

use super::args::CompareArguments;
use super::load::Column;
use crate::sandbox::{self, Sandbox};

pub(super) fn run(arguments: &CompareArguments) -> Result<ExitCode> {
    let columns = arguments.columns.iter().map(|text| Column::open(text)).collect::<Result<Vec<_>>>()?;
    sandbox::enter(Sandbox::default().writing(&arguments.html.html))?;
    let files: Vec<&Path> = columns.iter().flat_map(|column| &column.files).map(|(path, _)| *path).collect();
    let reports = columns.into_iter().map(Column::report).collect::<Result<Vec<_>>>()?;
    let comparison = Comparison::new(&reports);
    if arguments.html.write(|| Ok(draw::comparison_page(&comparison, &reports)), files)? {
        return Ok(ExitCode::SUCCESS);
    }
    arguments.json.print(&comparison, draw::comparison)?;
    Ok(ExitCode::SUCCESS)
}
