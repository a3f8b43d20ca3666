//! Entry points for fuzz targets: what commands read of tables, and of files that a team writes.

use std::collections::BTreeSet;
use std::path::Path;

use crate::compact::compact_all;
use crate::manifest::is_clear;
use crate::metrics;
use crate::names::MANIFEST;
use crate::place::Quality;
use crate::read::{TableFile, files};
use crate::remove::{Rewrite, Selection, Wanted};
use crate::report::bugs::Bugs;
use crate::report::exposure::{Exposure, Hosts};
use crate::report::gather::{Fleet, find_dumps, gather};
use crate::report::{alert, compare, html, rates, summarize, text};

/// 2026-11-01, in seconds since 1970.
const SINCE: i64 = 1_793_491_200;
const TABLES: [&str; 5] = ["dumps", "page_classes", "memory_state", "tasks", MANIFEST];

/// Reports on the tables in `directory/tables`, with the files next to them: `bugs.toml`, `hours.csv`, `hosts.csv`. Then compacts them and
/// removes crashes. What is not damaged has the same crashes afterwards, less those that are removed.
pub fn commands(directory: &Path) {
    let tables = directory.join("tables");
    let before = report(directory, &tables);
    let _ = is_clear(&tables);
    let ids: BTreeSet<&str> = before.crashes.iter().map(|crash| crash.id.as_str()).collect();
    for month in crate::read::directories(&tables.join("dumps").join("v=1")).unwrap_or_default() {
        for id in &ids {
            let _ = Quality::there(&month, id);
        }
    }
    let Ok(done) = compact_all(&tables) else { return };
    let after = gather(&tables).unwrap_or_default();
    if done.left.is_empty() && before.unreadable.is_empty() {
        let after: BTreeSet<&str> = after.crashes.iter().map(|crash| crash.id.as_str()).collect();
        assert_eq!(ids, after);
    }
    let hosts = BTreeSet::from(["web1".to_owned()]);
    let wanted = Wanted { hosts: hosts.clone(), before: Some(SINCE), ..Wanted::default() };
    let mut left = Vec::new();
    let Ok(selection) = Selection::find(&tables, wanted, &mut left) else { return };
    for table in TABLES {
        for path in files(&tables, table).unwrap_or_default() {
            if let Ok(Some(rewrite)) = Rewrite::plan(table, &path, &selection)
                && rewrite.run().is_ok()
                && path.exists()
            {
                TableFile::open(&path, table).expect("a table was written");
            }
        }
    }
    let rest = gather(&tables).unwrap_or_default();
    assert!(
        !rest.unreadable.is_empty() || rest.crashes.iter().all(|crash| crash.host.as_ref() != hosts.first())
    );
}

/// Reads the facts of a crash, as `capture --facts` writes them.
pub fn facts(path: &Path) {
    let fleet = metrics::of_facts(&[path.to_owned()]);
    assert_eq!(fleet.crashes.len() + fleet.unreadable.len(), 1);
    let _ = metrics::of_fleet(&fleet, &Bugs::default(), usize::MAX);
}

fn report(directory: &Path, tables: &Path) -> Fleet {
    let bugs = Bugs::open(&directory.join("bugs.toml")).unwrap_or_default();
    let hosts = Hosts::open(&directory.join("hosts.csv")).ok();
    let exposure = Exposure::open(&directory.join("hours.csv"), Some(SINCE)).ok();
    let mut fleet = gather(tables).unwrap_or_default();
    bugs.assign(&mut fleet.crashes);
    let _ = find_dumps(tables, &mut fleet);
    let mut report = summarize(&fleet, &bugs);
    report.comparison = compare::compare(&fleet.crashes, &report.signatures, "6.1", "6.12", true).ok();
    let of_machines =
        |exposure| rates::rates(&fleet.crashes, &report.signatures, &exposure, hosts.as_ref(), Some(SINCE));
    report.rates = exposure.map(of_machines);
    report.alerts.extend(alert::high_rates(&report, 0.5));
    report.alerts.extend(alert::not_counted(&report));
    assert!(!text::text(&report, 20).is_empty() && !html::page(&report, 20).is_empty());
    report.limit(SINCE);
    report.alerts.extend(alert::new_signatures(&report));
    let _ = alert::exit_code(&report);
    assert!(!text::text(&report, 20).is_empty() && !html::page(&report, 20).is_empty());
    let json = serde_json::to_string(&report).expect("numbers and texts");
    serde_json::from_str::<serde_json::Value>(&json).expect("JSON");
    let _ = metrics::of_fleet(&fleet, &bugs, 20);
    fleet
}
