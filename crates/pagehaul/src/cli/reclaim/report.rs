use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pagehaul_render::reclaim as draw;
use pagehaul_trace::Input;

use super::args::ReportArguments;
use super::load;
use crate::printed;
use crate::sandbox::{self, Sandbox};

pub(super) fn run(arguments: &ReportArguments) -> Result<ExitCode> {
    let sources = || arguments.files.iter().map(PathBuf::as_path);
    arguments.html.check(sources())?;
    let inputs = arguments.files.iter().map(|path| Ok(Input::open(path)?)).collect::<Result<Vec<_>>>()?;
    sandbox::enter(Sandbox::default().writing(&arguments.html.html))?;
    let report = |(path, input): (&PathBuf, Input)| {
        let label = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
        load::report(path, input, &label)
    };
    let reports = arguments.files.iter().zip(inputs).map(report).collect::<Result<Vec<_>>>()?;
    if arguments.html.write(|| Ok(draw::report_page(&reports)), sources())? {
        // Nothing else is printed.
    } else if arguments.json.json {
        match &reports[..] {
            [one] => printed::json(one)?,
            all => printed::json(&all)?,
        }
    } else {
        for (at, report) in reports.iter().enumerate() {
            if at > 0 {
                say!("\n{}\n", "=".repeat(100))?;
            }
            printed::report(&draw::report(report))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
