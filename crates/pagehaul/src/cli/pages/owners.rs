//! `pagehaul pages --owners`: the balance as text.

use std::fmt::Write as _;

use anyhow::Context;
use pagehaul_inspect::Machine;
use pagehaul_kernel::{Kernel, VirtualMemory};
use pagehaul_machine::{PageCount, PageSize};
use pagehaul_owners::{Balance, Owner, balance};
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count, percent};
use pagehaul_vmcore::Source;

use crate::cli::redact::{Names, Redaction, task_names};

/// Owners of each row that are printed.
const FEW: usize = 5;
/// Characters of an owner's name and notes.
const LONGEST: usize = 90;

/// Finds the owners of all pages of a dump, and redacts them.
pub(super) fn find(
    source: &Source,
    kernel: &Kernel,
    threads: usize,
    redaction: Option<&Redaction>,
) -> anyhow::Result<Balance> {
    let place = || source.path().display().to_string();
    let memory = source.memory();
    let virtual_memory = VirtualMemory::new(kernel.space(), memory);
    let machine = Machine::open(kernel.space(), &virtual_memory, memory.notes()).with_context(place)?;
    let mut balance = balance(&machine, kernel, memory, threads).with_context(place)?;
    balance.missing.splice(0..0, machine.warnings().iter().cloned());
    let mut warnings = source.warnings();
    if let Some(redaction) = redaction {
        redaction.owners(&mut balance, &Names::of_tasks(&task_names(memory)));
        let hidden = redaction.name("path", &place());
        warnings.iter_mut().for_each(|why| *why = why.replace(&place(), &hidden));
    }
    balance.missing.splice(0..0, warnings);
    Ok(balance)
}

/// Formats the balance.
pub(crate) fn text(balance: &Balance) -> String {
    let size = |pages: PageCount| bytes(pages.bytes(balance.page_size));
    let mut table = Table::new(["owner", "pages", "size", "share"]);
    let figures =
        |pages: PageCount| [count(pages.get()), size(pages), percent(pages.get(), balance.managed.get())];
    for row in &balance.rows {
        table.row([row.kind.name().to_owned()].into_iter().chain(figures(row.pages)));
        for owner in row.owners.iter().take(FEW) {
            table.row(
                [format!("  {}", describe(owner, balance.page_size))].into_iter().chain(figures(owner.pages)),
            );
        }
        let rest = row.owner_count.saturating_sub(FEW);
        if rest > 0 {
            let shown: PageCount = row.owners.iter().take(FEW).map(|owner| owner.pages).sum();
            let name = format!("  {} more", count(rest as u64));
            table.row(
                [name]
                    .into_iter()
                    .chain(figures(PageCount::new(row.pages.get().saturating_sub(shown.get())))),
            );
        }
    }
    table.row(["managed".to_owned()].into_iter().chain(figures(balance.sum())));
    for outside in &balance.outside {
        let name = format!("outside: {}", outside.name);
        table.row([name, count(outside.pages.get()), size(outside.pages), String::new()]);
    }
    let mut out = table.to_string();
    // Writing to a string cannot fail.
    let broken: Vec<_> = balance.broken().collect();
    let holds = balance.identities.len() - broken.len();
    let _ =
        writeln!(out, "\n{holds} of {} checks against the kernel's counters hold", balance.identities.len());
    for identity in broken {
        let _ = writeln!(
            out,
            "  {}: {} pages, {} {}: {:+}",
            identity.what,
            identity.pages,
            identity.counter,
            identity.counted,
            identity.difference()
        );
    }
    for missing in &balance.missing {
        let _ = writeln!(out, "note: {missing}");
    }
    out
}

/// Returns an owner's name with what else is known.
fn describe(owner: &Owner, page_size: PageSize) -> String {
    let mut notes = owner.notes.clone();
    if let Some(file) = &owner.file {
        let pages = |pages: PageCount| bytes(pages.bytes(page_size));
        let device = if file.device == file.filesystem { String::new() } else { format!(" {}", file.device) };
        notes.insert(0, format!("{}{device}", file.filesystem));
        if file.dirty > PageCount::ZERO {
            notes.push(format!("{} dirty", pages(file.dirty)));
        }
        if file.writeback > PageCount::ZERO {
            notes.push(format!("{} under writeback", pages(file.writeback)));
        }
        if file.swapped > PageCount::ZERO {
            notes.push(format!("{} in swap", pages(file.swapped)));
        }
        if file.deleted {
            notes.push("deleted".into());
        }
        if let [first, ..] = file.held_by.as_slice() {
            notes.push(match file.holders {
                1 => format!("held by {first}"),
                more => format!("held by {first} and {} more", count((more as u64).saturating_sub(1))),
            });
        }
    }
    let text = match notes.is_empty() {
        true => owner.name.clone(),
        false => format!("{} ({})", owner.name, notes.join(", ")),
    };
    // Names are whatever programs called their files.
    let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}
