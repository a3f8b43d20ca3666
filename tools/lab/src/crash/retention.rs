//! Which results of older programs the cache keeps, and for how long.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How long results of other versions of the programs stay after their last use: someone may be working with them.
const OLD_VERSION: Duration = Duration::from_secs(3600);
/// How long any result stays after its last use.
const ANY: Duration = Duration::from_secs(7 * 24 * 3600);

/// Marks a result as used now.
pub(super) fn touch(directory: &Path) {
    // On failure the result is removed too early and made again.
    let _ = File::open(directory).and_then(|file| file.set_modified(SystemTime::now()));
}

/// Removes results called `name` of other versions of the programs, and any result unused for long. Keeps `current`.
pub(super) fn remove_old(crashes: &Path, name: &str, current: &Path) {
    let prefix = format!("{name}-");
    let Ok(entries) = fs::read_dir(crashes) else { return };
    for entry in entries.flatten().filter(|entry| entry.path() != current) {
        let file = entry.file_name();
        // A key of twelve digits follows the name; "…-runs_…" has more.
        let key = file.to_str().and_then(|file| file.strip_prefix(&prefix));
        let other_version = key.is_some_and(|key| key.len() == 12 && !key.contains('-'));
        let keep = if other_version { OLD_VERSION } else { ANY };
        let used = entry.metadata().and_then(|metadata| metadata.modified());
        if used.is_ok_and(|used| used.elapsed().is_ok_and(|ago| ago > keep)) {
            // Another process may be removing it as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_other_versions_are_removed_when_unused() {
        let crashes = tempfile::tempdir().unwrap();
        let hours = |hours: u64| SystemTime::now() - Duration::from_secs(hours * 3600 + 60);
        for (name, age) in [
            ("6.12-a-0123456789aa", 0),
            ("6.12-a-0123456789ab", 5),
            ("6.12-a-0123456789ac", 0),
            ("6.12-a-runs_0123-0123456789ad", 5),
            ("6.12-a-0123456789ad", 2),
            ("6.1-b-0123456789ad", 8 * 24),
            ("6.1-b-0123456789ae", 6 * 24),
        ] {
            let path = crashes.path().join(name);
            fs::create_dir(&path).unwrap();
            File::open(&path).unwrap().set_modified(hours(age)).unwrap();
        }
        let current = crashes.path().join("6.12-a-0123456789ac");
        touch(&current);
        remove_old(crashes.path(), "6.12-a", &current);
        let mut left: Vec<_> =
            fs::read_dir(crashes.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        let runs = "6.12-a-runs_0123-0123456789ad";
        assert_eq!(left, ["6.1-b-0123456789ae", "6.12-a-0123456789aa", "6.12-a-0123456789ac", runs]);
        // Unused for hours, but current.
        remove_old(crashes.path(), "6.12-a-runs_0123", &crashes.path().join(runs));
        assert_eq!(fs::read_dir(crashes.path()).unwrap().count(), 4);
    }
}
