//! --mem-usage: pages of a running kernel by class.

use std::fmt::Write;
use std::path::Path;

use pagehaul_capture::{CaptureReport, Options, estimate};
use pagehaul_codec::Method;
use pagehaul_kernel::{DumpLevel, PageClass};
use pagehaul_physmem::MapPolicy;
use pagehaul_run::Progress;
use pagehaul_vmcore::Source;

use crate::done::Done;
use crate::error::Error;
use crate::host::Host;
use crate::messages::Messages;

/// Prints the table for the kernel in `source`, usually /proc/kcore.
pub(crate) fn show(source: &Path, host: &dyn Host, messages: &mut Messages) -> Result<Done, Error> {
    let source = Source::open(source, MapPolicy::default())?;
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    let options = Options::new(DumpLevel::ALL, Method::NONE.into(), threads);
    let report = estimate(&source, &options, &Progress::default())?;
    for warning in &report.warnings {
        messages.alarm(&format!("makedumpfile: {warning}"));
    }
    host.print(render(&report).as_bytes())?;
    Ok(Done::Complete)
}

fn render(report: &CaptureReport) -> String {
    let pages = |classes: &[PageClass]| -> u64 {
        let of =
            |count: &&pagehaul_capture::ClassCount| classes.iter().any(|class| class.name() == count.class);
        report.classes.iter().filter(of).map(|count| count.kept + count.excluded).sum()
    };
    let total = report.pages_kept + report.pages_excluded;
    // Zero pages are counted in a sample of the kept pages.
    let kernel = report.pages_kept.saturating_sub(report.zero_pages);
    let rows = [
        ("ZERO", report.zero_pages, "yes", "Pages filled with zero"),
        ("NON_PRI_CACHE", pages(&[PageClass::Cache]), "yes", "Cache pages without private flag"),
        ("PRI_CACHE", pages(&[PageClass::CachePrivate]), "yes", "Cache pages with private flag"),
        ("USER", pages(&[PageClass::Anon, PageClass::HugeTlb]), "yes", "User process pages"),
        ("FREE", pages(&[PageClass::Free, PageClass::Unaccepted]), "yes", "Free pages"),
        ("KERN_DATA", kernel, "no", "Dumpable kernel data"),
    ];
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(out, "{:<16}{:<24}{:<16}DESCRIPTION\n{}", "TYPE", "PAGES", "EXCLUDABLE", "-".repeat(70));
    for (kind, pages, excludable, description) in rows {
        let _ = writeln!(out, "{kind:<16}{pages:<24}{excludable:<16}{description}");
    }
    let page_size = report.found.page_size as u64;
    let _ = writeln!(out, "\n{:<24}{page_size}", "page size:");
    let _ = writeln!(out, "{:<24}{total}", "Total pages on system:");
    let _ = writeln!(out, "{:<24}{} Byte", "Total size on system:", total * page_size);
    out
}
