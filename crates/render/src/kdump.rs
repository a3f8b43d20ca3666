//! A machine's kdump: the plan, the lines that bring the machine to it, and what is wrong with the set-up.

use std::fmt::Write as _;

use pagehaul_bench::predict::Limit;
use pagehaul_kdump_plan::{Origin, Plan};
use pagehaul_kdump_setup::plan::Changes;
use pagehaul_kdump_setup::{Chain, Facts, Finding, Proof, Severity, State};
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, bytes_per_second, count, counted};
use pagehaul_present::time::seconds;

/// Formats a plan.
pub fn plan(plan: &Plan) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_plan(&mut out, plan);
    out
}

fn cpus(count: u32) -> String {
    if count == 1 { "one CPU".into() } else { format!("{count} CPUs") }
}

fn write_plan(out: &mut String, plan: &Plan) -> std::fmt::Result {
    writeln!(out, "Linux {}, {}, {}, {}", plan.release, bytes(plan.memory), cpus(plan.cpus), plan.kdump)?;
    let mut table = Table::new(["pages", "count", "", "zero", "stored", "packed by one CPU"]);
    let page_size = plan.found.page_size;
    for class in &plan.found.classes {
        let origin = if class.contents == Origin::Assumed { " (assumed)" } else { "" };
        table.row([
            class.name.to_owned(),
            count(class.pages),
            bytes(page_size.bytes_of(class.pages)),
            format!("{:.0} %", class.zero * 100.0),
            format!("{:.0} bytes{origin}", class.stored),
            bytes_per_second(page_size.bytes() as u64, class.microseconds / 1e6),
        ]);
    }
    write!(out, "\n{table}")?;
    let mut table = Table::new(["level", "pages", "dump", "least", "most"]);
    for dump in &plan.dumps {
        let sizes = [dump.bytes, dump.least, dump.most].map(bytes);
        table.row([vec![dump.level.to_string(), count(dump.pages)], sizes.to_vec()].concat());
    }
    write!(out, "\nSize with {}:\n{table}", plan.codec)?;
    let assumed = if plan.disk_rate == Origin::Assumed { " (assumed)" } else { "" };
    writeln!(out, "\nTime at level {}, disk {}{assumed}:", plan.level, bytes_per_second(plan.disk, 1.0))?;
    let mut table = Table::new(["CPUs", "time", "limited by"]);
    for time in &plan.times {
        let limit = match time.limit {
            Limit::Cpus => "CPUs",
            Limit::Disk => "disk",
            Limit::Writer => "the writing thread",
        };
        table.row([time.cpus.to_string(), seconds(time.seconds), limit.to_owned()]);
    }
    write!(out, "{table}")?;
    writeln!(
        out,
        "\nPlan: a dump of {} in {}, {} in the capture kernel, {}",
        bytes(plan.dump_bytes),
        seconds(plan.seconds),
        cpus(plan.capture_cpus),
        plan.reserve.parameters.join(" ")
    )?;
    for reason in plan.reasons.iter().chain(&plan.reserve.reasons).chain(&plan.found.notes) {
        writeln!(out, "  - {reason}")?;
    }
    if let Some(alternative) = &plan.reserve.alternative {
        writeln!(out, "  or {}", alternative.join(" "))?;
    }
    write_changes(out, &plan.changes)
}

/// Formats the lines of each file, and the commands to run afterwards.
pub fn changes(changes: &Changes) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_changes(&mut out, changes);
    out
}

fn write_changes(out: &mut String, changes: &Changes) -> std::fmt::Result {
    if changes.files.is_empty() && changes.by_hand.is_empty() {
        return writeln!(out, "\nThe files are as planned.");
    }
    for change in &changes.files {
        writeln!(out, "\n{}  ({})", change.path.display(), change.why)?;
        for line in &change.lines {
            writeln!(out, "  {line}")?;
        }
    }
    for left in &changes.by_hand {
        writeln!(out, "\n{}  ({}): not changed, {}", left.path.display(), left.why, left.reason)?;
        writeln!(out, "  add by hand:  {}", left.line)?;
    }
    writeln!(out, "\nthen")?;
    for command in &changes.commands {
        writeln!(out, "  # {command}")?;
    }
    Ok(())
}

/// Formats what was found in a set-up; with `verbose`, every link of the chain with its evidence.
pub fn check(facts: &Facts, chain: &Chain, verbose: bool) -> String {
    let mut out = format!(
        "Linux {}, {}, {}, {}\n{} reserved, {}\n",
        match &*facts.release.0 {
            "" => "of an unknown release",
            release => release,
        },
        match facts.memory {
            0 => "memory of an unknown size".to_owned(),
            memory => bytes(memory),
        },
        match facts.cpus {
            // No /sys, as in a container or below --root.
            0 => "an unknown number of CPUs".to_owned(),
            cpus => counted(cpus.into(), "CPU"),
        },
        facts.stack().map_or("no kdump", |stack| stack.name()),
        facts.reserved.map_or_else(|| "nothing".to_owned(), bytes),
        if facts.loaded { "a capture kernel is loaded" } else { "no capture kernel is loaded" },
    );
    if verbose {
        out += "\n";
        for proof in &chain.proofs {
            out += &link(proof);
        }
    }
    for Finding { id, severity, what, why, fix, .. } in &chain.findings {
        let severity = match severity {
            Severity::Problem => "PROBLEM",
            Severity::Warning => "warning",
            Severity::Advice => "advice ",
        };
        out += &format!("\n{severity}  {what} [{id}]\n     why  {why}\n     fix  {fix}\n");
    }
    if chain.findings.is_empty() {
        out += "\nnothing found that would keep a crash from being dumped\n";
    }
    if !verbose {
        for proof in chain.proofs.iter().filter(|proof| !proof.not_checked.is_empty()) {
            out += &format!("not checked: {}: {}\n", proof.link.name(), proof.not_checked.join("; "));
        }
    }
    out
}

/// A link with its evidence.
fn link(proof: &Proof) -> String {
    let state = match proof.state {
        State::Proved => "ok",
        State::Broken => "BROKEN",
        State::NotChecked => "not checked",
    };
    let mut out = format!("{:<14}{state}\n", proof.link.name());
    for evidence in &proof.evidence {
        out += &format!("              {evidence}\n");
    }
    for reason in &proof.not_checked {
        out += &format!("              not checked: {reason}\n");
    }
    out
}
