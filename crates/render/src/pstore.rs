//! What records of a kernel log in pstore tell.

use pagehaul_facts::Facts;
use pagehaul_present::printable;

/// Lines of the log that are shown.
const LINES: usize = 30;

/// What records are, and what of them is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Name of the first file, in order of the log.
    pub name: String,
    /// How many other files were read.
    pub others: usize,
    /// If they have no crash, why it is not known what happened. `None` if they show that there was no crash.
    pub unknown: Option<String>,
    /// What is missing of the records.
    pub incomplete: Vec<String>,
    /// Records that were left out.
    pub left_out: Vec<String>,
    /// How many entries in `missing` of the facts hold for all crashes in pstore: they come first, and the others are said above.
    pub of_all: usize,
}

/// Formats the facts in records.
pub fn text(facts: &Facts, about: &About) -> String {
    let others = match about.others {
        0 => String::new(),
        1 => " and 1 more file".into(),
        others => format!(" and {others} more files"),
    };
    let release = facts.release.as_deref().unwrap_or("unknown kernel");
    let mut out = format!("{}{others}: {release}, from pstore\n", printable(&about.name));
    for why in &about.incomplete {
        out += &format!("INCOMPLETE: {}\n", printable(why));
    }
    for why in &about.left_out {
        out += &format!("{}\n", printable(why));
    }
    out += "\n";
    match (&facts.crash, &about.unknown) {
        (None, None) => out += "What happened: the records have no crash\n",
        (None, Some(why)) => out += &format!("What happened: not known: {why}\n"),
        (Some(crash), _) => {
            out += &format!("What happened: {}\n", crash.title);
            for line in crash.text.lines() {
                out += &format!("  {line}\n");
            }
            out += &format!("signature {} ({})\n", crash.signature.sig, crash.signature.text());
        }
    }
    out += "\nThe end of the log:\n";
    for record in facts.log.iter().skip(facts.log.len().saturating_sub(LINES)) {
        out += &format!("  [{:12.6}] {}\n", record.time_ns as f64 / 1e9, record.text);
    }
    out += "\nMissing:\n";
    for missing in facts.missing.iter().take(about.of_all) {
        out += &format!("  {}: {}\n", missing.what, missing.reason);
    }
    out += "  tasks, locks, memory: pstore has none of them\n";
    out.lines().map(|line| format!("{}\n", printable(line))).collect()
}
