//! Interrupts and softirqs: how often each CPU had them, and which softirqs wait.

use std::collections::BTreeMap;

use pagehaul_btf::{Fault, Object};
use serde::Serialize;

use crate::hex::Hex;
use crate::machine::Machine;

/// Interrupts that are read.
const MAX_INTERRUPTS: usize = 1 << 16;
/// Drivers that share one.
const MAX_ACTIONS: usize = 64;

/// An interrupt that has a driver or that came.
#[derive(Debug, Clone, Serialize)]
pub struct Interrupt {
    /// Its number in Linux.
    pub number: u64,
    /// Address of its `struct irq_desc`.
    pub address: Hex,
    /// Interrupt controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chip: Option<String>,
    /// Drivers' names for it.
    pub actions: Vec<String>,
    /// Whether it is disabled.
    pub disabled: bool,
    /// How often it came on each CPU, where it did.
    pub by_cpu: BTreeMap<u64, u64>,
}

impl Interrupt {
    /// How often it came on all CPUs.
    pub fn total(&self) -> u64 {
        self.by_cpu.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// Interrupts of a CPU.
#[derive(Debug, Clone, Serialize)]
pub struct CpuInterrupts {
    /// CPU.
    pub cpu: u64,
    /// Interrupts of devices since boot.
    pub interrupts: u64,
    /// Softirqs since boot, by name.
    pub softirqs: BTreeMap<String, u64>,
    /// Softirqs that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<Vec<String>>,
}

/// Interrupts of the machine.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Interrupts {
    /// By number.
    pub all: Vec<Interrupt>,
    /// CPUs that are online.
    pub cpus: Vec<CpuInterrupts>,
    /// Why some may be missing.
    pub broken: Vec<String>,
}

/// Reads the interrupts of devices, and the softirqs of all CPUs that are online.
pub fn interrupts(machine: &Machine<'_>) -> Interrupts {
    let mut found = Interrupts::default();
    // An interrupt may have come on a CPU that is offline now.
    let possible = machine.cpu_mask("__cpu_possible_mask");
    if let Err(why) = possible.and_then(|cpus| devices(machine, &cpus, &mut found)) {
        found.broken.push(format!("interrupts: {why}"));
    }
    match machine.cpu_mask("__cpu_online_mask") {
        Ok(cpus) => {
            for cpu in cpus {
                match of_cpu(machine, cpu) {
                    Ok(cpu) => found.cpus.push(cpu),
                    Err(why) => found.broken.push(format!("softirqs of CPU {cpu}: {why}")),
                }
            }
        }
        Err(why) => found.broken.push(format!("softirqs: {why}")),
    }
    found.broken.truncate(16);
    found
}

fn devices(machine: &Machine<'_>, cpus: &[u64], found: &mut Interrupts) -> Result<(), Fault> {
    // 721255b9826b (6.5) replaced the radix tree by a maple tree.
    let (entries, broken) = match machine.variable("sparse_irqs", "maple_tree") {
        Ok(tree) => {
            let walk = tree.maple_tree()?;
            (walk.items.iter().map(|entry| (entry.first, entry.pointer)).collect(), walk.broken)
        }
        Err(why @ (Fault::NoBtf(_) | Fault::NotRead(_))) => return Err(why),
        Err(_) => {
            let walk = machine.variable("irq_desc_tree", "xarray")?.xarray()?;
            (walk.items, walk.broken)
        }
    };
    found.broken.extend(broken);
    if entries.len() > MAX_INTERRUPTS {
        found.broken.push(format!("there are more than {MAX_INTERRUPTS} interrupts"));
    }
    for (number, address) in entries.into_iter().take(MAX_INTERRUPTS) {
        match interrupt(machine, cpus, number, address) {
            Ok(interrupt) if interrupt.actions.is_empty() && interrupt.by_cpu.is_empty() => {}
            Ok(interrupt) => found.all.push(interrupt),
            Err(why) => found.broken.push(format!("interrupt {number}: {why}")),
        }
    }
    Ok(())
}

fn interrupt(machine: &Machine<'_>, cpus: &[u64], number: u64, address: u64) -> Result<Interrupt, Fault> {
    let desc = machine.space().object(address, "irq_desc")?;
    let counts = desc.get("kstat_irqs")?.pointer()?;
    let mut by_cpu = BTreeMap::new();
    for cpu in cpus.iter().filter(|_| counts != 0) {
        // A number, since 6.10 the first member of struct irqstat.
        let count = machine.memory().u32(machine.on_cpu(counts, *cpu)?)?;
        if count > 0 {
            by_cpu.insert(*cpu, u64::from(count));
        }
    }
    let mut actions = Vec::new();
    let mut at = desc.get("action")?;
    while at.pointer()? != 0 && actions.len() < MAX_ACTIONS {
        let action = at.target()?;
        actions.push(action.get("name")?.text().unwrap_or_else(|_| "?".to_owned()));
        at = action.get("next")?;
    }
    Ok(Interrupt {
        number,
        address: Hex(address),
        chip: desc.get("irq_data.chip->name").and_then(|name| name.text()).ok(),
        actions,
        disabled: desc.number("depth")? > 0,
        by_cpu,
    })
}

fn of_cpu(machine: &Machine<'_>, cpu: u64) -> Result<CpuInterrupts, Fault> {
    let counts = machine.space().object(machine.per_cpu("kstat", cpu)?, "kernel_stat")?;
    let names = names(machine);
    let of = |(number, name): (usize, &String)| {
        Ok((name.clone(), counts.get("softirqs")?.index(number as u64)?.unsigned()?))
    };
    Ok(CpuInterrupts {
        cpu,
        interrupts: counts.number("irqs_sum")?,
        softirqs: names.iter().enumerate().map(of).collect::<Result<_, Fault>>()?,
        pending: pending(machine, cpu).ok().map(|bits| {
            let waits = |(number, _): &(usize, &String)| bits >> number & 1 == 1;
            names.iter().enumerate().filter(waits).map(|(_, name)| name.clone()).collect()
        }),
    })
}

/// Names of softirqs, as /proc/softirqs has them.
fn names(machine: &Machine<'_>) -> Vec<String> {
    let mut names = machine.space().btf().enum_with("TASKLET_SOFTIRQ");
    names.sort_by_key(|(_, number)| *number);
    names.iter().filter_map(|(name, _)| Some(name.strip_suffix("_SOFTIRQ")?.to_owned())).collect()
}

/// The word of bits `__softirq_pending` of a CPU.
fn pending(machine: &Machine<'_>, cpu: u64) -> Result<u64, Fault> {
    // x86_64 has had it in irq_stat (6.1), in pcpu_hot (6.12) and as a variable (7.2). The others have it in irq_stat.
    if let Ok(at) = machine.per_cpu("__softirq_pending", cpu) {
        return Ok(u64::from(machine.memory().u32(at)? & 0xffff));
    }
    let hot = machine.per_cpu("pcpu_hot", cpu).and_then(|at| machine.space().object(at, "pcpu_hot"));
    if let Ok(found) = hot.and_then(|hot| hot.number("softirq_pending")) {
        return Ok(found);
    }
    let of_cpu: Object<'_> = machine.space().object(machine.per_cpu("irq_stat", cpu)?, "irq_cpustat_t")?;
    of_cpu.number("__softirq_pending")
}
