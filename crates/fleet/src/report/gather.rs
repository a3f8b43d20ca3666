//! Reads what a report needs: the crashes, and the state of each at death.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::SystemTime;

use anyhow::Context;
use pagehaul_pool::map_numbers;

use crate::names::MANIFEST;
use crate::read::{TableFile, files};
use crate::table::Values;

const DAY: i64 = 86_400;
/// 2027-01-01. A machine whose clock has no battery starts before this program was made, and writes metrics then.
const MADE: i64 = 1_798_761_600;

/// A crash: a row of `dumps`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Crash {
    pub(crate) id: String,
    pub(crate) sig: Option<String>,
    /// Null in tables of older programs.
    pub(crate) coarse: Option<String>,
    pub(crate) frames: Vec<String>,
    /// Its bug, by its place in the file of bugs.
    pub(crate) bug: Option<usize>,
    pub(crate) title: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) release: Option<String>,
    pub(crate) host: Option<String>,
    /// Whether a log without a crash says nothing: it could not be read, or not in whole.
    pub(crate) log_unread: bool,
    /// Seconds since 1970.
    pub(crate) time: Option<i64>,
    pub(crate) state: State,
    /// Path or URL of its dumps, those with tables first. Only [`find_dumps`] knows them.
    pub(crate) dumps: Vec<String>,
}

/// What crashes are counted under: the bug, where one is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Row<'a> {
    Bug(usize),
    Signature(&'a str),
}

impl Crash {
    /// Returns what the crash is counted under. `None` without a crash in the log.
    pub(crate) fn row(&self) -> Option<Row<'_>> {
        self.bug.map(Row::Bug).or_else(|| self.sig.as_deref().map(Row::Signature))
    }

    /// Returns whether the log was read and has no crash.
    pub(crate) fn has_none(&self) -> bool {
        self.sig.is_none() && !self.log_unread
    }

    /// Returns whether it is not known if the log has a crash.
    pub(crate) fn is_unknown(&self) -> bool {
        self.sig.is_none() && self.log_unread
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.kind.as_deref() == Some("requested")
    }
}

/// A machine at its death. Tables that are absent leave their part empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// Pages by class.
    pub(crate) classes: BTreeMap<String, i64>,
    /// Free pages and min watermark of each zone.
    zones: BTreeMap<(i64, String), [Option<i64>; 2]>,
    /// All tasks, and those in state D.
    pub(crate) tasks: Option<(usize, usize)>,
}

impl State {
    /// Returns whether a zone had less free memory than its min watermark. `None` if no zone is known.
    pub(crate) fn below_min(&self) -> Option<bool> {
        let zones = self.zones.values().filter_map(|[free, min]| Some((*free)? < (*min)?));
        zones.reduce(|a, b| a || b)
    }
}

/// Everything that was read.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) crashes: Vec<Crash>,
    /// Files that cannot be read, and why.
    pub(crate) unreadable: Vec<String>,
}

/// Returns seconds since 1970 that can be the time of a crash: a wrong clock or damaged notes give any number, and one of the year
/// 10000 would be the last crash for good. A day is for clocks that differ.
pub(crate) fn plausible(time: i64) -> Option<i64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.ok().and_then(|now| i64::try_from(now.as_secs()).ok()).unwrap_or(0);
    (time <= now.max(MADE) + DAY).then_some(time)
}

/// Reads the tables in a directory.
///
/// # Errors
/// Fails if a directory cannot be read.
pub(crate) fn gather(tables: &Path) -> anyhow::Result<Fleet> {
    let mut unreadable = Vec::new();
    let columns = [
        "crash_id",
        "sig",
        "sig_coarse",
        "frames",
        "title",
        "kind",
        "release",
        "host",
        "crash_time",
        "log_whole",
    ];
    let mut crashes =
        per_crash(tables, "dumps", columns, &mut unreadable, |crash: &mut Crash, columns, row| {
            let [id, sig, coarse, frames, title, kind, release, host, time, whole] = columns;
            let text = |values: &Values| values.text_at(row).map(str::to_owned);
            *crash = Crash {
                id: text(id).unwrap_or_default(),
                sig: text(sig),
                coarse: text(coarse),
                frames: frames.texts_at(row),
                bug: None,
                title: text(title),
                kind: text(kind),
                release: text(release),
                host: text(host),
                log_unread: whole.number_at(row) == Some(0),
                time: time.number_at(row).and_then(|time| plausible(time.div_euclid(1_000_000))),
                ..Crash::default()
            };
        })?;
    let columns = ["crash_id", "class", "pages"];
    let pages =
        per_crash(tables, "page_classes", columns, &mut unreadable, |state: &mut State, columns, row| {
            let [_, class, pages] = columns;
            if let (Some(class), Some(pages)) = (class.text_at(row), pages.number_at(row)) {
                match state.classes.get_mut(class) {
                    // Damaged tables have any number.
                    Some(sum) => *sum = sum.saturating_add(pages),
                    None => drop(state.classes.insert(class.to_owned(), pages)),
                }
            }
        })?;
    let columns = ["crash_id", "node", "zone", "item", "value"];
    let zones =
        per_crash(tables, "memory_state", columns, &mut unreadable, |state: &mut State, columns, row| {
            let [_, node, zone, item, value] = columns;
            let at = match item.text_at(row) {
                Some("free") => 0,
                Some("min") => 1,
                _ => return,
            };
            if let (Some(node), Some(zone)) = (node.number_at(row), zone.text_at(row)) {
                state.zones.entry((node, zone.to_owned())).or_default()[at] = value.number_at(row);
            }
        })?;
    let tasks = per_crash(tables, "tasks", ["crash_id", "state"], &mut unreadable, |count, columns, row| {
        let (all, blocked): &mut (usize, usize) = count;
        *all += 1;
        *blocked += usize::from(columns[1].text_at(row) == Some("D"));
    })?;
    for (id, found) in pages {
        if let Some(crash) = crashes.get_mut(&id) {
            crash.state.classes = found.classes;
        }
    }
    for (id, found) in zones {
        if let Some(crash) = crashes.get_mut(&id) {
            crash.state.zones = found.zones;
        }
    }
    for (id, found) in tasks {
        if let Some(crash) = crashes.get_mut(&id) {
            crash.state.tasks = Some(found);
        }
    }
    Ok(Fleet { crashes: crashes.into_values().collect(), unreadable })
}

/// Finds the dumps of the crashes in the manifest.
///
/// # Errors
/// Fails if a directory cannot be read.
pub(crate) fn find_dumps(tables: &Path, fleet: &mut Fleet) -> anyhow::Result<()> {
    let columns = ["dump_id", "crash_id", "path", "rows"];
    type Dump = (String, bool, String);
    let dumps =
        per_crash(tables, MANIFEST, columns, &mut fleet.unreadable, |dump: &mut Dump, columns, row| {
            let [_, crash, path, rows] = columns;
            let text = |values: &Values| values.text_at(row).map(str::to_owned).unwrap_or_default();
            *dump = (text(crash), rows.number_at(row).unwrap_or(0) == 0, text(path));
        })?;
    let mut dumps: Vec<Dump> = dumps.into_values().collect();
    dumps.sort_unstable();
    for crash in &mut fleet.crashes {
        let start = dumps.partition_point(|(id, ..)| *id < crash.id);
        let own = dumps.iter().skip(start).take_while(|(id, ..)| *id == crash.id);
        crash.dumps = own.map(|(.., path)| path.clone()).collect();
    }
    Ok(())
}

/// Adds up the rows of each crash, or dump. The first column is the key. A crash that several files have counts in the first of them.
fn per_crash<T: Default + Send, const N: usize>(
    tables: &Path,
    table: &str,
    columns: [&str; N],
    unreadable: &mut Vec<String>,
    add: impl Fn(&mut T, &[Values; N], usize) + Sync,
) -> anyhow::Result<BTreeMap<String, T>> {
    let files = files(tables, table)?;
    let threads = thread::available_parallelism().map_or(1, Into::into);
    let read = |(): &mut (), number: u64| {
        let path = files.get(number as usize)?;
        Some(read_file(path, table, columns, &add).map_err(|error| pagehaul_present::sentence(error.chain())))
    };
    let mut crashes = BTreeMap::new();
    for file in map_numbers("report", threads, files.len() as u64, || (), read) {
        match file {
            Ok(file) => {
                for (id, sum) in file {
                    crashes.entry(id).or_insert(sum);
                }
            }
            Err(why) => unreadable.push(why),
        }
    }
    Ok(crashes)
}

fn read_file<T: Default, const N: usize>(
    path: &Path,
    table: &str,
    columns: [&str; N],
    add: &impl Fn(&mut T, &[Values; N], usize),
) -> anyhow::Result<BTreeMap<String, T>> {
    let file = TableFile::open(path, table)?;
    let mut crashes: BTreeMap<String, T> = BTreeMap::new();
    for group in 0..file.groups() {
        let read = file.read(group, columns);
        let values = read.with_context(|| format!("cannot read {}", path.display()))?;
        let Some(Values::Text(ids)) = values.first() else { continue };
        // Rows of a crash follow each other.
        let mut start = 0;
        while let Some(id) = ids.get(start) {
            let rows = ids.iter().skip(start).take_while(|other| *other == id).count();
            if let Some(id) = id.as_ref().and_then(|id| id.as_utf8().ok()) {
                let sum = crashes.entry(id.to_owned()).or_default();
                (start..start + rows).for_each(|row| add(sum, &values, row));
            }
            start += rows;
        }
    }
    Ok(crashes)
}
