//! VMCOREINFO that contradicts an intact machine.

use crate::Simulation;
use pagehaul_kernel::{Kernel, PageClass, PageScanner, VmcoreInfo};
use pagehaul_physmem::PhysMemory;
use pagehaul_synth::Era;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((&choice, text)) = data.split_first() else { return };
    for (key, value) in VmcoreInfo::parse(text).iter() {
        assert!(!key.contains('\n') && !value.contains('\n'));
    }
    let memory = Simulation::new(Era::ALL[usize::from(choice) % Era::ALL.len()]).with_vmcoreinfo(text);
    let Ok(kernel) = Kernel::discover(&memory) else { return };
    let mut scanner = PageScanner::new(&kernel, memory.view());
    let mut classes = [PageClass::Absent; 512];
    for block in [0, 1, 2, u64::MAX] {
        if let Ok(report) = scanner.scan(block, &mut classes) {
            assert_eq!(report.pages.iter().sum::<u64>(), 512);
        }
    }
}
