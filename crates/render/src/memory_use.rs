//! What memory is used for, as a bar, a map and a table of owners.

use maud::{Markup, html};
use pagehaul_inspect::TriageReport;
use pagehaul_machine::PageCount;
use pagehaul_present::html::swatch;
use pagehaul_present::number::{bytes, count, percent};
use pagehaul_present::printable;
use pagehaul_present::treemap::{Area, treemap};

/// Styles of the table of uses, in addition to those of [`explore`](pagehaul_present::explore).
pub(crate) const STYLE: &str = include_str!("memory_use.css");

/// Owners of a use in the map.
const IN_MAP: usize = 48;
/// Owners of a use in the table.
const IN_TABLE: usize = 6;
/// Letters of the name of an owner.
const LONGEST: usize = 120;

/// What all managed memory is used for. Sizes are in bytes.
#[derive(Debug, Default)]
pub struct MemoryUse {
    uses: Vec<Use>,
}

/// One use, and who has its memory.
#[derive(Debug)]
pub(crate) struct Use {
    pub name: String,
    pub bytes: u64,
    pub pages: u64,
    /// The largest owners; none if they are not known.
    pub owners: Vec<(String, u64)>,
    pub owner_count: usize,
}

impl MemoryUse {
    /// Returns what a report knows, by the kernel's counters: owners only of slab caches.
    pub(crate) fn of_report(report: &TriageReport) -> Self {
        let memory = &report.memory;
        let size = |pages: PageCount| pages.bytes(report.system.page_size);
        let rest = memory.unaccounted.and_then(|pages| u64::try_from(pages).ok());
        let rest = rest.map(|pages| (memory.rest_name(), PageCount::new(pages)));
        let uses = memory.usage.iter().copied().chain(rest).filter(|(_, pages)| *pages > PageCount::ZERO);
        let uses = uses.map(|(name, pages)| {
            let caches = if name.starts_with("slab") { report.slab.as_slice() } else { &[] };
            Use {
                name: name.to_owned(),
                bytes: size(pages),
                pages: pages.get(),
                owners: caches.iter().map(|cache| (cache.name.clone(), cache.bytes)).collect(),
                owner_count: caches.len(),
            }
        });
        Self { uses: uses.collect() }
    }

    #[cfg(feature = "census")]
    pub(crate) fn of(uses: Vec<Use>) -> Self {
        Self { uses }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    fn all(&self) -> u64 {
        self.uses.iter().fold(0, |sum, of| sum.saturating_add(of.bytes))
    }

    /// Builds the bar, which opens into the map.
    pub(crate) fn bar(&self, open: bool) -> Markup {
        let all = self.all();
        let areas: Vec<Area> = self.uses.iter().enumerate().map(|(at, of)| of.area(at, all)).collect();
        let width = |of: &Use| 100.0 * of.bytes as f64 / all.max(1) as f64;
        html! {
            details.opens open[open] {
                summary {
                    span.hint { "Each colour is a use of memory. The bar opens into a map of its owners." }
                    span.bar {
                        @for of in &self.uses {
                            span style=(format!("background:{};width:{:.3}%", color(&of.name), width(of)))
                                title=(format!("{}: {}, {}", of.name, bytes(of.bytes), percent(of.bytes, all))) {}
                        }
                    }
                }
                (treemap(&areas))
            }
        }
    }

    /// Builds the table, which says what the bar shows.
    pub(crate) fn table(&self) -> Markup {
        let all = self.all();
        html! {
            div.scroll {
                table.uses {
                    thead { tr { th.text { "use, owner" } th { "pages" } th { "size" } th { "share" } } }
                    @for (at, of) in self.uses.iter().enumerate() {
                        tbody id=(format!("use-{at}")) {
                            tr {
                                td.text { (swatch(color(&of.name))) (of.name) }
                                td { (count(of.pages)) } td { (bytes(of.bytes)) } td { (percent(of.bytes, all)) }
                            }
                            @for (name, size) in of.owners.iter().take(IN_TABLE) {
                                tr.owner { td.text { (short(name)) } td {} td { (bytes(*size)) } td { (percent(*size, all)) } }
                            }
                            @if of.owner_count > IN_TABLE {
                                @let shown: u64 = of.owners.iter().take(IN_TABLE).map(|(_, size)| size).sum();
                                @let rest = of.bytes.saturating_sub(shown);
                                tr.owner {
                                    td.text { (count((of.owner_count - IN_TABLE) as u64)) " more" } td {} td { (bytes(rest)) } td { (percent(rest, all)) }
                                }
                            }
                        }
                    }
                    tbody { tr { td.text { "all" } td { (count(self.uses.iter().map(|of| of.pages).sum())) } td { (bytes(all)) } td {} } }
                }
            }
        }
    }
}

impl Use {
    fn area(&self, at: usize, all: u64) -> Area {
        let color = color(&self.name);
        let mut parts: Vec<Area> = self
            .owners
            .iter()
            .take(IN_MAP)
            .map(|(name, size)| Area {
                name: short(name),
                note: bytes(*size),
                size: *size as f64,
                color,
                ..Area::default()
            })
            .collect();
        let shown = self.owners.iter().take(IN_MAP).fold(0_u64, |sum, (_, size)| sum.saturating_add(*size));
        let rest = self.bytes.saturating_sub(shown);
        if !parts.is_empty() && rest > 0 {
            let others = self.owner_count.saturating_sub(parts.len());
            let name = if others > 0 { format!("{} more", count(others as u64)) } else { "others".into() };
            parts.push(Area { name, note: bytes(rest), size: rest as f64, color, ..Area::default() });
        }
        Area {
            name: self.name.clone(),
            note: format!("{}, {}", bytes(self.bytes), percent(self.bytes, all)),
            size: self.bytes as f64,
            color,
            place: Some(format!("use-{at}")),
            parts,
        }
    }
}

/// Names are whatever programs called their files.
fn short(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.into_owned(),
    }
}

/// The CSS background of a use. Dark text is legible on all of them.
fn color(name: &str) -> &'static str {
    match name {
        "anonymous" => "#e58b86",
        "files" => "#ecca62",
        "tmpfs and shared memory" => "#f0a863",
        "huge pages" => "#c39ad6",
        "slab" | "slab and large kmalloc" => "#84bf7e",
        "large kmalloc" => "#a9d39b",
        "vmalloc" => "#86aede",
        "kernel stacks" => "#a9c5e8",
        "page tables" => "#7cc7c1",
        "KVM page tables" => "#9bd1b4",
        "per-CPU memory" => "#b7c7b0",
        "pipes" => "#cbb89b",
        "page pools" => "#dba9b6",
        "sockets" => "#d8b4cf",
        "ring buffers" => "#9fb8d9",
        "io_uring" => "#a3cfd4",
        "CMA" => "#c9c58f",
        "zsmalloc" => "#b6a4e0",
        "other types" => "#b3bcc9",
        "hardware poison" => "#ff6fb5",
        "offline (balloon)" => "#c3a684",
        "unaccepted" => "#b5b9c0",
        "undecided" => "#ffb1bd",
        // What nothing explains stands out.
        "no owner known" | "the rest, not looked at" => {
            "repeating-linear-gradient(135deg,#b9a7a0 0 5px,#d3c5bf 5px 10px)"
        }
        _ if name.starts_with("free") => "#d5dae2",
        _ => "#a8b0bc",
    }
}
