//! The machine as a whole.

use pagehaul_btf::Fault;
use pagehaul_machine::PageSize;
use serde::Serialize;

use crate::Machine;
use crate::crash_notes::until_crash;
use crate::tasks::scheduler_clock;

/// Letters and meanings of `tainted_mask` (kernel/panic.c, `taint_flags`).
const TAINTS: [(char, &str); 20] = [
    ('P', "a proprietary module was loaded"),
    ('F', "a module was force-loaded"),
    ('S', "the kernel runs on an out-of-specification system"),
    ('R', "a module was force-unloaded"),
    ('M', "a machine check occurred"),
    ('B', "a bad page was found"),
    ('U', "user space requested the taint"),
    ('D', "an oops or a BUG occurred"),
    ('A', "an ACPI table was overridden"),
    ('W', "the kernel issued a warning"),
    ('C', "a staging driver was loaded"),
    ('I', "a workaround for a firmware bug is active"),
    ('O', "an out-of-tree module was loaded"),
    ('E', "an unsigned module was loaded"),
    ('L', "a soft lockup occurred"),
    ('K', "the kernel was live-patched"),
    ('X', "the distribution's taint"),
    ('T', "the kernel was built with the struct randomization plugin"),
    ('N', "an in-kernel test ran"),
    ('J', "user space used a mutating debug operation"),
];

/// A taint of the kernel.
#[derive(Debug, Clone, Serialize)]
pub struct Taint {
    /// Letter.
    pub letter: char,
    /// Meaning.
    pub meaning: &'static str,
}

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
    /// CPUs that ran until the crash.
    pub cpus: usize,
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
        hostname: uts("name.nodename").ok(),
        crash_time: machine.kernel().crash_time(),
        uptime: scheduler_clock(machine).ok().map(|clock| clock as f64 / 1e9),
        load: load().ok(),
        page_size: machine.page_size(),
        cpus: until_crash(machine).map_or(0, |cpus| cpus.len()),
        command_line: command_line().ok(),
        taints: taints(machine.u64("tainted_mask").unwrap_or(0)),
    }
}

/// The time in ticks of the timer interrupt.
pub(crate) struct Ticks {
    /// `jiffies`.
    pub(crate) now: u64,
    per_second: u64,
}

impl Ticks {
    pub(crate) fn new(machine: &Machine<'_>) -> Result<Self, Fault> {
        let uptime = scheduler_clock(machine)? as f64 / 1e9;
        let now = machine.u64("jiffies_64")?;
        // BTF has no CONFIG_HZ: it is the one that makes both clocks agree. jiffies starts 300 s before 32 bits overflow.
        let error = |hz: &u64| ((now as f64 - (1_u64 << 32) as f64) / *hz as f64 + 300.0 - uptime).abs();
        let rates = [100, 250, 300, 1000].into_iter();
        let per_second = rates.min_by(|a, b| error(a).total_cmp(&error(b))).unwrap_or(250);
        Ok(Self { now, per_second })
    }

    /// Returns the seconds from `jiffies` until now, negative if it is in the future.
    pub(crate) fn seconds_since(&self, jiffies: u64) -> f64 {
        self.now.wrapping_sub(jiffies) as i64 as f64 / self.per_second as f64
    }
}

fn taints(mask: u64) -> Vec<Taint> {
    let set = |(bit, (letter, meaning)): (usize, &(char, &'static str))| {
        (mask >> bit & 1 == 1).then_some(Taint { letter: *letter, meaning })
    };
    TAINTS.iter().enumerate().filter_map(set).collect()
}

/// Returns the letters of a mask, such as `OE`.
pub(crate) fn taint_letters(mask: u64) -> String {
    taints(mask).iter().map(|taint| taint.letter).collect()
}
