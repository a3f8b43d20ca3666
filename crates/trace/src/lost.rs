/// Events that happened but are missing from the trace, or cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses {
    /// CPUs with losses, in ascending order.
    pub cpus: Vec<CpuLosses>,
    /// Records whose event has no known format.
    pub unknown_events: u64,
}

/// Losses of one CPU's buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuLosses {
    pub cpu: u32,
    /// Events that the kernel counted as lost.
    pub events: u64,
    /// Gaps that the kernel flagged without a count.
    pub gaps: u64,
    /// Sub-buffers that are damaged from some offset on; their remaining records were not read.
    pub damaged_sub_buffers: u64,
    /// Error of the first damaged sub-buffer.
    pub first_damage: Option<String>,
}

impl Losses {
    /// Returns the entry of a CPU, and adds it if missing.
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

    /// Returns the number of lost events, all CPUs.
    pub fn events(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.events).sum()
    }

    /// Returns the number of gaps of unknown length, all CPUs.
    pub fn gaps(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.gaps).sum()
    }

    /// Returns the lower bound of lost events: a gap of unknown length is at least one.
    pub fn at_least(&self) -> u64 {
        self.events() + self.gaps()
    }

    /// Returns the number of damaged sub-buffers, all CPUs.
    pub fn damaged_sub_buffers(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.damaged_sub_buffers).sum()
    }

    /// Returns whether no losses are known.
    pub fn none(&self) -> bool {
        self.events() == 0 && self.gaps() == 0 && self.damaged_sub_buffers() == 0
    }
}
