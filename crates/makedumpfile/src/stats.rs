//! --show-stats: makedumpfile's report of a dump.

use std::fmt::Write;

use pagehaul_capture::CaptureReport;
use pagehaul_kernel::PageClass;

/// The report, in makedumpfile's form.
pub(crate) fn render(report: &CaptureReport) -> String {
    let excluded = |classes: &[PageClass]| -> u64 {
        let of =
            |count: &&pagehaul_capture::ClassCount| classes.iter().any(|class| class.name() == count.class);
        report.classes.iter().filter(of).map(|count| count.excluded).sum()
    };
    // A zero page counts as excluded here, since its contents are not stored.
    let zero = if report.level & 1 == 0 { 0 } else { report.zero_pages };
    let original = report.pages_kept + report.pages_excluded;
    let remaining = report.pages_kept.saturating_sub(zero);
    let rows = [
        ("Pages filled with zero  ", zero),
        ("Non-private cache pages ", excluded(&[PageClass::Cache])),
        ("Private cache pages     ", excluded(&[PageClass::CachePrivate])),
        ("User process data pages ", excluded(&[PageClass::Anon, PageClass::HugeTlb])),
        ("Free pages              ", excluded(&[PageClass::Free, PageClass::Unaccepted])),
        ("Hwpoison pages          ", excluded(&[PageClass::HwPoison])),
        ("Offline pages           ", excluded(&[PageClass::Offline])),
    ];
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut out, report, (original, remaining), &rows);
    out
}

fn write(
    out: &mut String,
    report: &CaptureReport,
    (original, remaining): (u64, u64),
    rows: &[(&str, u64)],
) -> std::fmt::Result {
    writeln!(out, "\nOriginal pages  : 0x{original:016x}")?;
    writeln!(out, "  Excluded pages   : 0x{:016x}", original - remaining)?;
    for (name, pages) in rows {
        writeln!(out, "    {name}: 0x{pages:016x}")?;
    }
    writeln!(out, "  Remaining pages  : 0x{remaining:016x}")?;
    let percent = (remaining * 100).checked_div(original).unwrap_or(0);
    writeln!(out, "  (The number of pages is reduced to {percent}%.)")?;
    let holes = report.found.max_pfn.saturating_sub(original);
    writeln!(out, "Memory Hole     : 0x{holes:016x}")?;
    writeln!(out, "--------------------------------------------------")?;
    writeln!(out, "Total pages     : 0x{:016x}", report.found.max_pfn)?;
    write!(out, "Write bytes     : {}", report.output_bytes)
}
