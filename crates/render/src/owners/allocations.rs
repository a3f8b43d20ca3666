//! What allocated memory, where the kernel recorded it: stacks of pages and of slab objects, and places in the source.

use std::fmt::Write as _;

use pagehaul_machine::PageCount;
use pagehaul_owners::{Balance, KmemleakUser, allocator_frames};
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count, percent};
use pagehaul_present::time::seconds;

use super::printable;

/// Stacks and places that are printed.
const MANY: usize = 10;
/// Tasks that are printed.
const TASKS: usize = 4;
/// Functions of a stack that are printed.
const FUNCTIONS: usize = 5;

/// Formats both, as far as the kernel has them.
pub(super) fn text(balance: &Balance, out: &mut String) {
    let [leaks, tracked] = kmemleak(balance, MANY);
    let all = [stacks(balance, MANY), slab_users(balance, MANY), leaks, tracked, sites(balance, MANY)];
    for (table, about) in all.into_iter().flatten() {
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

/// Objects of a stack.
struct Line<'a, T> {
    stack: &'a [String],
    cache: &'a str,
    objects: u64,
    bytes: u64,
    tasks: Vec<T>,
    count: usize,
}

impl<T: Ord + Clone + ToString> Line<'_, T> {
    /// The tasks.
    fn named(&self) -> String {
        // Tasks that are not named may be the same for two stacks.
        let all = self.count == self.tasks.len();
        let mut tasks = self.tasks.clone();
        tasks.sort_unstable();
        tasks.dedup();
        let mut named: Vec<String> =
            tasks.iter().take(TASKS).map(|task| printable(&task.to_string())).collect();
        if !all || tasks.len() > TASKS {
            named.push("more".to_owned());
        }
        named.join(", ")
    }
}

/// Makes stacks one line that differ in functions that are not shown. Those with the most bytes come first.
fn merged<'a, T>(all: impl Iterator<Item = Line<'a, T>>) -> Vec<(String, Line<'a, T>)> {
    let mut lines: Vec<(String, Line<'a, T>)> = Vec::new();
    for found in all {
        let name = asked(found.stack);
        match lines.iter_mut().find(|(known, line)| *known == name && line.cache == found.cache) {
            Some((_, line)) => {
                line.objects = line.objects.saturating_add(found.objects);
                line.bytes = line.bytes.saturating_add(found.bytes);
                line.count = line.count.saturating_add(found.count);
                line.tasks.extend(found.tasks);
            }
            None => lines.push((name, found)),
        }
    }
    lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.bytes));
    lines
}

/// The stacks of slab caches with the most bytes, and a sentence on all of them.
pub(super) fn slab_users(balance: &Balance, most: usize) -> Option<(Table, String)> {
    // Of which nothing was read, nothing is known: a note says why.
    let users = balance.slab_users.as_ref().filter(|users| users.is_whole || users.objects > 0)?;
    let mut table = Table::new(["objects allocated by (slub_debug)", "cache", "objects", "size", "PIDs"]);
    let lines = users.largest.iter().map(|user| Line {
        stack: &user.stack,
        cache: &user.cache,
        objects: user.objects,
        bytes: user.bytes,
        tasks: user.pids.clone(),
        count: user.tasks,
    });
    for (name, line) in merged(lines).into_iter().take(most) {
        let tasks = line.named();
        table.row([printable(&name), printable(line.cache), count(line.objects), bytes(line.bytes), tasks]);
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

/// The stacks with the most bytes of unreferenced objects, if kmemleak found some, and those of all objects, each with a sentence.
pub(super) fn kmemleak(balance: &Balance, most: usize) -> [Option<(Table, String)>; 2] {
    // Of which nothing was read, nothing is known: a note says why.
    let Some(found) = balance.kmemleak.as_ref().filter(|found| found.is_whole || found.objects > 0) else {
        return [None, None];
    };
    let least = if found.is_whole { "" } else { "at least " };
    let scan = match found.scanned {
        Some(ago @ 0..60) => format!("last scan {ago} s before the end"),
        Some(ago) => format!("last scan {} before the end", seconds(ago as f64)),
        None => "no scan is known".to_owned(),
    };
    let leaks = (found.unreferenced > 0).then(|| {
        let about = format!(
            "{least}{} objects that kmemleak's last scan found no pointer to, {}, {} stacks; {scan}",
            count(found.unreferenced),
            bytes(found.unreferenced_bytes),
            count(found.leak_count as u64),
        );
        (objects("unreferenced, allocated by (kmemleak)", &found.leaks, most), about)
    });
    let mut about = format!(
        "{least}{} objects that kmemleak tracks, {}, {} stacks; of them {} unreferenced; {scan}",
        count(found.objects),
        bytes(found.bytes),
        count(found.count as u64),
        count(found.unreferenced),
    );
    if found.unrecorded > 0 {
        let _ = write!(about, "; {} have no stack that can be read", count(found.unrecorded));
    }
    if !found.is_enabled {
        about += "; kmemleak stopped before the end: objects freed since may be among them";
    }
    [leaks, Some((objects("tracked, allocated by (kmemleak)", &found.largest, most), about))]
}

fn objects(title: &str, users: &[KmemleakUser], most: usize) -> Table {
    let mut table = Table::new([title, "objects", "size", "by"]);
    let lines = users.iter().map(|user| Line {
        stack: &user.stack,
        cache: "",
        objects: user.objects,
        bytes: user.bytes,
        tasks: user.allocated_by.clone(),
        count: user.tasks,
    });
    for (name, line) in merged(lines).into_iter().take(most) {
        table.row([printable(&name), count(line.objects), bytes(line.bytes), line.named()]);
    }
    table
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
