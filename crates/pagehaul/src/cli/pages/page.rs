//! `pagehaul pages --pfn`: one page, and why a dump keeps or excludes it.

use std::fmt::Write as _;

use anyhow::Context;
use pagehaul_kernel::{DumpLevel, Fields, Kernel, PageClass};
use pagehaul_machine::{PageSize, Pfn};
use pagehaul_physmem::PhysMemory;
use serde::Serialize;

/// One page.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    pfn: u64,
    physical_address: u64,
    page_size: u64,
    class: &'static str,
    rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<&'static str>,
    /// Whether it is in the memory that the dump describes.
    is_memory: bool,
    /// Whether the dump holds it.
    is_stored: bool,
    /// Whether it holds nothing but zeros; not known of one that is not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_zero: Option<bool>,
    /// The bits of a dump level that exclude it.
    excluded_by: Vec<Bit>,
    /// Whether it is excluded at every level, because reading it could fail or stop the machine.
    never_read: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    struct_page: Option<StructPage>,
    /// Of a tail of a compound page.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<StructPage>,
}

/// A bit of a dump level.
#[derive(Debug, Serialize)]
struct Bit {
    name: &'static str,
    bit: u8,
}

#[derive(Debug, Serialize)]
struct StructPage {
    address: u64,
    flags: u64,
    flag_names: Vec<&'static str>,
    mapping: u64,
    mapcount: u32,
    compound: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    private: Option<u64>,
}

impl From<Fields> for StructPage {
    fn from(fields: Fields) -> Self {
        let Fields { address, flags, flag_names, mapping, mapcount, compound, private } = fields;
        Self { address: address.get(), flags, flag_names, mapping, mapcount, compound, private }
    }
}

/// Finds out what page `pfn` of a dump is.
pub(super) fn find(memory: &dyn PhysMemory, kernel: &Kernel, pfn: u64) -> anyhow::Result<Page> {
    let (number, size) = (Pfn::new(pfn), kernel.page_size());
    let explanation = kernel.explain(memory, number)?;
    let place = explanation.place;
    let is_memory = number < memory.ranges().end_pfn(size) && has_memory(memory, number, size);
    let mut stored = [0];
    memory
        .mark_stored_pages(size, number, &mut stored, &mut Vec::new())
        .context("cannot tell whether the dump holds it")?;
    // A mark is of up to 64 pages from the one that was asked for.
    let is_stored = is_memory && stored[0] & 1 != 0;
    let class = explanation.class;
    let mut bits: Vec<(&str, u8)> = DumpLevel::excluding(class);
    let never_read = matches!(class, PageClass::HwPoison | PageClass::Offline);
    let is_zero = if is_stored && !never_read { is_zero(memory, number, size) } else { None };
    if is_zero == Some(true) {
        bits.insert(0, ("zero", DumpLevel::ZERO));
    }
    Ok(Page {
        pfn,
        physical_address: number.start(size).get(),
        page_size: size.bytes() as u64,
        class: class.name(),
        rule: explanation.rule,
        node: place.map(|(node, _)| node),
        zone: place.map(|(_, zone)| zone),
        is_memory,
        is_stored,
        is_zero,
        excluded_by: bits.into_iter().map(|(name, bit)| Bit { name, bit }).collect(),
        never_read,
        struct_page: explanation.struct_page.map(StructPage::from),
        head: explanation.head.map(StructPage::from),
    })
}

/// Formats it.
pub(super) fn text(page: &Page) -> String {
    let mut out = String::new();
    let mut row = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<14}{value}");
    };
    row(
        "page",
        format!(
            "PFN {} ({:#x}): {} bytes at {:#x}",
            page.pfn, page.pfn, page.page_size, page.physical_address
        ),
    );
    if let (Some(node), Some(zone)) = (page.node, page.zone) {
        row("place", format!("node {node}, zone {zone}"));
    }
    row("class", page.class.to_owned());
    row("because", page.rule.clone());
    let content = match page.is_zero {
        Some(true) => ", zeros only",
        _ => "",
    };
    row(
        "excluded by",
        match (page.never_read, page.excluded_by.as_slice()) {
            (true, _) => "every level".into(),
            (false, []) => "no level".into(),
            (false, bits) => {
                let bits: Vec<String> =
                    bits.iter().map(|Bit { name, bit }| format!("{name} ({bit})")).collect();
                bits.join(", ")
            }
        },
    );
    row(
        "in this dump",
        match (page.is_memory, page.is_stored) {
            (false, _) => "no: it is not in the memory that the dump describes".into(),
            (true, false) => "no".into(),
            (true, true) => format!("yes{content}"),
        },
    );
    for (name, found) in [("struct page", &page.struct_page), ("head's", &page.head)] {
        let Some(found) = found else { continue };
        let names = if found.flag_names.is_empty() {
            String::new()
        } else {
            format!(" ({})", found.flag_names.join(", "))
        };
        row(name, format!("{:#x}", found.address));
        row("  flags", format!("{:#x}{names}", found.flags));
        row("  mapping", format!("{:#x}", found.mapping));
        row("  mapcount", format!("{:#x}", found.mapcount));
        row("  compound", format!("{:#x}", found.compound));
        if let Some(private) = found.private {
            row("  private", format!("{private:#x}"));
        }
    }
    out
}

/// Whether a part of a page is in the memory that the dump describes.
fn has_memory(memory: &dyn PhysMemory, pfn: Pfn, size: PageSize) -> bool {
    let start = pfn.start(size).get();
    memory.ranges().within(start..start.saturating_add(size.bytes() as u64)).next().is_some()
}

/// Whether a page holds zeros only; none if it cannot be read.
fn is_zero(memory: &dyn PhysMemory, pfn: Pfn, size: PageSize) -> Option<bool> {
    let mut bytes = vec![0; size.bytes()];
    let mut view = memory.view();
    view.read(pfn.start(size).get(), &mut bytes).ok()?;
    (!view.take_fault()).then(|| bytes.iter().all(|byte| *byte == 0))
}
