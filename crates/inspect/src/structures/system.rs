//! The machine as a whole.

use pagehaul_btf::Fault;
use pagehaul_elfcore::notes::{self, cpu_count};
use pagehaul_machine::PageSize;
use serde::Serialize;

use super::clock::scheduler_clock;
use super::crash_notes::until_crash;
use crate::machine::Machine;
use crate::machine::taints::{Taint, taints};

/// Facts of the whole machine.
#[derive(Debug, Clone, Serialize)]
pub struct System {
    /// `uname -r`.
    pub release: String,
    /// `uname -v`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `uname -n`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Seconds since 1970 at the crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash_time: Option<u64>,
    /// Seconds since the machine started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uptime: Option<f64>,
    /// Load averages of 1, 5 and 15 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<[f64; 3]>,
    /// Bytes of a page. All numbers of pages in the report count such pages.
    pub page_size: PageSize,
    /// CPUs that ran until the crash. If the kernel does not say it, those that left registers in the notes; none if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<usize>,
    /// The kernel's command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_line: Option<String>,
    /// Taints.
    pub taints: Vec<Taint>,
}

/// Reads facts of the whole machine. Those that cannot be read are skipped.
pub fn system(machine: &Machine<'_>) -> System {
    let uts = |field: &str| -> Result<String, Fault> {
        machine.variable("init_uts_ns", "uts_namespace")?.get(field)?.text()
    };
    let load = || -> Result<[f64; 3], Fault> {
        let start = machine.symbol("avenrun")?;
        let mut load = [0.0; 3];
        for (at, value) in load.iter_mut().enumerate() {
            // FIXED_1 is 2048 (include/linux/sched/loadavg.h).
            *value = machine.memory().u64(start.wrapping_add(8 * at as u64))? as f64 / 2048.0;
        }
        Ok(load)
    };
    let command_line =
        || -> Result<String, Fault> { Ok(machine.memory().text(machine.u64("saved_command_line")?, 4096)?) };
    System {
        release: machine.kernel().release().to_owned(),
        version: uts("name.version").ok(),
        hostname: uts("name.nodename").ok().filter(|_| !notes::has_erased(machine.notes(), notes::HOST)),
        crash_time: machine.kernel().crash_time(),
        uptime: scheduler_clock(machine).ok().map(|clock| clock as f64 / 1e9),
        load: load().ok(),
        page_size: machine.page_size(),
        cpus: cpus(until_crash(machine).ok(), machine.notes()),
        command_line: command_line().ok(),
        taints: taints(machine.u64("tainted_mask").unwrap_or(0)),
    }
}

/// The number of CPUs, by the kernel's masks or else by the notes of the dump.
fn cpus(by_masks: Option<Vec<u64>>, notes: &[u8]) -> Option<usize> {
    match by_masks {
        Some(cpus) => (!cpus.is_empty()).then_some(cpus.len()),
        None => cpus_of_notes(notes),
    }
}

/// The number of CPUs that left registers in the notes.
pub(crate) fn cpus_of_notes(notes: &[u8]) -> Option<usize> {
    let count = cpu_count(notes) as usize;
    (count > 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use pagehaul_elfcore::notes::{NT_PRSTATUS, push};

    use super::*;

    #[test]
    fn cpus_that_the_kernel_does_not_name_are_those_of_the_notes() {
        let mut notes = Vec::new();
        push(&mut notes, "CORE", NT_PRSTATUS, &[0; 336]);
        push(&mut notes, "CORE", NT_PRSTATUS, &[0; 336]);
        assert_eq!(cpus(Some(vec![0, 1, 2]), &notes), Some(3));
        assert_eq!(cpus(None, &notes), Some(2));
        assert_eq!(cpus(None, &[]), None);
    }
}
