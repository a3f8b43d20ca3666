//! The kernel's own counters, out of the files a recording keeps.

use std::collections::BTreeMap;

use pagehaul_trace::KernelCounters;

/// `/proc/vmstat` before and after.
#[derive(Debug, Clone, Default)]
pub struct VmstatDelta {
    deltas: BTreeMap<String, u64>,
    /// Scanned and reclaimed pages include those of control groups at their limit. They do since these counters are kept by
    /// node (7.x): then they stand before `pgpgin`, where the counters of events begin.
    pub includes_memcg: bool,
}

impl VmstatDelta {
    /// The difference of two snapshots; none if one has no `/proc/vmstat`.
    pub fn new(before: &KernelCounters, after: &KernelCounters) -> Option<Self> {
        let (before, after) = (before.files.get("/proc/vmstat")?, after.files.get("/proc/vmstat")?);
        let old: BTreeMap<&str, u64> = pairs(before).collect();
        let deltas = pairs(after).map(|(name, value)| {
            // Gauges may shrink, and are not used.
            (name.to_owned(), value.saturating_sub(old.get(name).copied().unwrap_or(0)))
        });
        let place = |wanted: &str| pairs(after).position(|(name, _)| name == wanted);
        let includes_memcg =
            place("pgscan_direct").zip(place("pgpgin")).is_some_and(|(scan, first)| scan < first);
        Some(Self { deltas: deltas.collect(), includes_memcg })
    }

    /// A counter's difference; none if this kernel has no such counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.deltas.get(name).copied()
    }

    /// The sum of those that exist; none if none does.
    pub fn sum(&self, names: &[&str]) -> Option<u64> {
        let known = names.iter().filter_map(|name| self.get(name));
        known.fold(None, |sum, value| Some(sum.unwrap_or(0) + value))
    }

    /// The sum of all counters that begin so; none if none does. Counters by zone end in the zone's name.
    pub(crate) fn sum_of(&self, prefix: &str) -> Option<u64> {
        let known = self.deltas.iter().filter(|(name, _)| name.starts_with(prefix));
        known.fold(None, |sum, (_, value)| Some(sum.unwrap_or(0) + value))
    }
}

fn pairs(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name, value.trim().parse().ok()?))
    })
}

/// Microseconds tasks were held up for memory, from `/proc/pressure/memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Pressure {
    /// At least one task.
    pub some_us: u64,
    /// All that had work to do.
    pub full_us: u64,
}

impl Pressure {
    /// The difference of two snapshots; none without PSI.
    pub fn delta(before: &KernelCounters, after: &KernelCounters) -> Option<Self> {
        let (old, new) = (Self::parse(before)?, Self::parse(after)?);
        Some(Self {
            some_us: new.some_us.saturating_sub(old.some_us),
            full_us: new.full_us.saturating_sub(old.full_us),
        })
    }

    fn parse(snapshot: &KernelCounters) -> Option<Self> {
        let text = snapshot.files.get("/proc/pressure/memory")?;
        let total = |kind: &str| {
            let line = text.lines().find(|line| line.starts_with(kind))?;
            line.split_once("total=")?.1.trim().parse().ok()
        };
        Some(Self { some_us: total("some")?, full_us: total("full").unwrap_or(0) })
    }
}

/// Seconds of CPU of the whole machine in user mode and in the kernel, from `/proc/stat` (100 ticks a second on x86).
pub(crate) fn machine_cpu(before: &KernelCounters, after: &KernelCounters) -> Option<(f64, f64)> {
    let parse = |snapshot: &KernelCounters| {
        let text = snapshot.files.get("/proc/stat")?;
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq
        Some((ticks.first()? + ticks.get(1)?, ticks.get(2)? + ticks.get(5)? + ticks.get(6)?))
    };
    let (old, new) = (parse(before)?, parse(after)?);
    let seconds = |old: u64, new: u64| new.saturating_sub(old) as f64 / 100.0;
    Some((seconds(old.0, new.0), seconds(old.1, new.1)))
}

/// Names of zones by the number events have, from `/proc/zoneinfo`: every node lists all zones in order.
pub(crate) fn zone_names(snapshot: &KernelCounters) -> Vec<String> {
    let Some(text) = snapshot.files.get("/proc/zoneinfo") else { return Vec::new() };
    let mut names: Vec<String> = Vec::new();
    for line in text.lines() {
        let Some((_, name)) = line.strip_prefix("Node ").and_then(|line| line.split_once(", zone")) else {
            continue;
        };
        let name = name.trim();
        if names.iter().any(|known| known == name) {
            break;
        }
        names.push(name.to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(file: &str, text: &str) -> KernelCounters {
        KernelCounters { files: [(file.to_owned(), text.to_owned())].into(), ..KernelCounters::default() }
    }

    #[test]
    fn counters_are_subtracted() {
        let before = snapshot(
            "/proc/vmstat",
            "nr_free_pages 9\npgpgin 5\nallocstall_dma 1\nallocstall_normal 2\npgscan_direct 7\n",
        );
        let after = snapshot(
            "/proc/vmstat",
            "nr_free_pages 2\npgpgin 9\nallocstall_dma 1\nallocstall_normal 8\npgscan_direct 10\n",
        );
        let delta = VmstatDelta::new(&before, &after).unwrap();
        assert_eq!(
            (delta.get("pgpgin"), delta.get("missing"), delta.get("nr_free_pages")),
            (Some(4), None, Some(0))
        );
        assert_eq!(
            (delta.sum_of("allocstall"), delta.sum(&["pgscan_direct", "no"]), delta.sum(&["no"])),
            (Some(6), Some(3), None)
        );
        assert!(!delta.includes_memcg);
        let new = snapshot("/proc/vmstat", "nr_free_pages 2\npgscan_direct 10\npgpgin 9\n");
        assert!(VmstatDelta::new(&new, &new).unwrap().includes_memcg);
        assert!(VmstatDelta::new(&before, &KernelCounters::default()).is_none());
    }

    #[test]
    fn pressure_and_cpu_are_subtracted() {
        let psi = |some, full| {
            snapshot(
                "/proc/pressure/memory",
                &format!("some avg10=0.00 total={some}\nfull avg10=0.00 total={full}\n"),
            )
        };
        assert_eq!(Pressure::delta(&psi(5, 1), &psi(9, 3)), Some(Pressure { some_us: 4, full_us: 2 }));
        let stat = |text| snapshot("/proc/stat", text);
        assert_eq!(
            machine_cpu(&stat("cpu  0 0 0 0 0 0 0\n"), &stat("cpu  100 100 50 9 9 25 25\n")),
            Some((2.0, 1.0))
        );
        let zones = snapshot(
            "/proc/zoneinfo",
            "Node 0, zone      DMA\n x\nNode 0, zone    DMA32\nNode 1, zone      DMA\n",
        );
        assert_eq!(zone_names(&zones), ["DMA", "DMA32"]);
    }
}
