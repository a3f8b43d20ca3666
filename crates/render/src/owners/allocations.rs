//! What allocated memory, where the kernel recorded it: stacks of pages and of slab objects, and places in the source.

use std::fmt::Write as _;

use pagehaul_machine::PageCount;
use pagehaul_owners::{Balance, SlabUser, allocator_frames};
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count, percent};

use super::printable;

/// Stacks and places that are printed.
const MANY: usize = 10;
/// IDs of tasks that are printed.
const PIDS: usize = 4;
/// Functions of a stack that are printed.
const FUNCTIONS: usize = 5;

/// Formats both, as far as the kernel has them.
pub(super) fn text(balance: &Balance, out: &mut String) {
    for (table, about) in
        [stacks(balance, MANY), slab_users(balance, MANY), sites(balance, MANY)].into_iter().flatten()
    {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n{table}  {about}\n");
    }
}

/// The stacks with the most pages, and a sentence on all of them.
pub(super) fn stacks(balance: &Balance, most: usize) -> Option<(Table, String)> {
    let stacks = balance.stacks.as_ref()?;
    let size = |pages: PageCount| bytes(pages.bytes(balance.page_size));
    let mut table = Table::new(["allocated by (page_owner)", "pages", "size", "share"]);
    // Stacks that differ in functions that are not shown are one line.
    let mut lines: Vec<(String, u64)> = Vec::new();
    for found in &stacks.largest {
        let name = asked(&found.stack);
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, pages)) => *pages = pages.saturating_add(found.pages.get()),
            None => lines.push((name, found.pages.get())),
        }
    }
    lines.sort_by_key(|(_, pages)| std::cmp::Reverse(*pages));
    for (name, pages) in lines.into_iter().take(most) {
        table.row([
            printable(&name),
            count(pages),
            size(PageCount::new(pages)),
            percent(pages, stacks.allocated.get()),
        ]);
    }
    let mut about = format!(
        "{}{} allocated pages, {} stacks; of them {} are from before page_owner started",
        if stacks.not_known.get() > 0 { "at least " } else { "" },
        count(stacks.allocated.get()),
        count(stacks.count as u64),
        count(stacks.early.get()),
    );
    for (pages, what) in [
        (stacks.unsaved, "are page_owner's own, or have no stack"),
        (stacks.unread, "have stacks that cannot be read"),
    ] {
        if pages.get() > 0 {
            let _ = write!(about, ", {} {what}", count(pages.get()));
        }
    }
    if stacks.not_known.get() > 0 {
        let _ = write!(about, "; what is kept of {} others cannot be read", count(stacks.not_known.get()));
    }
    Some((table, about))
}

/// The functions of a stack that asked for memory.
fn asked(stack: &[String]) -> String {
    let functions = stack.get(allocator_frames(stack)..).unwrap_or_default();
    let functions: Vec<&str> = functions.iter().take(FUNCTIONS).map(String::as_str).collect();
    functions.join(" < ")
}

/// The stacks of slab caches with the most bytes, and a sentence on all of them.
pub(super) fn slab_users(balance: &Balance, most: usize) -> Option<(Table, String)> {
    // Of which nothing was read, nothing is known: a note says why.
    let users = balance.slab_users.as_ref().filter(|users| users.is_whole || users.objects > 0)?;
    let mut table = Table::new(["objects allocated by (slub_debug)", "cache", "objects", "size", "PIDs"]);
    // Stacks that differ in functions that are not shown are one line.
    let mut lines: Vec<((String, &str), SlabUser)> = Vec::new();
    for user in &users.largest {
        let key = (asked(&user.stack), user.cache.as_str());
        match lines.iter_mut().find(|(known, _)| *known == key) {
            Some((_, line)) => {
                line.objects = line.objects.saturating_add(user.objects);
                line.bytes = line.bytes.saturating_add(user.bytes);
                line.tasks = line.tasks.saturating_add(user.tasks);
                line.pids.extend_from_slice(&user.pids);
            }
            None => lines.push((key, user.clone())),
        }
    }
    lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.bytes));
    for ((name, cache), line) in lines.into_iter().take(most) {
        // Tasks that are not named may be the same for two stacks.
        let all = line.tasks == line.pids.len();
        let mut pids = line.pids;
        pids.sort_unstable();
        pids.dedup();
        let mut named: Vec<String> = pids.iter().take(PIDS).map(u32::to_string).collect();
        if !all || pids.len() > PIDS {
            named.push("more".to_owned());
        }
        table.row([
            printable(&name),
            printable(cache),
            count(line.objects),
            bytes(line.bytes),
            named.join(", "),
        ]);
    }
    let mut about = format!(
        "{}{} objects in use in {} caches with records, {} stacks",
        if users.is_whole { "" } else { "at least " },
        count(users.objects),
        count(users.caches as u64),
        count(users.count as u64),
    );
    if users.unrecorded > 0 {
        let _ = write!(about, "; {} of them have no record that can be read", count(users.unrecorded));
    }
    Some((table, about))
}

/// The places with the most bytes, and a sentence on all of them.
pub(super) fn sites(balance: &Balance, most: usize) -> Option<(Table, String)> {
    let sites = balance.sites.as_ref()?;
    let size = |bytes_of: i64| match u64::try_from(bytes_of) {
        Ok(positive) => bytes(positive),
        Err(_) => format!("-{}", bytes(bytes_of.unsigned_abs())),
    };
    let mut table = Table::new(["allocation site", "size", "calls"]);
    for site in sites.largest.iter().take(most) {
        let module = site.module.as_ref().map_or_else(String::new, |module| format!(" [{module}]"));
        table.row([
            printable(&format!("{}:{} {}{module}", site.file, site.line, site.function)),
            size(site.bytes),
            site.calls.to_string(),
        ]);
    }
    let about = format!(
        "{} in {} sites, as /proc/allocinfo had them; slab pages count twice: as pages, and as objects",
        size(sites.bytes),
        count(sites.count as u64)
    );
    Some((table, about))
}
