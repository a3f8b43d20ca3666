//! Findings of `triage` that point to owners.

use pagehaul_facts::Kind;
use pagehaul_inspect::{Evidence, Finding, Report};
use pagehaul_machine::PageCount;
use pagehaul_present::number::{bytes, percent};

use crate::report::{Balance, Row, RowKind};

/// Rows that are named as evidence.
const ROWS: usize = 3;
/// The command that shows all owners.
const NEXT: &str = "pagehaul pages DUMP --owners";

/// Whether owners of memory are evidence for a finding: the machine ran out of it, or tasks reclaim it.
pub fn are_evidence(report: &Report) -> bool {
    ran_out(report) || report.verdict.iter().any(Finding::is_reclaim)
}

fn ran_out(report: &Report) -> bool {
    report.death.kind == Some(Kind::OomPanic)
}

/// Names the owners of memory in the findings of a machine that ran out of it. Names none if many struct pages are missing.
pub fn blame(report: &mut Report, balance: &Balance) {
    if !is_whole(balance) {
        return;
    }
    let out_of_memory = ran_out(report);
    let finding = match out_of_memory {
        true => report.verdict.first_mut(),
        false => report.verdict.iter_mut().find(|finding| finding.is_reclaim()),
    };
    let (Some(finding), Some(largest)) = (finding, balance.largest().next()) else { return };
    if out_of_memory {
        // The finding has the largest use by the kernel's counters.
        let what = finding.text.split(": ").next().unwrap_or_default();
        finding.text = format!("{what}: {}", row_text(balance, largest));
        NEXT.clone_into(&mut finding.next);
    }
    let rows = balance.largest().skip(usize::from(out_of_memory)).take(ROWS);
    finding.evidence.extend(rows.map(|row| Evidence(row_text(balance, row))));
}

/// Whether the rows are the managed pages, but for a few percent.
fn is_whole(balance: &Balance) -> bool {
    const PERCENT: u64 = 5;
    let managed = balance.managed.get();
    let most = managed / 100 * PERCENT;
    balance.sum().get().abs_diff(managed) <= most && balance.pages(RowKind::Undecided).get() <= most
}

/// A row in one phrase: its size and share, and its largest owner.
fn row_text(balance: &Balance, row: &Row) -> String {
    let size = |pages: PageCount| bytes(pages.bytes(balance.page_size));
    let mut text = format!(
        "{} {} of {} ({})",
        row.kind.name(),
        size(row.pages),
        size(balance.managed),
        percent(row.pages.get(), balance.managed.get())
    );
    if let Some(owner) = row.owners.first() {
        let share = percent(owner.pages.get(), row.pages.get());
        text += &format!(", {} {} ({share} of it)", owner.name, size(owner.pages));
    }
    text
}
