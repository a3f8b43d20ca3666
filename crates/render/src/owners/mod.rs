//! Who owns the memory.

mod allocations;
mod growth;
mod html;

use std::fmt::Write as _;

use pagehaul_machine::{PageCount, PageSize};
use pagehaul_owners::{Balance, Owner};
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count, percent};

pub use growth::growth;
pub use html::page;

use crate::memory_use::{MemoryUse, Use};

/// Owners of each row that are printed.
const FEW: usize = 5;
/// Cgroups that are printed.
const MAX_CGROUPS: usize = 15;
/// Characters of an owner's name and notes.
const LONGEST: usize = 90;

/// Formats the balance.
pub fn text(balance: &Balance) -> String {
    let size = |pages: PageCount| bytes(pages.bytes(balance.page_size));
    let mut table = Table::new(["owner", "pages", "size", "share"]);
    // If struct pages could not be read, rows hold pages that are not managed, too.
    let all = balance.sum();
    let sum = if balance.managed == Some(all) { "managed" } else { "all pages" };
    let figures = |pages: PageCount| [count(pages.get()), size(pages), percent(pages.get(), all.get())];
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
    table.row([sum.to_owned()].into_iter().chain(figures(all)));
    for outside in &balance.outside {
        let name = format!("outside: {}", outside.name);
        table.row([name, count(outside.pages.get()), size(outside.pages), String::new()]);
    }
    let mut out = table.to_string();
    allocations::text(balance, &mut out);
    cgroups(balance, &mut out);
    generations(balance, &mut out);
    fragmentation(balance, &mut out);
    // Writing to a string cannot fail.
    let broken: Vec<_> = balance.broken().collect();
    let holds = balance.identities.len() - broken.len();
    let _ = writeln!(out, "\n{}", checks(holds, balance));
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
    for check in &balance.not_made {
        let why = pagehaul_present::printable(&check.why);
        let _ = writeln!(out, "  not made: {}, {}: {why}", check.what, check.counter);
    }
    for missing in &balance.missing {
        let _ = writeln!(out, "note: {}", pagehaul_present::printable(missing));
    }
    out
}

/// Returns what a page draws of it.
pub fn memory_use(balance: &Balance) -> MemoryUse {
    let size = |pages: PageCount| pages.bytes(balance.page_size);
    let uses = balance.rows.iter().map(|row| Use {
        name: row.kind.name().to_owned(),
        bytes: size(row.pages),
        pages: row.pages.get(),
        owners: row
            .owners
            .iter()
            .map(|owner| (describe(owner, balance.page_size), size(owner.pages)))
            .collect(),
        owner_count: row.owner_count,
    });
    MemoryUse::of(uses.collect())
}

/// How many of all checks hold, and how many could not be made.
fn checks(holds: usize, balance: &Balance) -> String {
    let not_made = match balance.not_made.len() {
        0 => String::new(),
        many => format!(", {} could not be made", count(many as u64)),
    };
    match balance.identities.len() {
        // Without data symbols.
        0 => "nothing was checked against the kernel's counters: none can be read".into(),
        all => format!("{holds} of {all} checks against the kernel's counters hold{not_made}"),
    }
}

/// The largest memory cgroups.
fn cgroup_table(balance: &Balance, most: usize) -> Option<Table> {
    let cgroups = &balance.cgroups;
    if cgroups.largest.is_empty() {
        return None;
    }
    let size = |pages: PageCount| bytes(pages.bytes(balance.page_size));
    let limit = |pages: Option<PageCount>| pages.map_or_else(|| "none".to_owned(), size);
    let mut table =
        Table::new(["memory cgroup", "usage", "peak", "high", "max", "swap", "processes", "events"]);
    for cgroup in cgroups.largest.iter().take(most) {
        let events: Vec<String> =
            cgroup.events.iter().map(|(name, times)| format!("{name} {}", count(*times))).collect();
        let removed = if cgroup.removed { " (removed)" } else { "" };
        table.row([
            printable(&format!("{}{removed}", cgroup.path)),
            cgroup.usage.map_or_else(|| "not known".to_owned(), size),
            cgroup.peak.map_or_else(|| "not known".to_owned(), size),
            limit(cgroup.high),
            limit(cgroup.max),
            cgroup.swap.map_or_else(String::new, size),
            count(cgroup.processes as u64),
            events.join(", "),
        ]);
    }
    Some(table)
}

/// Formats the largest memory cgroups.
fn cgroups(balance: &Balance, out: &mut String) {
    let cgroups = &balance.cgroups;
    let size = |pages: PageCount| bytes(pages.bytes(balance.page_size));
    let Some(table) = cgroup_table(balance, MAX_CGROUPS) else { return };
    // Writing to a string cannot fail.
    let _ = write!(out, "\n{table}");
    let rest = cgroups.count.saturating_sub(cgroups.largest.len().min(MAX_CGROUPS));
    if rest > 0 {
        let _ = writeln!(out, "  {} more", count(rest as u64));
    }
    if cgroups.removed > 0 {
        let pages = size(cgroups.removed_pages);
        let _ = writeln!(out, "  {} removed cgroups hold {pages}", count(cgroups.removed as u64));
    }
}

/// Formats seconds in the largest unit that they are a whole number of.
fn in_one_unit(seconds: u64) -> String {
    let units = [(86_400, "day"), (3_600, "h"), (60, "min"), (1, "s")];
    let (unit, name) = units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit)).unwrap_or((1, "s"));
    format!("{} {name}", seconds / unit)
}

/// Pages by the age of their generation.
fn generation_table(balance: &Balance) -> Option<Table> {
    let found = balance.generations.as_ref()?;
    let size = |pages: PageCount| bytes(pages.bytes(balance.page_size));
    let mut table = Table::new(["generations of the LRU, age", "anonymous", "files"]);
    for age in &found.ages {
        let name = match age.up_to_ms {
            Some(most) => format!("up to {}", in_one_unit(most / 1000)),
            None => "older".to_owned(),
        };
        table.row([name, size(age.anonymous), size(age.file)]);
    }
    Some(table)
}

/// Formats pages by the age of their generation.
fn generations(balance: &Balance, out: &mut String) {
    let (Some(table), Some(found)) = (generation_table(balance), &balance.generations) else { return };
    if !table.rows.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n{table}");
    }
    if found.age_not_known > PageCount::ZERO {
        let pages = bytes(found.age_not_known.bytes(balance.page_size));
        let _ = writeln!(out, "  {pages} in generations whose age is not known");
    }
}

/// Formats free blocks by order and type, and who spoils blocks.
fn fragmentation(balance: &Balance, out: &mut String) {
    if let Some((table, lines)) = fragments(balance) {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n{table}{lines}");
    }
}

/// Free blocks by order and type, and lines of who spoils blocks.
fn fragments(balance: &Balance) -> Option<(Table, String)> {
    let found = balance.fragmentation.as_ref()?;
    let mut out = String::new();
    let size = |pages: PageCount| bytes(pages.bytes(balance.page_size));
    let orders = found.types.iter().map(|of| of.free.len()).max().unwrap_or(0);
    let header = [format!("blocks of {}", size(found.block_pages)), "blocks".into(), "free, order 0".into()];
    let mut table = Table::new(header.into_iter().chain((1..orders).map(|order| order.to_string())));
    for of in &found.types {
        let free =
            (0..orders.max(1)).map(|order| of.free.get(order).map_or_else(String::new, |it| count(*it)));
        table.row([of.name.clone(), count(of.blocks)].into_iter().chain(free));
    }
    // Writing to a string cannot fail.
    let movable = found.types.iter().find(|of| of.name == "movable").map_or(0, |of| of.blocks);
    let _ = writeln!(
        out,
        "{} of {} movable blocks have pages that cannot move",
        count(found.spoilt),
        count(movable)
    );
    for spoiler in found.spoilt_by.iter().take(FEW) {
        let name = match &spoiler.name {
            Some(name) => printable(&format!("{}, {name}", spoiler.kind.name())),
            None => spoiler.kind.name().to_owned(),
        };
        let _ = writeln!(
            out,
            "  {name}: {} blocks, {} pages in them",
            count(spoiler.blocks),
            count(spoiler.pages.get())
        );
    }
    for zone in &found.deferred {
        let _ = writeln!(
            out,
            "compaction is deferred: node {} {}, order {} and above, {} of {} attempts skipped",
            zone.node,
            pagehaul_present::printable(&zone.zone),
            zone.order,
            zone.skipped,
            zone.skips
        );
    }
    Some((table, out))
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
    if let Some(allocation) = &owner.allocation
        && let [first, ..] = allocation.allocated_by.as_slice()
    {
        notes.push(match allocation.tasks {
            0 | 1 => format!("by {first}"),
            more => format!("by {first} and {} more", count((more as u64).saturating_sub(1))),
        });
    }
    let text = match notes.is_empty() {
        true => owner.name.clone(),
        false => format!("{} ({})", owner.name, notes.join(", ")),
    };
    printable(&text)
}

/// Names are whatever programs called their files.
fn printable(text: &str) -> String {
    let text = pagehaul_present::printable(text);
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use pagehaul_owners::{
        Age, Cgroup, Cgroups, Generations, Identity, Kmemleak, KmemleakUser, NotMade, Row, RowKind,
    };

    use super::*;

    #[test]
    fn unreferenced_objects_come_first_and_the_scan_has_an_age() {
        let user = |function: &str, objects, by: &[&str]| KmemleakUser {
            objects,
            bytes: objects * 64,
            stack: vec!["kmem_cache_alloc".into(), function.into(), "kthread".into()],
            allocated_by: by.iter().map(|task| (*task).to_owned()).collect(),
            tasks: 2,
        };
        let kmemleak = Kmemleak {
            objects: 1012,
            bytes: 1012 * 64,
            unreferenced: 8,
            unreferenced_bytes: 512,
            scanned: Some(83),
            unrecorded: 3,
            leaks: vec![user("leak", 8, &["insmod/77", "bash/78"])],
            leak_count: 1,
            largest: vec![user("keep", 1001, &["insmod/77"]), user("leak", 8, &["insmod/77", "bash/78"])],
            count: 2,
            ..Kmemleak::default()
        };
        let mut out = String::new();
        allocations::text(&Balance { kmemleak: Some(kmemleak), ..empty() }, &mut out);
        let lines: Vec<&str> = out.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), 7, "{out}");
        for (line, parts) in lines.iter().zip([
            &["unreferenced, allocated by (kmemleak)", "objects", "size", "by"][..],
            &["leak < kthread", " 8 ", "512 B", "bash/78, insmod/77"],
            &[
                "at least 8 objects that kmemleak's last scan found no pointer to",
                "last scan 1 min 23 s before",
            ],
            &["tracked, allocated by (kmemleak)"],
            &["keep < kthread", "1,001", "insmod/77, more"],
            &["leak < kthread"],
            &[
                "at least 1,012 objects",
                "8 unreferenced",
                "3 have no stack",
                "kmemleak stopped before the end",
            ],
        ]) {
            assert!(parts.iter().all(|part| line.contains(part)), "{line}: {parts:?}");
        }
    }

    fn empty() -> Balance {
        Balance {
            page_size: PageSize::KIB_4,
            managed: Some(PageCount::new(1)),
            rows: Vec::new(),
            outside: Vec::new(),
            suspects: Vec::new(),
            cgroups: Cgroups::default(),
            generations: None,
            fragmentation: None,
            stacks: None,
            sites: None,
            slab_users: None,
            kmemleak: None,
            identities: Vec::new(),
            not_made: Vec::new(),
            missing: Vec::new(),
            is_whole: true,
            incomplete: false,
        }
    }

    /// Rows have pages that are not managed where struct pages cannot be read.
    #[test]
    fn shares_are_of_the_sum_of_all_rows() {
        let balance = |managed| Balance {
            managed: Some(PageCount::new(managed)),
            rows: vec![Row {
                kind: RowKind::Undecided,
                pages: PageCount::new(2000),
                owners: Vec::new(),
                owner_count: 0,
            }],
            ..empty()
        };
        let table =
            |managed| text(&balance(managed)).lines().skip(1).take(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            table(1000),
            [" undecided  2,000  7.8 MiB  100.0 %", " all pages  2,000  7.8 MiB  100.0 %"]
        );
        assert_eq!(
            table(2000),
            [" undecided  2,000  7.8 MiB  100.0 %", " managed    2,000  7.8 MiB  100.0 %"]
        );
    }

    #[test]
    fn checks_that_could_not_be_made_are_named() {
        let not_made = NotMade { what: "slab", counter: "NR_SLAB_*", why: "its page is lost".into() };
        let identity = Identity { what: "free", pages: 3, counter: "NR_FREE_PAGES", counted: 3 };
        let out = text(&Balance { identities: vec![identity], not_made: vec![not_made], ..empty() });
        let said = "1 of 1 checks against the kernel's counters hold, 1 could not be made\n  not made: slab, NR_SLAB_*: its page is lost\n";
        assert!(out.contains(said), "{out}");
    }

    #[test]
    fn a_usage_that_cannot_be_right_is_not_printed() {
        let cgroup = Cgroup { path: "/web".into(), ..Cgroup::default() };
        let cgroups = Cgroups { largest: vec![cgroup], count: 1, ..Cgroups::default() };
        let mut out = String::new();
        super::cgroups(&Balance { cgroups, ..empty() }, &mut out);
        let row = out.lines().find(|line| line.contains("/web")).unwrap();
        assert_eq!(row.matches("not known").count(), 2, "{out}");
    }

    #[test]
    fn generations_have_ages_in_whole_units() {
        let age = |up_to_ms, anonymous, file| Age {
            up_to_ms,
            anonymous: PageCount::new(anonymous),
            file: PageCount::new(file),
        };
        let ages = vec![age(Some(1_000), 256, 0), age(Some(600_000), 0, 1), age(None, 2, 3)];
        let found = Generations { ages, age_not_known: PageCount::new(2), ..Generations::default() };
        let with = |generations| {
            let mut out = String::new();
            super::generations(&Balance { generations, ..empty() }, &mut out);
            out.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
        };
        let lines = with(Some(found));
        assert_eq!(
            lines,
            [
                "",
                " generations of the LRU, age  anonymous     files",
                " up to 1 s                      1.0 MiB       0 B",
                " up to 10 min                       0 B   4.0 KiB",
                " older                          8.0 KiB  12.0 KiB",
                "  8.0 KiB in generations whose age is not known",
            ]
        );
        assert!(with(Some(Generations::default())).is_empty() && with(None).is_empty());
        assert_eq!([1, 60, 90, 7_200, 86_400].map(in_one_unit), ["1 s", "1 min", "90 s", "2 h", "1 day"]);
    }

    #[test]
    fn no_check_is_not_one_that_holds() {
        assert_eq!(
            checks(0, &empty()),
            "nothing was checked against the kernel's counters: none can be read"
        );
        let identity = || Identity { what: "free", pages: 3, counter: "NR_FREE_PAGES", counted: 4 };
        let two = Balance { identities: vec![identity(), identity()], ..empty() };
        assert_eq!(checks(0, &two), "0 of 2 checks against the kernel's counters hold");
    }
}
