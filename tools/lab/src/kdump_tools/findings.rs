//! What `kdump check` found in a guest: nothing as it is, and each injected fault, alone.

use super::Guest;
use anyhow::{Context, Result, ensure};

/// Checks that `kdump check` found nothing where nothing is wrong, and prints how long a check took.
pub(crate) fn check_good(guest: &Guest<'_>, said: &[(String, String)]) -> Result<()> {
    let mut runs = said.iter().filter(|(what, _)| what == "good").peekable();
    ensure!(runs.peek().is_some(), "kdump check did not run");
    for (_, found) in runs {
        ensure!(found.trim().is_empty(), "kdump check finds in a good guest: {found}");
    }
    let took = said.iter().find(|(what, _)| what == "took").map(|(_, seconds)| seconds.trim());
    let took = took.context("the guest did not say how long kdump check takes")?;
    println!(
        "ok   {}: kdump check finds nothing in the guest as it is, and takes {took} s",
        guest.release.suite
    );
    Ok(())
}

/// Checks that, and that it found each fault that check.sh injected, and nothing else.
pub(super) fn check(guest: &Guest<'_>, said: &[(String, String)]) -> Result<()> {
    check_good(guest, said)?;
    let (found, expected) = (faults(said)?.len(), guest.release.faults);
    ensure!(found == expected, "{found} faults were injected, expected {expected}");
    println!("ok   {}: kdump check finds {found} injected faults, and nothing besides", guest.release.suite);
    Ok(())
}

/// The faults of a guest, each by the first finding that is expected of it. Fails if another set of findings was found.
pub(super) fn faults(said: &[(String, String)]) -> Result<Vec<&str>> {
    let lines = said.iter().filter(|(what, _)| what == "fault");
    lines.map(|(_, detail)| injected(detail)).collect()
}

/// The first finding of a line of expected ones, a colon, and those that were found.
fn injected(line: &str) -> Result<&str> {
    let (expected, found) = line.split_once(" :").with_context(|| format!("no colon: {line}"))?;
    let sorted = |text: &str| {
        let mut ids: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        ids.sort();
        ids
    };
    ensure!(sorted(expected) == sorted(found), "expected of a fault, and found by kdump check: {line}");
    expected.split_whitespace().next().context("a fault without a finding")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_found_alone_or_with_what_it_implies() {
        assert_eq!(injected("no-kernel : no-kernel ").unwrap(), "no-kernel");
        assert_eq!(
            injected("target-full target-in-memory : target-in-memory target-full ").unwrap(),
            "target-full"
        );
        for line in ["no-kernel : ", "no-kernel : no-kernel not-loaded ", "a b : a ", " : ", "no-kernel"] {
            assert!(injected(line).is_err(), "{line}");
        }
    }
}
