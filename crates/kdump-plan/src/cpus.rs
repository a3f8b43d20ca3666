//! How many CPUs of the capture kernel pay off.

use pagehaul_bench::predict::Prediction;
use pagehaul_present::time::seconds;

/// More CPUs than this are not planned: one thread writes all pages.
pub(crate) const MAX_CPUS: u32 = 32;
/// CPUs pay off until the time is within this factor of the shortest.
const NEAR: f64 = 1.10;

/// Numbers of CPUs to predict for: powers of two, the most, and the wanted one.
pub(crate) fn candidates(most: u32, wanted: Option<u32>) -> impl Iterator<Item = u32> {
    let mut all: Vec<u32> = (0..32).map(|shift| 1 << shift).take_while(|cpus| *cpus < most).collect();
    all.push(most);
    all.extend(wanted);
    all.sort_unstable();
    all.dedup();
    all.into_iter()
}

/// The fewest CPUs that are about as fast as all; the wanted number, if there is one.
pub(crate) fn choose(
    times: &[Prediction],
    wanted: Option<u32>,
    most: u32,
    reasons: &mut Vec<String>,
) -> Option<Prediction> {
    if let Some(wanted) = wanted {
        return times.iter().find(|time| time.cpus == wanted).copied();
    }
    let best =
        times.iter().filter(|time| time.cpus <= most).map(|time| time.seconds).fold(f64::INFINITY, f64::min);
    let chosen =
        times.iter().find(|time| time.seconds <= best * NEAR || time.seconds <= best + 1.0).copied()?;
    reasons.push(if chosen.cpus == most {
        format!("{most} CPUs in the capture kernel: each one makes the capture faster")
    } else {
        let count = if chosen.cpus == 1 { "one CPU".into() } else { format!("{} CPUs", chosen.cpus) };
        format!(
            "{count} in the capture kernel: more would save {} of {}",
            seconds(chosen.seconds - best),
            seconds(chosen.seconds)
        )
    });
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use pagehaul_bench::predict::Limit;

    use super::*;

    fn time(cpus: u32, seconds: f64) -> Prediction {
        Prediction { level: 31, memory: 1 << 40, cpus, disk: 1, seconds, limit: Limit::Cpus }
    }

    #[test]
    fn cpus_that_save_little_are_not_planned() {
        let mut reasons = Vec::new();
        let times = [time(1, 100.0), time(2, 52.0), time(4, 50.0), time(8, 49.0)];
        assert_eq!(choose(&times, None, 8, &mut reasons).unwrap().cpus, 2);
        assert_eq!(reasons, ["2 CPUs in the capture kernel: more would save 3.00 s of 52.00 s"]);
        assert_eq!(choose(&times, Some(4), 8, &mut reasons).unwrap().cpus, 4);
        assert_eq!(candidates(6, Some(3)).collect::<Vec<_>>(), [1, 2, 3, 4, 6]);
    }
}
