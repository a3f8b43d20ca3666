//! Pressure: how long tasks of the whole machine waited for CPUs, memory and disks (PSI).

use std::collections::BTreeMap;

use pagehaul_btf::Fault;
use serde::Serialize;

use crate::machine::Machine;

/// Averages are fixed-point numbers with `FSHIFT` bits behind the point (include/linux/sched/loadavg.h).
const ONE: f64 = 2048.0;
/// `NR_PSI_STATES` is 9 with all resources.
const MAX_STATES: u64 = 16;

/// How long tasks waited for one resource.
#[derive(Debug, Clone, Serialize)]
pub struct Pressure {
    /// `cpu`, `memory`, `io` or `irq`.
    pub resource: String,
    /// `some`: at least one task waited; `full`: no task of those that wanted could run.
    pub kind: String,
    /// Percent of the last 10, 60 and 300 seconds.
    pub percent: [f64; 3],
    /// Seconds since boot.
    pub total: f64,
}

/// Pressure of the whole machine.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Pressures {
    /// By resource.
    pub all: Vec<Pressure>,
    /// Tasks by what they do now, as the scheduler counts them: `iowait`, `memstall`, `running`.
    pub tasks: BTreeMap<String, u64>,
    /// Whether the kernel measures it: it may be built without, or started with `psi=0`.
    pub measured: bool,
    /// Why some may be missing.
    pub broken: Vec<String>,
}

/// Reads the pressure of the machine.
pub fn pressures(machine: &Machine<'_>) -> Pressures {
    let mut found = Pressures::default();
    if let Err(why) = read(machine, &mut found) {
        found.broken.push(format!("pressure: {why}"));
    }
    found
}

fn read(machine: &Machine<'_>, found: &mut Pressures) -> Result<(), Fault> {
    let space = machine.space();
    // Without CONFIG_PSI the structure is empty.
    space.record("psi_group")?;
    if !space.has("psi_group", "avg") {
        return Ok(());
    }
    let group = machine.variable("psi_system", "psi_group")?;
    // The kernel updates the averages every two seconds, unless PSI is off.
    found.measured = group.number("avg_last_update")? > 0;
    if !found.measured {
        return Ok(());
    }
    // Arrays of arrays of 8 bytes: BTF of some kernels has them as one array.
    let word = |array: &str, at: u64| -> Result<u64, Fault> {
        Ok(machine.memory().u64(group.get(array)?.address().wrapping_add(8 * at))?)
    };
    for (name, state) in space.btf().enum_with("PSI_IO_SOME") {
        let words: Vec<&str> = name.split('_').collect();
        let ["PSI", resource, kind @ ("SOME" | "FULL")] = words[..] else { continue };
        let Some(state) = u64::try_from(state).ok().filter(|state| *state < MAX_STATES) else { continue };
        let percent = |of: u64| Ok::<_, Fault>(word("avg", 3 * state + of)? as f64 / ONE);
        found.all.push(Pressure {
            resource: if resource == "MEM" { "memory".into() } else { resource.to_lowercase() },
            kind: kind.to_lowercase(),
            percent: [percent(0)?, percent(1)?, percent(2)?],
            // The first of `enum psi_aggregators` is what is averaged.
            total: word("total", state)? as f64 / 1e9,
        });
    }
    let counted = group.get("pcpu")?.pointer()?;
    for (name, number) in space.btf().enum_with("NR_MEMSTALL") {
        let (Some(name), Ok(number)) = (name.strip_prefix("NR_"), u64::try_from(number)) else { continue };
        if !["IOWAIT", "MEMSTALL", "RUNNING"].contains(&name) {
            continue;
        }
        let mut sum = 0_u64;
        for cpu in machine.cpu_mask("__cpu_possible_mask")? {
            let of_cpu = space.object(machine.on_cpu(counted, cpu)?, "psi_group_cpu")?;
            sum = sum.saturating_add(of_cpu.get("tasks")?.index(number)?.unsigned()?);
        }
        found.tasks.insert(name.to_lowercase(), sum);
    }
    Ok(())
}
