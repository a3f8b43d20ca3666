//! `pagehaul facts`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pagehaul_facts::Facts;
use pagehaul_physmem::MapPolicy;
use pagehaul_present::sentence;
use pagehaul_vmcore::{Source, open_file};

use crate::cli::options::{Dumps, Verbose};
use crate::cli::redact::{Redact, task_names};
use crate::cli::{completeness, pstore};
use crate::crash_report::{Outcome, limit_process};
use crate::printed;
use crate::sandbox::{self, Sandbox};

/// Print the facts of a crash as JSON: ID, host, kernel, kind of death, signature, log
///
/// Needs no debug symbols, and little of the dump: its notes and its log. `capture --facts` writes the same next to the dump, and that file
/// (.facts.json.zst) can take the place of DUMP; pagehaul-fleet makes tables of it. So can the records that a crash left in pstore
/// (/sys/fs/pstore/dmesg-*, also as systemd-pstore keeps them), all of one crash. docs/schema.md describes the fields.
///
/// Exit status: 0, the facts were printed; 1, the dump cannot be read; 2, the command line is wrong; 3, the dump or the records of pstore
/// are incomplete, or a page that was needed is damaged, and the facts that it has were printed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul facts dump
  pagehaul facts dump.facts.json.zst
  pagehaul facts /sys/fs/pstore/dmesg-ramoops-*
  pagehaul capture --facts /proc/vmcore /var/crash/dump")]
pub(crate) struct FactsArguments {
    #[command(flatten)]
    dumps: Dumps,
    #[command(flatten)]
    redact: Redact,
    #[command(flatten)]
    pub(crate) verbose: Verbose,
    /// For `capture --facts`: print them for the capture
    #[arg(long, hide = true)]
    for_capture: bool,
}

pub(crate) fn run(arguments: &FactsArguments) -> anyhow::Result<ExitCode> {
    if arguments.for_capture {
        limit_process();
        let outcome = match arguments.dumps.open_quietly().and_then(|source| text(&source)) {
            Ok(text) => Outcome::Report(text),
            Err(error) => Outcome::Error(sentence(error.chain())),
        };
        printed::json(&outcome)?;
        return Ok(ExitCode::SUCCESS);
    }
    let redaction = arguments.redact.key()?;
    arguments.dumps.identity.hold(&arguments.dumps.dumps)?;
    sandbox::enter(Sandbox::reading(&arguments.dumps.dumps))?;
    let mut status = ExitCode::SUCCESS;
    // The kernel may have compressed a record in the format of stored facts.
    let is_record = arguments.dumps.dumps.iter().any(|path| pstore::is_not_decompressed(path));
    let mut written = if is_record { None } else { stored(&arguments.dumps.dumps)? };
    if written.is_none()
        && let Some(records) = pstore::read(&arguments.dumps.dumps, redaction.is_none())?
    {
        records.tell();
        status = records.status();
        written = Some(records.facts);
    }
    let (mut facts, names) = match written {
        // A program that the log does not name is not known.
        Some(facts) => (facts, Vec::new()),
        None => {
            let (layout, dumps) = (&arguments.dumps.layout, &arguments.dumps.dumps);
            let source = match redaction {
                None => layout.open(dumps),
                Some(_) => layout.open_quietly(dumps, MapPolicy::default()),
            }?;
            let names = redaction.as_ref().map(|_| task_names(source.memory()));
            let facts = read(&source);
            // They do not have the name of the dump, which may be that of a machine.
            if redaction.is_none() {
                completeness::tell_warnings(&source);
            }
            status = completeness::status(&source);
            (facts, names.unwrap_or_default())
        }
    };
    if let Some(redaction) = &redaction {
        redaction.facts(&mut facts, &names);
    }
    printed::json(&facts)?;
    Ok(status)
}

/// Reads a file of facts. `None` if it is another file, or there are several.
fn stored(paths: &[PathBuf]) -> anyhow::Result<Option<Facts>> {
    let [path] = paths else { return Ok(None) };
    let file = open_file(path)?;
    let context = || format!("cannot read {}", file.path().display());
    let mut start = [0; 4];
    let count = file.read_at(0, &mut start).with_context(context)?;
    if !Facts::may_be_stored(start.get(..count).unwrap_or_default()) {
        return Ok(None);
    }
    let mut bytes = vec![0; file.size().min(Facts::MAX_BYTES) as usize];
    file.read_exact_at(0, &mut bytes).with_context(context)?;
    Ok(Some(Facts::from_stored(&bytes).with_context(context)?))
}

fn read(source: &Source) -> Facts {
    Facts::read(source.memory(), concat!("pagehaul ", env!("CARGO_PKG_VERSION")).to_owned())
}

fn text(source: &Source) -> anyhow::Result<String> {
    let mut text = serde_json::to_string_pretty(&read(source))?;
    text.push('\n');
    Ok(text)
}
