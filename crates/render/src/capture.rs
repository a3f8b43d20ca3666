//! What a capture did: the table at its end.

use std::fmt::Write;

use pagehaul_capture::CaptureReport;
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, bytes_per_second, count, counted};
use pagehaul_present::time::{seconds, utc};

/// Formats the report as text.
pub fn render(report: &CaptureReport, peak: u64, verbose: bool) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut out, report, peak, verbose);
    out
}

fn write(out: &mut String, report: &CaptureReport, peak: u64, verbose: bool) -> std::fmt::Result {
    if verbose {
        write_found(out, report)?;
    }
    let memory = |pages: u64| bytes(pages.saturating_mul(report.found.page_size as u64));
    let mut table = Table::new(["class", "kept", "", "excluded", ""]);
    let row = |name: &str, kept: u64, excluded: u64| {
        let cells = |pages: u64| match pages {
            0 => ["".to_owned(), "".to_owned()],
            _ => [count(pages), memory(pages)],
        };
        let ([kept, kept_bytes], [excluded, dropped_bytes]) = (cells(kept), cells(excluded));
        [name.to_owned(), kept, kept_bytes, excluded, dropped_bytes]
    };
    for class in &report.classes {
        table.row(row(class.class, class.kept, class.excluded));
    }
    let by_owner =
        [("other owners", report.other_owners), ("dropped file systems", report.dropped_file_systems)];
    for (name, pages) in by_owner {
        if let Some(pages) = pages {
            table.row(row(name, 0, pages));
        }
    }
    if report.excluded_from_source > 0 {
        table.row(row("not in the source", 0, report.excluded_from_source));
    }
    table.row(row("all", report.pages_kept, report.pages_excluded + report.excluded_from_source));
    write!(out, "{table}")?;
    if let Some(pages) = report.per_cpu_free {
        writeln!(out, "per-CPU lists: {} of the free pages excluded ({})", count(pages), memory(pages))?;
    }
    if report.zero_pages > 0 {
        writeln!(
            out,
            "zero pages: {} of the pages kept ({}) share one page of zeros",
            count(report.zero_pages),
            memory(report.zero_pages)
        )?;
    }
    let size = bytes(report.output_bytes);
    let stored =
        format!("{}, {:.2} to 1; {} raw pages", report.codec, report.ratio(), count(report.raw_pages));
    match &report.output {
        None => writeln!(out, "estimate: {size} as {} ({stored}, from a sample)", report.format)?,
        Some(_) if !report.parts.is_empty() => {
            write!(out, "{}", parts(report))?;
            writeln!(out, "{} parts: {size} as {} ({stored})", report.parts.len(), report.format)?;
        }
        Some(output) => writeln!(out, "{output}: {size} as {} ({stored})", report.format)?,
    }
    if report.methods.len() > 1 {
        let counts = report.methods.iter().map(|of| format!("{} {}", of.method, count(of.pages)));
        writeln!(out, "pages compressed with {}", counts.collect::<Vec<_>>().join(", "))?;
    }
    let spent = &report.seconds;
    let packed = report.zero_pages + report.raw_pages + report.compressed_pages;
    writeln!(
        out,
        "prepare {}, scan {} ({} of memory), pack {} ({}), finish {}; {}, {} anonymous memory at most",
        seconds(spent.prepare),
        seconds(spent.scan),
        bytes_per_second(report.memory_bytes, spent.scan),
        seconds(spent.pack),
        bytes_per_second(packed * report.found.page_size as u64, spent.pack),
        seconds(spent.finish),
        counted(report.threads as u64, "thread"),
        bytes(peak),
    )?;
    if report.unreadable_pages > 0 {
        writeln!(
            out,
            "{} pages could not be read and are recorded as missing:",
            count(report.unreadable_pages)
        )?;
        let shown = if verbose { report.unreadable.len() } else { 3 };
        for page in report.unreadable.iter().take(shown) {
            writeln!(out, "  PFN {:#x}: {}", page.pfn, page.why)?;
        }
    }
    if !report.unwritten.is_empty() {
        let mut table = Table::new(["priority", "to be kept", "", "not written", ""]);
        for part in &report.unwritten {
            table.row(row(part.priority.name(), part.kept, part.unwritten));
        }
        write!(out, "{table}")?;
    }
    for warning in &report.warnings {
        writeln!(out, "note: {warning}")?;
    }
    Ok(())
}

/// Writes facts of the machine, for --verbose.
fn write_found(out: &mut String, report: &CaptureReport) -> std::fmt::Result {
    let found = &report.found;
    let address = |value: Option<u64>| value.map_or("unknown".to_owned(), |value| format!("{value:#x}"));
    writeln!(
        out,
        "{}: {} of memory in {} ranges, highest PFN {:#x}",
        report.source,
        bytes(report.memory_bytes),
        count(found.ranges as u64),
        found.max_pfn.saturating_sub(1)
    )?;
    writeln!(
        out,
        "kernel {}, build ID {}, crashed {}",
        report.kernel.as_deref().unwrap_or("unknown"),
        found.build_id.as_deref().unwrap_or("unknown"),
        report.crash_time.map_or("at an unknown time".to_owned(), utc),
    )?;
    writeln!(
        out,
        "page tables of {} levels, phys_base {}, direct map at {}",
        found.paging_levels.map_or("unknown".to_owned(), |levels| levels.to_string()),
        address(found.phys_base),
        address(found.direct_map),
    )
}

/// Writes a table of the parts of a split set.
fn parts(report: &CaptureReport) -> Table {
    let mut table = Table::new(["part", "PFNs from", "to", "pages", "size"]);
    for part in &report.parts {
        let output = part.output.clone();
        table.row(if part.exists {
            let last = part.end_pfn.saturating_sub(1).max(part.start_pfn);
            let pfns = [part.start_pfn, last].map(|pfn| format!("{pfn:#x}"));
            let [first, last] = pfns;
            [output, first, last, count(part.pages_written), bytes(part.output_bytes)]
        } else {
            [output, String::new(), String::new(), count(0), "no file".into()]
        });
    }
    table
}

/// Returns why the dump is incomplete, in one sentence; `None` if it is complete.
pub fn failure(report: &CaptureReport) -> Option<String> {
    let why = report.outcome.why()?;
    let output = match report.output.as_deref().unwrap_or("the output") {
        parts if report.parts.iter().filter(|part| part.exists).count() > 1 => {
            format!("{parts} are marked incomplete and hold")
        }
        file => format!("{file} is marked incomplete and holds"),
    };
    Some(format!("{why}; {output} {} of {} pages", count(report.pages_written), count(report.pages_kept)))
}
