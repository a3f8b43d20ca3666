//! `pagehaul pages --owners --live`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use pagehaul_kernel::Kernel;
use pagehaul_owners::{Balance, Effort, Moment, References, growth};
use pagehaul_render::owners as draw;

use super::{PagesArguments, owners};
use crate::cli::options::LIVE;
use crate::cli::redact::Redaction;
use crate::printed;
use crate::sandbox::{self, Sandbox};

pub(super) fn run(arguments: &PagesArguments) -> anyhow::Result<ExitCode> {
    let redaction = arguments.redact.key()?;
    sandbox::enter(Sandbox::reading(&[PathBuf::from(LIVE)]))?;
    let balance = read(arguments, redaction.as_ref())?;
    let Some(seconds) = arguments.interval else {
        arguments.json.print(&balance, draw::text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut before = Moment::from(balance);
    let mut left = arguments.count.unwrap_or(u64::MAX);
    while left > 0 {
        thread::sleep(Duration::from_secs(seconds));
        let after = Moment::from(read(arguments, redaction.as_ref())?);
        let grown = growth(&before, &after).context(LIVE)?;
        if arguments.json.json {
            printed::json_line(&grown)?;
        } else {
            let now = format!("{seconds} s later");
            printed::text(&draw::growth(&grown, ["then", &now]))?;
        }
        before = after;
        left -= 1;
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds the owners of all pages of the running kernel. It is opened anew each time: modules and memory come and go.
fn read(arguments: &PagesArguments, redaction: Option<&Redaction>) -> anyhow::Result<Balance> {
    let source = arguments.dumps.layout.open_quietly(&[PathBuf::from(LIVE)], Default::default())?;
    let kernel = Kernel::discover(source.memory()).context(LIVE)?;
    let references = if arguments.references { References::Always } else { References::Never };
    let effort = Effort { threads: arguments.threads.count(), references };
    let mut balance = owners::find(&source, &kernel, effort, redaction)?;
    balance.missing.push(
        "the kernel ran on while its memory was read: rows and counters are of moments that differ".into(),
    );
    Ok(balance)
}
