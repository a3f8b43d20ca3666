/// What a trace does not hold though it happened, or holds but cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses {
    /// By CPU, those with losses only, ascending.
    pub cpus: Vec<CpuLosses>,
    /// Records whose event has no format.
    pub unknown_events: u64,
}

/// What one CPU's buffer lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuLosses {
    /// The CPU.
    pub cpu: u32,
    /// Events the kernel counted as lost.
    pub events: u64,
    /// Gaps of which the kernel said only that there is one.
    pub gaps: u64,
    /// Sub-buffers left unread from some byte on, because what they hold cannot be.
    pub damaged_sub_buffers: u64,
    /// What was wrong with the first of them.
    pub first_damage: Option<String>,
}

impl Losses {
    /// The entry of a CPU, made if need be.
    pub fn cpu(&mut self, cpu: u32) -> &mut CpuLosses {
        let at = match self.cpus.binary_search_by_key(&cpu, |losses| losses.cpu) {
            Ok(at) => at,
            Err(at) => {
                self.cpus.insert(at, CpuLosses { cpu, ..CpuLosses::default() });
                at
            }
        };
        &mut self.cpus[at]
    }

    /// Events counted as lost on all CPUs.
    pub fn events(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.events).sum()
    }

    /// Gaps of unknown length on all CPUs.
    pub fn gaps(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.gaps).sum()
    }

    /// Sub-buffers that could not be read to their end.
    pub fn damaged_sub_buffers(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.damaged_sub_buffers).sum()
    }

    /// Nothing is known to be missing.
    pub fn none(&self) -> bool {
        self.events() == 0 && self.gaps() == 0 && self.damaged_sub_buffers() == 0
    }
}
