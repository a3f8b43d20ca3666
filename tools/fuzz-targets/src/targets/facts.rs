//! Facts of a machine of any era with another VMCOREINFO and a partly overwritten log: era, length of VMCOREINFO (none: the
//! machine's), VMCOREINFO, then offsets in the log and bytes.

use crate::{LOG_PFN, Simulation};
use pagehaul_facts::Facts;
use pagehaul_synth::{Era, LOG_PAGES};

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((&[era, low, high], rest)) = data.split_first_chunk() else { return };
    let length = usize::from(u16::from_le_bytes([low, high]));
    let Some((info, patches)) = rest.split_at_checked(length) else { return };
    let mut simulation = Simulation::new(Era::ALL[usize::from(era) % Era::ALL.len()]);
    if !info.is_empty() {
        simulation = simulation.with_vmcoreinfo(info);
    }
    for patch in patches.as_chunks::<10>().0 {
        let [low, high, bytes @ ..] = patch;
        let at = u64::from(u16::from_le_bytes([*low, *high])) % ((LOG_PAGES << 12) - 8);
        simulation = simulation.with_bytes((LOG_PFN << 12) + at, bytes);
    }
    let facts = Facts::read(&simulation, "fuzzed".to_owned());
    assert_eq!(facts.id.crash_id.len(), 32);
    let text = serde_json::to_vec(&facts).expect("facts are JSON");
    assert_eq!(serde_json::from_slice::<Facts>(&text).expect("written by us"), facts);
}
