//! The tables that text and web page share.

use std::collections::BTreeSet;

use pagehaul_census::{Census, ClassCount};
use pagehaul_present::number::{bytes, count, percent};
use pagehaul_present::{Cell, Table};

/// Formats the size of pages.
pub(super) fn size(census: &Census, pages: u64) -> String {
    bytes(pages.saturating_mul(census.page_size))
}

/// Returns the CSS colour of a class.
pub(super) fn color(class: &str) -> &'static str {
    match class {
        "kernel" => "#3f6fa8",
        "page-table" => "#3aa5a0",
        "slab" => "#4f9d4a",
        "cache" => "#e8bf3c",
        "cache-private" => "#ee8a2c",
        "anon" => "#d9504f",
        "hugetlb" => "#9a5fb0",
        "free" => "#c9ced6",
        "unaccepted" => "#8c8f94",
        "hwpoison" => "#e6007e",
        "offline" => "#8a6240",
        "no-struct-page" => "#7d8ba1",
        "undecided" => "#ff8fa3",
        _ => "#888888",
    }
}

fn class(name: &'static str) -> Cell {
    Cell { swatch: Some(color(name)), ..Cell::from(name) }
}

/// Pages by class, in the given order.
pub(super) fn classes<'a>(census: &Census, classes: impl IntoIterator<Item = &'a ClassCount>) -> Table {
    let mut table = Table::new(["class", "pages", "size", "share", "in the dump"]);
    for of in classes {
        let share = percent(of.pages, census.pages);
        let figures = [count(of.pages), size(census, of.pages), share, count(of.in_dump)];
        table.row([class(of.class)].into_iter().chain(figures.map(Cell::from)));
    }
    let in_dump = census.classes.iter().map(|of| of.in_dump).sum();
    table.row([
        "all".to_owned(),
        count(census.pages),
        size(census, census.pages),
        String::new(),
        count(in_dump),
    ]);
    table
}

/// Blocks by class and order. A cell's background shows the share of the class that its blocks hold.
pub(super) fn orders(census: &Census) -> Table {
    let orders: BTreeSet<u32> = census.orders.values().flat_map(|orders| orders.keys().copied()).collect();
    let header = ["blocks of order".to_owned()].into_iter().chain(orders.iter().map(u32::to_string));
    let mut table = Table::new(header);
    for &name in &census.class_names {
        let Some(found) = census.orders.get(name) else { continue };
        let all = census.classes.iter().find(|of| of.class == name).map_or(0, |of| of.pages);
        let cell = |order: &u32| {
            let Some(&blocks) = found.get(order) else { return Cell::default() };
            let pages = blocks.saturating_mul(1_u64.checked_shl(*order).unwrap_or(u64::MAX));
            let share = (pages as f64 / all.max(1) as f64).min(1.0);
            Cell {
                title: Some(format!("{}, {} of {name}", size(census, pages), percent(pages, all))),
                background: Some(format!("{}{:02x}", color(name), (20.0 + 130.0 * share) as u8)),
                ..Cell::from(count(blocks))
            }
        };
        table.row([class(name)].into_iter().chain(orders.iter().map(cell)));
    }
    table
}
