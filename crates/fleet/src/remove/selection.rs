//! Which crashes are removed.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use pagehaul_present::sentence;

use crate::names::MANIFEST;
use crate::read::{TableFile, files};
use crate::table::Values;

/// What the user asks for.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Of crashes and recordings.
    pub(crate) ids: BTreeSet<String>,
    /// Names, or hashes of names.
    pub(crate) hosts: BTreeSet<String>,
    /// Seconds since 1970.
    pub(crate) before: Option<i64>,
}

/// The crashes and recordings that are removed, and the rows of the manifest that have neither.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    wanted: Wanted,
    ids: BTreeSet<String>,
    /// Those of them that a table has.
    found: BTreeSet<String>,
    dumps: BTreeSet<String>,
    /// Crashes of an unknown host, with the name of the host in the path of a dump.
    suspects: BTreeSet<String>,
    /// Hosts that were wanted and found.
    pub(crate) hosts: BTreeSet<String>,
    /// Whether a host is a hash.
    pub(crate) has_hashes: bool,
    /// Crashes without a time.
    timeless: BTreeSet<String>,
}

impl Selection {
    /// Finds the crashes. `left` names files that cannot be read.
    ///
    /// # Errors
    /// Fails if a directory cannot be read.
    pub(crate) fn find(tables: &Path, wanted: Wanted, left: &mut Vec<String>) -> anyhow::Result<Self> {
        let mut found = Self { ids: wanted.ids.clone(), wanted, ..Self::default() };
        for (table, columns) in [
            ("dumps", ["crash_id", "host", "crash_time"]),
            ("reclaim_runs", ["run_id", "host", "started"]),
            ("latency_runs", ["run_id", "host", "started"]),
        ] {
            each(tables, table, columns, left, |[id, host, time], row| {
                if let Some(id) = id.text_at(row) {
                    found.add(id, host.text_at(row), time.number_at(row));
                }
            })?;
        }
        let columns = ["dump_id", "crash_id", "run_id", "host", "time", "extracted", "path", "error"];
        each(
            tables,
            MANIFEST,
            columns,
            left,
            |[dump, crash, run, host, time, extracted, path, error], row| {
                let mentions = [path, error]
                    .into_iter()
                    .filter_map(|text| text.text_at(row))
                    .any(|text| found.is_in(text));
                match crash.text_at(row).or_else(|| run.text_at(row)) {
                    Some(id) => {
                        found.add(id, host.text_at(row), time.number_at(row));
                        if host.text_at(row).is_none() && mentions {
                            found.suspects.insert(id.to_owned());
                        }
                    }
                    // Without tables, all that is known is the path.
                    None if mentions || found.is_before(extracted.number_at(row)) => {
                        found.dumps.extend(dump.text_at(row).map(str::to_owned));
                    }
                    None => {}
                }
            },
        )?;
        let Self { ids, suspects, timeless, .. } = &mut found;
        suspects.retain(|id| !ids.contains(id));
        timeless.retain(|id| !ids.contains(id));
        Ok(found)
    }

    fn add(&mut self, id: &str, host: Option<&str>, time: Option<i64>) {
        self.has_hashes |= host.is_some_and(is_hash);
        self.hosts.extend(host.filter(|host| self.wanted.hosts.contains(*host)).map(str::to_owned));
        let is_wanted = self.wanted.ids.contains(id)
            || host.is_some_and(|host| self.wanted.hosts.contains(host))
            || self.is_before(time);
        if is_wanted {
            self.ids.insert(id.to_owned());
            self.found.insert(id.to_owned());
        } else if time.is_none() && self.wanted.before.is_some() {
            self.timeless.insert(id.to_owned());
        }
    }

    /// `time` is in microseconds.
    fn is_before(&self, time: Option<i64>) -> bool {
        time.zip(self.wanted.before).is_some_and(|(time, before)| time.div_euclid(1_000_000) < before)
    }

    /// Whether the name of a host is in a text, not as a part of another name.
    fn is_in(&self, text: &str) -> bool {
        let inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        self.wanted.hosts.iter().any(|host| {
            text.match_indices(host.as_str()).any(|(at, _)| {
                let (before, rest) = text.split_at(at);
                let after = rest.get(host.len()..).unwrap_or_default();
                !inside(before.chars().next_back()) && !inside(after.chars().next())
            })
        })
    }

    /// Whether the rows with this ID are removed: a crash, or a recording.
    pub(crate) fn has(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.ids.contains(id))
    }

    /// Whether the rows of the manifest with this ID are removed.
    pub(crate) fn has_dump(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.dumps.contains(id))
    }

    /// Counts what is removed.
    pub(crate) fn about(&self) -> String {
        let failed = match self.dumps.len() {
            0 => String::new(),
            count => format!(" and {count} failed dumps"),
        };
        format!("{} crashes{failed}", self.found.len())
    }

    /// Sentences on what stays, although it may be of the host or old.
    pub(crate) fn notes(&self) -> String {
        let mut notes = String::new();
        if !self.suspects.is_empty() {
            let ids: Vec<&str> = self.suspects.iter().map(String::as_str).collect();
            notes += &format!(
                "the host of these crashes is not known, but the path of a dump has its name; remove them by --crash: {}\n",
                ids.join(" ")
            );
        }
        if !self.timeless.is_empty() {
            notes += &format!("{} crashes without a time stay\n", self.timeless.len());
        }
        notes
    }
}

/// Whether the name of a host is one that redaction made.
pub(crate) fn is_hash(host: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    host.strip_prefix("host-").is_some_and(|hash| hash.len() == 12 && hash.bytes().all(hex))
}

/// Calls `row` for each row of a table.
fn each<const N: usize>(
    tables: &Path,
    table: &str,
    columns: [&str; N],
    left: &mut Vec<String>,
    mut row: impl FnMut(&[Values; N], usize),
) -> anyhow::Result<()> {
    for path in files(tables, table)? {
        let mut read = || {
            let file = TableFile::open(&path, table)?;
            for group in 0..file.groups() {
                let read = file.read(group, columns);
                let values = read.with_context(|| format!("cannot read {}", path.display()))?;
                let rows = values.first().map_or(0, Values::len);
                (0..rows).for_each(|at| row(&values, at));
            }
            anyhow::Ok(())
        };
        // It is named once more where it would be rewritten.
        if let Err(why) = read() {
            left.push(sentence(why.chain()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_are_found_as_words() {
        let hosts = BTreeSet::from(["web1".to_owned()]);
        let selection = Selection { wanted: Wanted { hosts, ..Wanted::default() }, ..Selection::default() };
        for (text, is) in [
            ("/dumps/web1/dump", true),
            ("/dumps/web1-2026-11-25/dump", true),
            ("web1", true),
            ("/dumps/web10/dump", false),
            ("/dumps/myweb1/dump", false),
            ("/dumps/web10/web1.dump", true),
            ("", false),
        ] {
            assert_eq!(selection.is_in(text), is, "{text}");
        }
    }
}
