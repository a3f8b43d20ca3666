use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use pagehaul_reclaim::render;

use super::args::ReportArguments;
use super::load;
use crate::{files, printed};

pub(super) fn run(arguments: &ReportArguments) -> Result<ExitCode> {
    let report = |path: &PathBuf| {
        let label = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
        load::report(path, &label)
    };
    let reports = arguments.files.iter().map(report).collect::<Result<Vec<_>>>()?;
    if let Some(path) = &arguments.html {
        let page = render::report_page(&reports);
        files::write(path, &page, arguments.files.iter().map(PathBuf::as_path))?;
    } else if arguments.json {
        let json = match &reports[..] {
            [one] => serde_json::to_string_pretty(one),
            all => serde_json::to_string_pretty(all),
        };
        printed::line(json.context("cannot make the report")?)?;
    } else {
        for (at, report) in reports.iter().enumerate() {
            if at > 0 {
                say!("\n{}\n", "=".repeat(100))?;
            }
            printed::text(&render::report(report))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
