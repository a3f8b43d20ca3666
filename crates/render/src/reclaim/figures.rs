//! Figures and short texts, as text and pages show them.

use pagehaul_present::number::{count, significant};

use pagehaul_reclaim::report::{Datum, SourceInfo, Unit};

/// Formats a figure of a row.
pub(super) fn figure(value: f64, unit: Unit) -> String {
    match unit {
        // The mean over runs may have a fraction.
        Unit::Count | Unit::Pages if value.fract() == 0.0 && value >= 0.0 => count(value as u64),
        Unit::Seconds | Unit::Percent => format!("{value:.2}"),
        Unit::Count | Unit::Pages | Unit::Ms | Unit::PagesPerSecond => significant(value),
    }
}

pub(super) fn datum(datum: &Datum) -> String {
    match datum {
        Datum::Text(text) => text.clone(),
        Datum::Count(value) => count(*value),
        Datum::Number(value) => significant(*value),
        Datum::None => "-".into(),
    }
}

/// Names a percentile: `p99.9`, `max`.
pub(super) fn percentile(percent: f64) -> String {
    if percent >= 100.0 { "max".into() } else { format!("p{percent}") }
}

pub(super) fn runs(count: usize) -> String {
    if count == 1 { "1 run".into() } else { format!("{count} runs") }
}

/// Returns what is known of the machine and its kernel.
pub(super) fn machine(source: &SourceInfo) -> Vec<String> {
    let machine = &source.machine;
    let mut facts = Vec::new();
    facts.extend(machine.release.as_ref().map(|release| format!("Linux {release}")));
    facts.extend(machine.hostname.clone().filter(|name| name != "(none)"));
    facts.extend(machine.machine.clone());
    facts.extend(machine.cpus.map(|cpus| format!("{cpus} CPUs")));
    let lists = |mglru| if mglru { "MGLRU".to_owned() } else { "active and inactive lists".to_owned() };
    facts.extend(source.mglru.map(lists));
    facts.extend(machine.clock.as_ref().map(|clock| format!("clock {clock}")));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_and_their_means_are_not() {
        assert_eq!(figure(1234.0, Unit::Pages), "1,234");
        assert_eq!(figure(12.5, Unit::Pages), "12.5");
        assert_eq!(figure(12.5, Unit::Percent), "12.50");
    }
}
