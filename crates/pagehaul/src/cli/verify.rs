//! `pagehaul verify`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use pagehaul_kernel::{Kernel, PageClass, PageScanner};
use pagehaul_machine::{PageCount, PageSize, Pfn};
use pagehaul_output::checksums::Checksums;
use pagehaul_physmem::PageState;
use pagehaul_present::number::{bytes, count};
use pagehaul_present::printable;
use pagehaul_run::Progress;
use pagehaul_vmcore::Source;
use pagehaul_vmcore::verify::{Findings, verify};
use serde::Serialize;

use crate::cli::options::{Dumps, Json, Threads};
use crate::cli::verdict::Verdict;
use crate::sandbox::{self, Sandbox};
use crate::{exit, printed, run};

/// Pages listed without --verbose.
const SHOWN: usize = 10;

/// Verify a dump, core or checkpoint: its structure, every page, and its checksums if it has any
///
/// `capture --checksums` writes checksums of a dump to FILE.sums, next to it; copy both. Without them, a changed byte is
/// not detected in a page stored uncompressed, or compressed by a codec without checksums. Cores in zstd frames and
/// checkpoints contain checksums; of an incremental checkpoint, the files that it is based on are verified as far as it needs them.
///
/// The result is "intact" only if all of it has checksums, and "readable" otherwise; in JSON, `verdict` says so, and `intact` is
/// null where it cannot be known.
///
/// Exit status: 0, no damage was found; 1, the file cannot be checked, or its base is missing; 2, the command line is
/// wrong; 3, pages are missing or damaged, or bytes have changed.
#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    #[command(flatten)]
    dumps: Dumps,
    #[command(flatten)]
    threads: Threads,
    /// List every missing or damaged page, and print on standard error how much of a dump on a server was fetched and what this
    /// kernel's sandbox lacks
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    json: Json,
}

pub(crate) fn run(arguments: &VerifyArguments) -> anyhow::Result<ExitCode> {
    let dumps = &arguments.dumps.dumps;
    let sums: Vec<PathBuf> = dumps.iter().map(|dump| Checksums::path_of(dump)).collect();
    let bases = super::hold(dumps, &arguments.dumps.identity)?;
    sandbox::enter(Sandbox::reading(dumps.iter().chain(&sums).chain(&bases)))?;
    let threads = arguments.threads.count();
    #[cfg(feature = "process")]
    if let [file] = dumps.as_slice()
        && let Some(code) = crate::cli::verify_process::run(file, threads, arguments.json.json)?
    {
        return Ok(code);
    }
    let source = arguments.dumps.layout.open(dumps)?;
    let (findings, _) =
        run::shown(&Progress::default(), false, |progress| verify(&source, threads, progress));
    let findings = findings?;
    let classes = classes(&source, &findings);
    let all_summed = findings.summed.len() == source.paths().len();
    let report = Printed::new(&source, &findings, &classes, all_summed, arguments);
    let written =
        if arguments.json.json { printed::json(&report) } else { printed::out(|out| report.print(out)) };
    printed::unless_closed(written)?;
    Ok(if findings.is_intact() { ExitCode::SUCCESS } else { ExitCode::from(exit::DAMAGED) })
}

/// Classes of the unreadable pages, where the rest of the dump shows them.
fn classes(source: &Source, findings: &Findings) -> BTreeMap<Pfn, PageClass> {
    let mut out = BTreeMap::new();
    let memory = source.memory();
    if findings.failures.is_empty() {
        return out;
    }
    let Ok(kernel) = Kernel::discover(memory) else { return out };
    let mut scanner = PageScanner::new(&kernel, memory.view());
    let pages = kernel.pages_per_block();
    if kernel.page_size() != findings.page_size {
        return out;
    }
    let mut here = None;
    let mut classes = vec![PageClass::Absent; pages];
    for (pfn, _, _) in &findings.failures {
        let block = pfn.number() / pages as u64;
        if here != Some(block) {
            if scanner.scan(block, &mut classes).is_err() {
                continue;
            }
            here = Some(block);
        }
        out.insert(*pfn, classes[(pfn.number() % pages as u64) as usize]);
    }
    out
}

#[derive(Serialize)]
struct Printed {
    verdict: Verdict,
    /// Whether nothing has changed, if that can be known.
    intact: Option<bool>,
    faults: Vec<String>,
    page_size: PageSize,
    /// Whether the dump says that pages were left out.
    incomplete: bool,
    present: PageCount,
    /// In an incomplete dump also those that a limit left out: they are not marked otherwise.
    excluded: PageCount,
    missing: PageCount,
    damaged: PageCount,
    /// Missing or damaged pages by class.
    classes: BTreeMap<&'static str, u64>,
    pages: Vec<Page>,
    checksums: Vec<String>,
    changed: Vec<Changed>,
    /// Whether the checksums are those of encryption.
    encrypted: bool,
    #[serde(skip)]
    verbose: bool,
}

#[derive(Serialize)]
struct Page {
    pfn: Pfn,
    state: &'static str,
    class: Option<&'static str>,
    why: String,
}

#[derive(Serialize)]
struct Changed {
    file: String,
    start: u64,
    end: u64,
    holds: Vec<&'static str>,
    first_pfn: Option<Pfn>,
    last_pfn: Option<Pfn>,
    pages: PageCount,
}

impl Printed {
    fn new(
        source: &Source,
        findings: &Findings,
        classes: &BTreeMap<Pfn, PageClass>,
        all_summed: bool,
        arguments: &VerifyArguments,
    ) -> Self {
        let verdict = Verdict::new(!findings.is_intact(), all_summed);
        let mut held = BTreeMap::new();
        for class in classes.values() {
            *held.entry(class.name()).or_insert(0) += 1;
        }
        Self {
            verdict,
            intact: verdict.intact(),
            faults: findings.faults.clone(),
            page_size: findings.page_size,
            incomplete: source.is_incomplete(),
            present: findings.present,
            excluded: findings.excluded,
            missing: findings.missing,
            damaged: findings.damaged,
            classes: held,
            pages: findings
                .failures
                .iter()
                .map(|(pfn, state, why)| Page {
                    pfn: *pfn,
                    state: PageState::name(*state),
                    class: classes.get(pfn).map(|class| class.name()),
                    why: why.clone(),
                })
                .collect(),
            checksums: findings.summed.iter().map(|path| path.display().to_string()).collect(),
            changed: findings
                .changed
                .iter()
                .map(|changed| Changed {
                    file: changed.path.display().to_string(),
                    start: changed.bytes.start,
                    end: changed.bytes.end,
                    holds: changed.holds.clone(),
                    first_pfn: changed.pages.map(|(first, _, _)| first),
                    last_pfn: changed.pages.map(|(_, last, _)| last),
                    pages: changed.pages.map_or(PageCount::ZERO, |(_, _, count)| count),
                })
                .collect(),
            encrypted: source.is_encrypted(),
            verbose: arguments.verbose,
        }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        for fault in &self.faults {
            writeln!(out, "fault: {}", printable(fault))?;
        }
        let of =
            |pages: PageCount| format!("{} ({})", count(pages.get()), bytes(pages.bytes(self.page_size)));
        let excluded =
            if self.incomplete { "excluded or left out of this incomplete dump" } else { "excluded" };
        writeln!(out, "{} pages are readable, {} are {excluded}", of(self.present), of(self.excluded))?;
        for (name, pages) in [("missing", self.missing), ("damaged", self.damaged)] {
            if pages > PageCount::ZERO {
                writeln!(out, "{} pages are {name}", of(pages))?;
            }
        }
        if !self.classes.is_empty() {
            let held: Vec<String> =
                self.classes.iter().map(|(class, pages)| format!("{} {class}", count(*pages))).collect();
            writeln!(out, "page classes: {}", held.join(", "))?;
        }
        let shown = if self.verbose { self.pages.len() } else { SHOWN };
        for page in self.pages.iter().take(shown) {
            let held = page.class.map_or(String::new(), |class| format!(" ({class})"));
            writeln!(out, "  PFN {:#x}{held}: {}", page.pfn, printable(&page.why))?;
        }
        let more = (self.missing + self.damaged).get().saturating_sub(shown.min(self.pages.len()) as u64);
        if more > 0 {
            writeln!(out, "  and {} more", count(more))?;
        }
        for changed in &self.changed {
            let pages = match (changed.first_pfn, changed.last_pfn) {
                (Some(first), Some(last)) => {
                    format!(": {} pages, PFNs {first:#x} to {last:#x}", count(changed.pages.get()))
                }
                _ => String::new(),
            };
            let (start, end) = (changed.start, changed.end - 1);
            let holds = changed.holds.join(", ");
            let file = printable(&changed.file);
            writeln!(out, "{file}: bytes {start:#x} to {end:#x} changed ({holds}){pages}")?;
        }
        if self.checksums.is_empty() {
            writeln!(out, "no checksums: changes that still decompress are not detected")?;
        } else if self.changed.is_empty() {
            let some = if self.verdict == Verdict::Readable { " in the files that have them" } else { "" };
            match self.encrypted {
                true if self.verdict == Verdict::Damaged => {
                    writeln!(
                        out,
                        "what is there is unchanged since it was encrypted; earlier damage is not detected"
                    )?;
                }
                true => writeln!(out, "unchanged since it was encrypted; earlier damage is not detected")?,
                false => writeln!(out, "checksums: no changes{some}")?,
            }
        }
        writeln!(out, "{}", self.verdict.line("`capture --checksums` writes them, and `verify` reads them"))
    }
}
