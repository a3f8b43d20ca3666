//! Names of tables, of their keys, and of their files.

/// The table with a row for each dump, whatever was made of it.
pub(crate) const MANIFEST: &str = "manifest";
/// How the names of files of many crashes begin.
pub(crate) const MANY_PREFIX: &str = "many-";
/// Tables of page reclaim.
pub(crate) const RECLAIM: [&str; 3] = ["reclaim_runs", "reclaim_figures", "reclaim_stalls"];
/// Tables of latencies.
pub(crate) const LATENCY: [&str; 2] = ["latency_runs", "latency_hist"];

/// Whether a table has rows of recordings, so that its key is `run_id`.
fn is_of_recordings(table: &str) -> bool {
    RECLAIM.contains(&table) || LATENCY.contains(&table)
}

/// Returns the name of the column that is the key of a table.
pub(crate) fn key_column(table: &str) -> &'static str {
    match table {
        MANIFEST => "dump_id",
        table if is_of_recordings(table) => "run_id",
        _ => "crash_id",
    }
}
