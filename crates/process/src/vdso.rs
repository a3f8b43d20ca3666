//! The vDSO of a process.

use crate::arch::HOST;
use crate::copy::{Memory, Shared};
use crate::mapping::Mapping;
use crate::populated::Run;
use crate::units::Pid;

/// The code that the kernel maps into a process.
pub(crate) struct Vdso {
    pub(crate) address: u64,
    pub(crate) code: Vec<u8>,
}

impl Vdso {
    pub(crate) fn read(pid: Pid, mappings: &[Mapping]) -> Option<Self> {
        let vdso = mappings.iter().find(|mapping| mapping.name == b"[vdso]")?;
        let mut code = vec![0; vdso.len() as usize];
        let memory = Memory::open(pid, Shared::All).ok()?;
        memory.copy(&[Run { range: 0..vdso.len(), address: vdso.range.start }], &mut code).ok()?;
        Some(Self { address: vdso.range.start, code })
    }

    /// Finds a system call instruction.
    pub(crate) fn system_call(&self) -> Option<u64> {
        let mut places = (0..self.code.len()).step_by(HOST.alignment);
        let at =
            places.find(|&at| self.code.get(at..).is_some_and(|code| code.starts_with(HOST.system_call)))?;
        Some(self.address + at as u64)
    }
}
