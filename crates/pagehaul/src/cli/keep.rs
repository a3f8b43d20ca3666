//! `--keep-cgroup`, `--keep-pid` and `--drop-file-systems`: which pages of user space a dump holds, by their owner.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use pagehaul_capture::{OwnerFilter, OwnerRules};
use pagehaul_elfcore::notes;
use pagehaul_keep::{Choice, find};
use pagehaul_kernel::{DumpLevel, PageClass};
use pagehaul_present::number;
use pagehaul_run::memory;
use pagehaul_vmcore::Source;

use crate::{crash_report, usage};

/// Bits of a dump level that exclude memory of user space: page cache and processes.
const USER: u8 = DumpLevel::CACHE | DumpLevel::CACHE_PRIVATE | DumpLevel::USER;

/// Whose pages of user space a dump holds.
#[derive(Debug, Args)]
pub(crate) struct Keep {
    /// Of the pages of user space that the dump level does not exclude, keep only those charged to this memory cgroup and those below
    /// it: a path as in /proc/PID/cgroup, such as /system.slice/postgresql.service; may be repeated. Free pages, which have what
    /// processes left, are excluded, too. What cannot be known is an error before anything is written. Needs the kernel's types (BTF)
    #[arg(long, value_name = "CGROUP")]
    keep_cgroup: Vec<String>,
    /// The same for the pages that these processes map, separated by commas; not their children. With --keep-cgroup, the pages of both
    /// are kept
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    keep_pid: Vec<u32>,
    /// Exclude cached pages of files on file systems of these types, separated by commas (xfs,fuse), whoever else may keep them. bdev is
    /// what file systems cache of their disks; tmpfs is shared memory, too
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    drop_file_systems: Vec<String>,
}

/// How a record of owners whose pages are kept begins.
const KEEPS: &str = "keep ";

impl Keep {
    fn choice(&self) -> Choice {
        Choice {
            cgroups: self.keep_cgroup.clone(),
            pids: self.keep_pid.clone(),
            file_systems: self.drop_file_systems.clone(),
        }
    }

    /// Those of these options that are there.
    pub(crate) fn given(&self) -> Option<String> {
        let given = [
            (!self.keep_cgroup.is_empty(), "--keep-cgroup"),
            (!self.keep_pid.is_empty(), "--keep-pid"),
            (!self.drop_file_systems.is_empty(), "--drop-file-systems"),
        ];
        let given: Vec<&str> = given.iter().filter(|(given, _)| *given).map(|(_, option)| *option).collect();
        (!given.is_empty()).then(|| given.join(" and "))
    }

    /// Returns the dump level: `given`, or `default`, or with owners whose pages are kept, the one that excludes no memory of theirs.
    pub(crate) fn level(&self, given: Option<DumpLevel>, default: DumpLevel) -> anyhow::Result<DumpLevel> {
        if !self.choice().keeps_some() {
            return Ok(given.unwrap_or(default));
        }
        let option = self.given().unwrap_or_default();
        let all_but_user = DumpLevel::new(default.bits() & !USER).unwrap_or(default);
        match given {
            None => Ok(all_but_user),
            Some(level) if level.excludes(PageClass::Anon) && level.excludes(PageClass::CachePrivate) => {
                Err(usage::wrong(format!(
                    "dump level {level} excludes all memory of user space, so {option} would keep nothing; leave out -d, or \
                     use one without cache-private or user"
                )))
            }
            Some(level) => Ok(level),
        }
    }

    /// Finds what is chosen in `source`, which this process reads, and records it there.
    pub(crate) fn apply(&self, source: &mut Source, quiet: bool) -> anyhow::Result<Option<Arc<OwnerFilter>>> {
        self.apply_found(source, quiet, |choice, source| Ok(find(source.memory(), choice)?))
    }

    /// The same; another process, which gets `arguments`, finds it within `budget`.
    pub(crate) fn apply_from_other(
        &self,
        source: &mut Source,
        arguments: &[OsString],
        budget: Duration,
        quiet: bool,
    ) -> anyhow::Result<Option<Arc<OwnerFilter>>> {
        self.apply_found(source, quiet, |choice, _| crash_report::owner_rules(choice, arguments, budget))
    }

    fn apply_found(
        &self,
        source: &mut Source,
        quiet: bool,
        find: impl FnOnce(&Choice, &Source) -> anyhow::Result<OwnerRules>,
    ) -> anyhow::Result<Option<Arc<OwnerFilter>>> {
        let Some(option) = self.given() else { return Ok(None) };
        let choice = self.choice();
        let cannot =
            || format!("{}: {option} cannot be followed, and nothing is written", source.path().display());
        let excluded = source.level() & u32::from(USER);
        let level = DumpLevel::new(excluded as u8).unwrap_or_default();
        if choice.keeps_some() && level.excludes(PageClass::Anon) && level.excludes(PageClass::CachePrivate) {
            let source_level = source.level();
            return Err(anyhow!(
                "the source was made at dump level {source_level}, without memory of user space"
            ))
            .with_context(cannot);
        }
        let rules = find(&choice, source).with_context(cannot)?;
        // The rest of the memory is for the capture.
        let most = memory::available().map_or(u64::MAX, |bytes| bytes / 4);
        let filter = OwnerFilter::new(source.memory(), rules, most).with_context(cannot)?;
        if !quiet {
            for line in &filter.rules().record {
                tell!("pagehaul: {line}");
            }
            if !choice.pids.is_empty() {
                let bytes = source.memory().platform().page_size.bytes_of(filter.mapped_pages());
                tell!("pagehaul: the processes map {}", number::bytes(bytes));
            }
        }
        // Of the pages that an earlier choice left, not besides them.
        let of_source = source.memory().notes();
        let chosen = notes::lines_of(of_source, notes::OWNERS);
        let is_chosen = chosen.is_some_and(|lines| lines.lines().any(|line| line.contains(KEEPS)));
        let line = |line: &String| match is_chosen && line.starts_with(KEEPS) {
            true => format!("of these, {line}"),
            false => line.clone(),
        };
        let record: Vec<String> = filter.rules().record.iter().map(line).collect();
        source.supply_notes(notes::with_lines(of_source, notes::OWNERS, 0, &record));
        Ok(Some(Arc::new(filter)))
    }
}
