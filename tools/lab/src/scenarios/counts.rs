//! Compares how several tools count the same calls.

use std::fmt::Write;
use std::path::Path;

use super::text;

/// Tools, and the suffixes of their files.
const COUNTERS: [(&str, &str); 5] = [
    ("`pagehaul latency`, kprobe events", "kprobe"),
    ("`pagehaul latency --mechanism fprobe`", "fprobe"),
    ("`pagehaul latency --mechanism graph`", "graph"),
    ("`pagehaul latency --in-kernel`", "in-kernel"),
    ("`perf ftrace latency`", "perf"),
];

/// Returns a table of each tool's counts: of a known number of calls, and of purges.
pub fn table(directory: &Path) -> String {
    let mut table = String::from(
        "\n| counted by | 300 calls of `nice` (`__x64_sys_getpriority`) | `purge_vmap_node` |\n|---|---|---|\n",
    );
    for (who, file) in COUNTERS {
        let of = |run: &str| {
            let text = text(directory, &format!("{run}-{file}.txt"));
            let count = if file == "perf" { Some(sum_of_rows(&text)) } else { reported_count(&text) };
            count.map_or("failed".into(), |count| count.to_string())
        };
        let _ = writeln!(table, "| {who} | {} | {} |", of("calls"), of("purge"));
    }
    table
}

/// Returns the N of `count: N` in pagehaul's output.
fn reported_count(text: &str) -> Option<u64> {
    if text.trim() == "nothing was timed" {
        return Some(0);
    }
    text.lines().rev().find_map(|line| line.rsplit_once("count: ")?.1.trim().parse().ok())
}

/// Adds up the rows of perf's output: `  64 - 128   us | 12 | ### |`.
fn sum_of_rows(text: &str) -> u64 {
    text.lines().filter_map(|line| line.split('|').nth(1)?.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_in_the_tools_output() {
        let ours = "     usecs               : count     distribution\n         0 -> 1          : 7        |*|\n\navg = 6 usecs, total: 42 usecs, count: 7\nmin = 1, max = 9\n";
        assert_eq!(reported_count(ours), Some(7));
        assert_eq!(reported_count("\nnothing was timed\n"), Some(0));
        assert_eq!(reported_count("pagehaul: cannot\n"), None);
        let perf = "#   DURATION     |      COUNT | GRAPH |\n     0 - 1    us |          3 | #     |\n     1 - 2    us |          4 | ##    |\n";
        assert_eq!(sum_of_rows(perf), 7);
    }
}
