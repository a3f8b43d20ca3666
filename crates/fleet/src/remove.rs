//! `pagehaul-fleet remove`: takes the rows of crashes out of all tables.

mod rewrite;
mod selection;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pagehaul_facts::SCHEMA_VERSION;
use pagehaul_present::{Table, number, sentence};
use pagehaul_redact::Redaction;

use crate::date::parse_date;
use crate::lock::Lock;
use crate::names::MANIFEST;
use crate::written::check_writable;
pub(crate) use rewrite::Rewrite;
use selection::is_hash;
pub(crate) use selection::{Selection, Wanted};

/// Tables that tell the host and the time of a crash, in the order in which they are rewritten: last, so that a run after one that was
/// killed finds the same crashes.
const LAST: [&str; 4] = ["reclaim_runs", "latency_runs", "dumps", MANIFEST];

/// Remove crashes from all tables: one, those of a host, or old ones
///
/// Rewrites each file that has rows of them, tables of your own and the manifest included, and removes files that are empty then. A
/// recording counts as a crash. Waits until no `extract` runs on this machine's view of TABLES. A file is replaced at once: after a kill at
/// any moment, each file is the old or the new one, and the same command again ends the work. Files that killed runs left (.tmp*) are
/// removed. If a file cannot be read, so that it may still have rows of the crashes, the tables by which they are found stay, too: mend or
/// remove that file, and run the command again. Rows of other crashes stay, also where their log mentions the host. So do dumps, copies and
/// snapshots.
///
/// Exit status: 0, done, also if there is nothing to remove; 1, TABLES cannot be read or locked; 2, the command line is wrong; 3, some
/// files were left as they are.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul-fleet remove tables --host web1.example.com --dry-run
  pagehaul-fleet remove tables --host web1.example.com --redact key
  pagehaul-fleet remove tables --crash 2e7021f00871938ce32b0b49bd3beb73
  pagehaul-fleet remove tables --before 2026-01-01")]
pub(crate) struct RemoveArguments {
    /// Directory of the tables
    #[arg(value_name = "TABLES")]
    directory: PathBuf,
    #[command(flatten)]
    crashes: Crashes,
    /// The tables were made with this key: the host is one whose name became a hash. A hash (host-…) can also be given as the NAME
    #[arg(long, value_name = "KEY", conflicts_with_all = ["crash", "before"])]
    redact: Option<PathBuf>,
    /// Print what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Crashes {
    /// Remove this crash (crash_id) or recording (run_id). Can be given several times
    #[arg(long, value_name = "ID", value_parser = parse_id)]
    crash: Vec<String>,
    /// Remove the crashes and recordings of this host, and failed dumps whose path has the name. Can be given several times
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    host: Vec<String>,
    /// Remove what crashed or was recorded before DATE: 2026-11-01, or a time such as 2026-11-01T12:00:00Z. Crashes without a time stay
    #[arg(long, value_name = "DATE", value_parser = parse_date)]
    before: Option<i64>,
}

fn parse_id(text: &str) -> Result<String, String> {
    match text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("expected the 32 hexadecimal digits of a crash_id or run_id".to_owned()),
    }
}

pub(crate) fn run(arguments: &RemoveArguments) -> anyhow::Result<ExitCode> {
    let redaction = arguments.redact.as_deref().map(Redaction::from_file).transpose()?;
    let crashes = &arguments.crashes;
    let hashes = crashes.host.iter().filter_map(|host| Some(redaction.as_ref()?.name("host", host)));
    let wanted = Wanted {
        ids: crashes.crash.iter().cloned().collect(),
        hosts: crashes.host.iter().cloned().chain(hashes).collect(),
        before: crashes.before,
    };
    let directory = arguments.directory.as_path();
    let _lock = Lock::exclusive(directory)?;
    if !arguments.dry_run {
        check_writable(directory)?;
    }
    let mut done = Done::default();
    let selection = Selection::find(directory, wanted, &mut done.left)?;
    let tree = Tree::read(directory, &mut done.left)?;
    if !arguments.dry_run {
        tree.remove_leftovers()?;
    }
    for (table, files) in &tree.tables {
        // What a file that was left may have is found by the tables that tell the host.
        if done.incomplete && LAST.contains(&table.as_str()) {
            done.left
                .push(format!("{table}, without which the rows in the files above could not be found again"));
            continue;
        }
        for path in files {
            done.file(table, path, &selection, arguments.dry_run);
        }
    }
    let code = done.report(&selection, arguments.dry_run)?;
    if selection.has_hashes {
        crashes.host.iter().for_each(|host| hint(host, redaction.as_ref(), &selection));
    }
    Ok(code)
}

/// Says why a host may not have been found in tables whose hosts are hashes.
fn hint(host: &str, redaction: Option<&Redaction>, selection: &Selection) {
    const HASHED: &str = "hosts in the tables are hashes of a key (host-…)";
    if is_hash(host) {
        return;
    }
    match redaction.map(|redaction| redaction.name("host", host)) {
        None => crate::console::tell(&format!(
            "pagehaul-fleet: {HASHED}: to find {host} by its hash, give --redact KEY"
        )),
        Some(hash) if !selection.hosts.contains(host) && !selection.hosts.contains(&hash) => {
            crate::console::tell(&format!(
                "pagehaul-fleet: {HASHED}, and none is that of {host} with this key"
            ));
        }
        Some(_) => {}
    }
}

/// What was done.
#[derive(Debug, Default)]
struct Done {
    /// Table, rows that were removed, files that were rewritten, files that are gone.
    tables: Vec<(String, u64, u64, u64)>,
    /// Why files were left as they are.
    left: Vec<String>,
    /// Whether a file of a table was left, which may have rows to remove.
    incomplete: bool,
}

impl Done {
    fn file(&mut self, table: &str, path: &Path, selection: &Selection, dry_run: bool) {
        let rewrite = match Rewrite::plan(table, path, selection) {
            Ok(Some(rewrite)) => rewrite,
            Ok(None) => return,
            Err(why) => {
                self.left.push(sentence(why.chain()));
                self.incomplete = true;
                return;
            }
        };
        if !dry_run && let Err(why) = rewrite.run() {
            self.left.push(sentence(why.chain()));
            self.incomplete = true;
            return;
        }
        if self.tables.last().is_none_or(|(last, ..)| last != table) {
            self.tables.push((table.to_owned(), 0, 0, 0));
        }
        if let Some((_, rows, rewritten, gone)) = self.tables.last_mut() {
            *rows += rewrite.removed();
            *(if rewrite.is_empty() { gone } else { rewritten }) += 1;
        }
    }

    fn report(&self, selection: &Selection, dry_run: bool) -> anyhow::Result<ExitCode> {
        let mut table = Table::new(["table", "rows", "files rewritten", "files removed"]);
        for (name, rows, rewritten, gone) in &self.tables {
            table.row([name.clone(), number::count(*rows), number::count(*rewritten), number::count(*gone)]);
        }
        let rows: u64 = self.tables.iter().map(|(_, rows, ..)| rows).sum();
        let files: u64 = self.tables.iter().map(|(_, _, rewritten, gone)| rewritten + gone).sum();
        let total = match (rows, dry_run) {
            (0, _) if self.incomplete => "removed nothing\n".to_owned(),
            (0, _) => "nothing to remove\n".to_owned(),
            (_, true) => format!("would remove {rows} rows of {} from {files} files\n", selection.about()),
            (_, false) => format!("removed {rows} rows of {} from {files} files\n", selection.about()),
        };
        let table = if rows == 0 { String::new() } else { table.to_string() };
        crate::console::say(&format!("{table}{total}{}", selection.notes()))?;
        self.left
            .iter()
            .for_each(|why| crate::console::tell(&format!("pagehaul-fleet: left as it is: {why}")));
        Ok(if self.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) })
    }
}

/// The files in a directory of tables.
struct Tree {
    /// Parquet files by table, in the order in which they are rewritten.
    tables: Vec<(String, Vec<PathBuf>)>,
    /// Temporary files and directories.
    leftovers: Vec<PathBuf>,
}

impl Tree {
    /// Lists the files. `left` names those that are not of a table.
    fn read(directory: &Path, left: &mut Vec<String>) -> anyhow::Result<Self> {
        let mut tree = Self { tables: Vec::new(), leftovers: Vec::new() };
        let mut unknown = Vec::new();
        for (path, is_directory) in entries(directory)? {
            if is_temporary(&path) {
                tree.leftovers.push(path);
            } else if is_directory {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let mut files = Vec::new();
                tree.walk(&path, &path.join(format!("v={SCHEMA_VERSION}")), &mut files, &mut unknown)?;
                tree.tables.push((name, files));
            } else {
                unknown.push(path);
            }
        }
        left.extend(unknown.iter().map(|path| format!("{} is not a file of a table", path.display())));
        let order = |name: &str| LAST.iter().position(|last| *last == name).map_or(0, |at| at + 1);
        tree.tables.sort_by(|(a, _), (b, _)| (order(a), a).cmp(&(order(b), b)));
        Ok(tree)
    }

    fn walk(
        &mut self,
        directory: &Path,
        versioned: &Path,
        files: &mut Vec<PathBuf>,
        unknown: &mut Vec<PathBuf>,
    ) -> anyhow::Result<()> {
        for (path, is_directory) in entries(directory)? {
            if is_temporary(&path) {
                self.leftovers.push(path);
            } else if is_directory {
                self.walk(&path, versioned, files, unknown)?;
            } else if path.starts_with(versioned) && path.extension().is_some_and(|name| name == "parquet") {
                files.push(path);
            } else {
                unknown.push(path);
            }
        }
        Ok(())
    }

    fn remove_leftovers(&self) -> anyhow::Result<()> {
        for path in &self.leftovers {
            let removed = if path.is_symlink() || !path.is_dir() {
                fs::remove_file(path)
            } else {
                fs::remove_dir_all(path)
            };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}

/// Returns what is in a directory by name, and whether it is a directory itself.
fn entries(directory: &Path) -> anyhow::Result<Vec<(PathBuf, bool)>> {
    let context = || format!("cannot read {}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(context)? {
        let entry = entry.with_context(context)?;
        found.push((entry.path(), entry.file_type().with_context(context)?.is_dir()));
    }
    found.sort_unstable();
    Ok(found)
}

/// Whether it was made by a run that did not end: runs that go on hold the lock.
fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".tmp"))
}
