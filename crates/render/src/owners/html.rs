//! Who owns the memory, as a web page.

use maud::{Markup, html};
use pagehaul_machine::PageCount;
use pagehaul_owners::{Balance, Identity, RowKind};
use pagehaul_present::html::{facts, page as build, part, tiles};
use pagehaul_present::number::{bytes, count, percent};
use pagehaul_present::{Table, Tone, explore, printable};

use super::{allocations, cgroup_table, checks, fragments, generation_table, memory_use};
use crate::memory_use::STYLE;

/// Builds the web page of a balance of the dump `name`.
pub fn page(balance: &Balance, name: &str) -> String {
    let of = memory_use(balance);
    let mut sections = vec![("owners", "Owners", String::new(), html! { (of.bar(true)) (of.table()) })];
    if !balance.outside.is_empty() {
        let about = "Memory that the kernel's allocator does not manage.";
        sections.push(("outside", "Outside", about.into(), html! { (outside(balance)) }));
    }
    if let Some((table, about)) = allocations::stacks(balance, usize::MAX) {
        sections.push(("stacks", "Allocated by", about, html! { (table) }));
    }
    if let Some((table, about)) = allocations::slab_users(balance, usize::MAX) {
        sections.push(("slab-objects", "Slab objects allocated by", about, html! { (table) }));
    }
    let [leaks, tracked] = allocations::kmemleak(balance, usize::MAX);
    if let Some((table, about)) = leaks {
        sections.push(("unreferenced", "Unreferenced objects allocated by", about, html! { (table) }));
    }
    if let Some((table, about)) = tracked {
        sections.push(("tracked", "Tracked objects allocated by", about, html! { (table) }));
    }
    if let Some((table, about)) = allocations::sites(balance, usize::MAX) {
        sections.push(("sites", "Allocation sites", about, html! { (table) }));
    }
    if let Some(table) = cgroup_table(balance, balance.cgroups.largest.len()) {
        sections.push(("cgroups", "Memory cgroups", String::new(), html! { (table) }));
    }
    if let Some(table) = generation_table(balance).filter(|table| !table.rows.is_empty()) {
        let about = "Pages that can be reclaimed, by the time since their generation was the youngest.";
        sections.push(("generations", "Generations of the LRU", about.into(), html! { (table) }));
    }
    if let Some((table, lines)) = fragments(balance) {
        let body = html! { (table) pre { (lines.trim_end()) } };
        sections.push(("fragmentation", "Fragmentation", String::new(), body));
    }
    sections.push((
        "checks",
        "Checked against the kernel's counters",
        about_checks(balance),
        identities(balance),
    ));
    if !balance.missing.is_empty() {
        let lines = balance.missing.iter().map(|why| printable(why)).collect::<Vec<_>>().join("\n");
        let about = "What could not be read, or was cut, and why.";
        sections.push(("missing", "Missing", about.into(), html! { pre { (lines) } }));
    }
    let body = html! {
        h1 { "Who owns the memory" }
        (facts([printable(name).into_owned()]))
        (figures(balance))
        nav aria-label="Sections" { @for (id, title, ..) in &sections { a href=(format!("#{id}")) { (title) } } }
        @for (id, title, about, body) in &sections { (part(id, title, about, body)) }
    };
    build(&format!("Memory of {name}"), &[explore::STYLE, STYLE].concat(), explore::SCRIPT, &body)
}

fn figures(balance: &Balance) -> Markup {
    let size = |pages: PageCount| bytes(pages.bytes(balance.page_size));
    let all = balance.sum();
    let sum = if balance.managed == Some(all) { "managed" } else { "in all rows" };
    let free: PageCount = balance.rows.iter().filter(|row| row.kind.is_free()).map(|row| row.pages).sum();
    let without = balance.pages(RowKind::NoOwner);
    let mut figures =
        vec![(Tone::Plain, size(all), sum.to_owned()), (Tone::Plain, size(free), "free".into())];
    if let Some(row) = balance.largest().next() {
        figures.push((Tone::Plain, size(row.pages), format!("most of what is in use: {}", row.kind.name())));
    }
    figures.push((
        Tone::Plain,
        size(without),
        format!("no owner known ({})", percent(without.get(), all.get())),
    ));
    tiles(figures)
}

fn outside(balance: &Balance) -> Table {
    let mut table = Table::new(["what", "pages", "size"]);
    table.rows(balance.outside.iter().map(|outside| {
        let size = bytes(outside.pages.bytes(balance.page_size));
        [outside.name.to_owned(), count(outside.pages.get()), size]
    }));
    table
}

fn about_checks(balance: &Balance) -> String {
    checks(balance.identities.len() - balance.broken().count(), balance)
}

fn identities(balance: &Balance) -> Markup {
    let mut table = Table::new(["rows", "pages", "counter", "by the kernel", "difference"]).left([0, 2]);
    table.rows(balance.identities.iter().map(|identity: &Identity| {
        [
            identity.what.to_owned(),
            identity.pages.to_string(),
            identity.counter.to_owned(),
            identity.counted.to_string(),
            format!("{:+}", identity.difference()),
        ]
    }));
    html! { @if !table.rows.is_empty() { (table) } }
}
