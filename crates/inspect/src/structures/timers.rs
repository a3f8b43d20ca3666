//! Pending timers: the timer wheels and the high-resolution timers of each CPU.

use pagehaul_btf::{Fault, Object};
use serde::Serialize;

use super::clock::Ticks;
use super::tasks::{Task, Tasks};
use crate::hex::Hex;
use crate::machine::Machine;

/// Timers that are read.
const MAX_TIMERS: usize = 1 << 18;
/// Wheels of a CPU (`NR_BASES` is 3 since 6.9).
const MAX_WHEELS: u64 = 3;
/// A wheel's clock is not further from `jiffies` than its range, 24 days at most.
const WHEEL_RANGE: i64 = 1 << 31;

/// A pending timer.
#[derive(Debug, Clone, Serialize)]
pub struct Timer {
    /// CPU whose list it is on.
    pub cpu: u64,
    /// Address of its `struct timer_list` or `struct hrtimer`.
    pub address: Hex,
    /// `timer`, or `hrtimer` for a high-resolution one.
    pub kind: &'static str,
    /// Seconds until it expires, by the last tick; negative if it is overdue.
    pub seconds: f64,
    /// Its function.
    pub function: String,
    /// The task that it wakes, or the function of the work that it queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// All pending timers.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Timers {
    /// By CPU, and then the next to expire first.
    pub all: Vec<Timer>,
    /// Why some may be missing.
    pub broken: Vec<String>,
}

/// Reads the timers of all CPUs that are possible: those of a CPU that went offline can be left behind.
pub fn timers(machine: &Machine<'_>, tasks: &Tasks) -> Timers {
    // Tasks that are not in the list have no names here.
    let mut found = Timers { all: Vec::new(), broken: tasks.broken.clone() };
    let ticks = Ticks::new(machine);
    let cpus = machine.cpu_mask("__cpu_possible_mask").unwrap_or_else(|why| {
        found.broken.push(format!("timers: {why}"));
        Vec::new()
    });
    for cpu in cpus {
        let wheels = match &ticks {
            Ok(ticks) => wheels(machine, tasks, cpu, ticks, &mut found).map_err(|why| why.to_string()),
            Err(why) => Err(why.to_string()),
        };
        let others = high_resolution(machine, tasks, cpu, &mut found).map_err(|why| why.to_string());
        for why in [wheels, others].into_iter().filter_map(Result::err) {
            found.broken.push(format!("timers of CPU {cpu}: {why}"));
        }
    }
    found.all.sort_by(|a, b| a.cpu.cmp(&b.cpu).then(a.seconds.total_cmp(&b.seconds)));
    found.broken.truncate(16);
    found
}

/// The timer wheels of a CPU (500462a9de65, 4.8).
fn wheels(
    machine: &Machine<'_>,
    tasks: &Tasks,
    cpu: u64,
    ticks: &Ticks,
    found: &mut Timers,
) -> Result<(), Fault> {
    let first = machine.space().object(machine.per_cpu("timer_bases", cpu)?, "timer_base")?;
    for wheel in 0..MAX_WHEELS {
        let wheel = first.index(wheel)?;
        // How many there are depends on the configuration: behind the last one is other data.
        let distance = ticks.now.wrapping_sub(wheel.number("clk")?) as i64;
        if wheel.number("cpu")? != cpu || distance.saturating_abs() > WHEEL_RANGE {
            break;
        }
        let slots = wheel.get("vectors")?;
        for slot in 0..slots.len() {
            let mut link = slots.index(slot)?.get("first")?;
            while link.pointer()? != 0 && found.all.len() < MAX_TIMERS {
                let node = link.target()?;
                // A node that only one pointer leads to is visited once.
                if node.get("pprev")?.pointer()? != link.address() {
                    found
                        .broken
                        .push(format!("timers of CPU {cpu}: the list at {:#x} is broken", link.address()));
                    break;
                }
                let timer = node.container("timer_list", "entry")?;
                found.all.push(Timer {
                    cpu,
                    address: Hex(timer.address()),
                    kind: "timer",
                    seconds: -ticks.seconds_since(timer.number("expires")?),
                    function: function(machine, timer.get("function")?.pointer()?),
                    of: purpose(machine, tasks, &timer),
                });
                link = node.get("next")?;
            }
        }
    }
    Ok(())
}

/// What a timer is for, where that is known from its function.
fn purpose(machine: &Machine<'_>, tasks: &Tasks, timer: &Object<'_>) -> Option<String> {
    match function(machine, timer.get("function").ok()?.pointer().ok()?).as_str() {
        "process_timeout" => {
            let task = timer.container("process_timer", "timer").ok()?.get("task").ok()?.pointer().ok()?;
            tasks.at(task).map(Task::label)
        }
        "delayed_work_timer_fn" => {
            let work =
                timer.container("delayed_work", "timer").ok()?.get("work.func").ok()?.pointer().ok()?;
            Some(function(machine, work))
        }
        _ => None,
    }
}

fn high_resolution(machine: &Machine<'_>, tasks: &Tasks, cpu: u64, found: &mut Timers) -> Result<(), Fault> {
    // Nanoseconds of the monotonic clock at the last tick.
    let now = machine.u64("last_jiffies_update")? as i64;
    let bases = machine.space().object(machine.per_cpu("hrtimer_bases", cpu)?, "hrtimer_cpu_base")?;
    let bases = bases.get("clock_base")?;
    for base in 0..bases.len() {
        let base = bases.index(base)?;
        let offset = base.get("offset")?.signed()?;
        let walk = base.get("active.rb_root.rb_root")?.tree("hrtimer", "node.node")?;
        found.broken.extend(walk.broken);
        for timer in walk.items.into_iter().take(MAX_TIMERS.saturating_sub(found.all.len())) {
            let expires = timer.get("node.expires")?.signed()?.saturating_sub(offset);
            let name = function(machine, timer.get("function")?.pointer()?);
            let task = match name.as_str() {
                "hrtimer_wakeup" => timer.container("hrtimer_sleeper", "timer")?.get("task")?.pointer().ok(),
                _ => None,
            };
            found.all.push(Timer {
                cpu,
                address: Hex(timer.address()),
                kind: "hrtimer",
                seconds: expires.saturating_sub(now) as f64 / 1e9,
                function: name,
                of: task.and_then(|task| tasks.at(task)).map(Task::label),
            });
        }
    }
    Ok(())
}

fn function(machine: &Machine<'_>, address: u64) -> String {
    machine.symbols().name(address).map_or_else(|| format!("{address:#x}"), |name| name.readable())
}
