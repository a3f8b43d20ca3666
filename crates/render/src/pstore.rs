//! What records of a kernel log in pstore tell.

use pagehaul_facts::Facts;
use pagehaul_present::printable;

/// Lines of the log that are shown.
const LINES: usize = 30;

/// Formats the facts in the records `name`.
pub fn text(facts: &Facts, name: &str) -> String {
    let mut out =
        format!("{name}: {}, from pstore\n\n", facts.release.as_deref().unwrap_or("unknown kernel"));
    match &facts.crash {
        None => out += "What happened: the records have no crash\n",
        Some(crash) => {
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
    for missing in &facts.missing {
        out += &format!("  {}: {}\n", missing.what, missing.reason);
    }
    out += "  tasks, locks, memory: pstore has none of them\n";
    out.lines().map(|line| format!("{}\n", printable(line))).collect()
}
