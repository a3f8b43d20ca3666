use pagehaul_bench::predict::{self, Prediction, Rates};
use pagehaul_bench::stages::Measured;
use pagehaul_codec::{Codec, Method};
use pagehaul_kdump_setup::plan::{Changes, Reserve, Settings, changes, reserve};
use pagehaul_kdump_setup::{Facts, LivePages};
use pagehaul_machine::PageSize;
use serde::Serialize;

use crate::cpus::{MAX_CPUS, candidates, choose};
use crate::error::PlanError;
use crate::goal::{Goal, Machine};
use crate::memory::{Dump, Memory, Origin};
use crate::{disk, rates};

/// Dump levels of the table: all, without zero pages, without free pages, without free pages and cache, without user pages, least.
const LEVELS: [u8; 6] = [0, 1, 17, 23, 25, 31];

#[derive(Debug, Serialize)]
pub struct Plan {
    /// The kernel's release.
    pub release: String,
    /// The distribution's kdump.
    pub kdump: &'static str,
    /// Bytes of memory.
    pub memory: u64,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Codec and level.
    pub codec: String,
    /// The planned dump level.
    pub level: u8,
    /// The memory to dump.
    pub found: Memory,
    /// Dumps of some levels.
    pub dumps: Vec<Dump>,
    /// Bytes per second of the disk.
    pub disk: u64,
    /// Where that figure comes from.
    pub disk_rate: Origin,
    /// Times of some numbers of CPUs.
    pub times: Vec<Prediction>,
    /// CPUs of the capture kernel.
    pub capture_cpus: u32,
    /// Size of the planned dump.
    pub dump_bytes: u64,
    /// Seconds that the capture takes.
    pub seconds: f64,
    /// Memory to reserve.
    pub reserve: Reserve,
    /// Why it is planned so.
    pub reasons: Vec<String>,
    /// What to change.
    pub changes: Changes,
}

impl Plan {
    /// Plans for a machine. Measures this one's disk by a temporary file, and samples its memory.
    pub fn new(machine: &Machine<'_>, goal: &Goal) -> Result<Self, PlanError> {
        let Machine { root, facts, stack, config, .. } = *machine;
        if facts.memory == 0 {
            return Err(PlanError::NoMemory);
        }
        let mut reasons = Vec::new();
        // Before memory is counted: what this frees ends in per-CPU lists.
        let (disk, disk_rate) = disk::of_target(machine, goal, &mut reasons);
        let found = memory(machine, goal.method)?;
        let level = goal.level.bits();
        let dump = found.dump(level);
        let sampled = rates::sampled(&found, &dump);
        let (rates, start) = match &goal.rates {
            // What is kept is this machine's.
            Some(Measured { rates: of, start }) => {
                (Rates { scan: of.scan, pack: of.pack, ..sampled }, *start)
            }
            None => (sampled, found.start),
        };
        let rates = match facts.recipients {
            Some(Ok(_)) => {
                reasons.push(format!("times include encryption: {} exists", Facts::RECIPIENTS));
                rates::encrypted(rates)
            }
            _ => rates,
        };
        let most = facts.cpus.clamp(1, MAX_CPUS);
        let predict = |cpus| {
            let of = predict::predict(&rates, found.page_size, found.bytes(), cpus, disk);
            Prediction { seconds: of.seconds + start, ..of }
        };
        let times: Vec<Prediction> = candidates(most, goal.capture_cpus).map(predict).collect();
        let chosen = choose(&times, goal.capture_cpus, most, &mut reasons).unwrap_or_else(|| predict(1));
        let user_excluded = level & 8 != 0;
        let reserve = reserve(stack, facts.memory, chosen.cpus, &facts.release, facts.has_cma, user_excluded);
        let is_pagehaul = machine.has_pagehaul();
        if config.writes_elf() {
            reasons.push("an ELF dump (makedumpfile's -E) is not compressed".into());
        } else if !is_pagehaul {
            reasons.push(
                "the configured codec stays: install pagehaul-kdump first, makedumpfile may lack this one and would not compress"
                    .into(),
            );
            if goal.written == Method::NONE {
                reasons.push("makedumpfile's options name no codec: it does not compress the dump".into());
            }
        }
        if goal.written != goal.method {
            let (planned, written) = (&goal.method, &goal.written);
            reasons.push(format!("size and time are those of {planned}, and the dump will be of {written}: the files cannot ask for it"));
        }
        if let Some(reason) = facts.refused.as_ref().filter(|_| is_pagehaul) {
            reasons
                .push(format!("as configured, no dump is written: pagehaul refuses the options: {reason}"));
        }
        let wanted = Settings {
            crashkernel: reserve.parameters.clone(),
            cpus: chosen.cpus,
            level,
            codec: if is_pagehaul { option(goal.method.codec()) } else { None },
        };
        if let Some(unclear) = config.unclear_collector() {
            reasons.push(format!("size and time are those of a dump by makedumpfile; {unclear}"));
        }
        let changes = changes(root, facts, config, &wanted);
        Ok(Self {
            release: facts.release.0.clone(),
            kdump: stack.name(),
            memory: facts.memory,
            cpus: facts.cpus,
            codec: goal.method.to_string(),
            level,
            dumps: LEVELS
                .iter()
                .filter(|of| **of != level)
                .chain([&level])
                .map(|of| found.dump(*of))
                .collect(),
            found,
            disk,
            disk_rate,
            capture_cpus: chosen.cpus,
            dump_bytes: dump.bytes,
            seconds: chosen.seconds,
            times,
            reserve,
            reasons,
            changes,
        })
    }
}

/// The memory of the machine: counted and sampled, or assumed.
fn memory(machine: &Machine<'_>, method: Method) -> Result<Memory, PlanError> {
    let named = machine.facts.release.page_size();
    let assumed = |page_size, why: String| {
        let why = format!("what memory is used for is assumed: {why}");
        Ok(Memory::assumed(machine.facts.memory, page_size, method, why))
    };
    if machine.is_described {
        return assumed(named, "the machine is described".into());
    }
    if !machine.is_here {
        return assumed(named, "files hold no memory".into());
    }
    let Some(page_size) = PageSize::new(rustix::param::page_size() as u64) else {
        return assumed(named, "its pages are of an unknown size".into());
    };
    if named != PageSize::KIB_4 && named != page_size {
        return assumed(named, "the kernel has pages of another size than the running one".into());
    }
    match LivePages::read(machine.root, page_size) {
        Ok(live) => Ok(Memory::of_running_kernel(machine.root, live, method)?),
        Err(error) => assumed(page_size, error.to_string()),
    }
}

/// makedumpfile's option of a codec.
fn option(codec: Codec) -> Option<&'static str> {
    match codec {
        Codec::None => None,
        Codec::Zlib => Some("-c"),
        Codec::Lzo => Some("-l"),
        Codec::Snappy => Some("-p"),
        Codec::Zstd => Some("-z"),
    }
}
