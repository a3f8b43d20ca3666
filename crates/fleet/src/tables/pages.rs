//! `page_classes`: what memory was used for.

use pagehaul_census::Census;

use super::{longs, texts};
use crate::table::{Key, Table, Values};

/// Makes `page_classes`.
pub(crate) fn pages(census: &Census, key: &Key) -> Table {
    let usage = census.usage.as_slice();
    let columns = [
        ("node", Values::int(usage.iter().map(|row| row.place.map(|(node, _)| node)))),
        ("zone", Values::text(usage.iter().map(|row| row.place.map(|(_, zone)| zone)))),
        ("class", texts(usage, |row| row.class)),
        ("order", Values::int(usage.iter().map(|row| Some(row.order)))),
        ("pages", longs(usage, |row| row.pages)),
        ("in_dump_pages", longs(usage, |row| row.in_dump)),
    ];
    Table::new("page_classes", key, columns)
}
