//! All that is asked for, from the roots of the kernel's structures.

use pagehaul_inspect::{TypesError, with_types};
use pagehaul_physmem::PhysMemory;
use serde::{Deserialize, Serialize};

use crate::collect::Collector;
use crate::erasure::Erasure;
use crate::subject::Subject;
use crate::{free_objects, keys, log, names};

/// What was found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Found {
    /// What can be erased.
    pub erasure: Erasure,
    /// What cannot, one sentence each.
    pub unerased: Vec<String>,
}

/// Finds `subjects` in the memory of a crashed kernel.
pub fn find(memory: &dyn PhysMemory, subjects: &[Subject]) -> Result<Found, TypesError> {
    with_types(memory, |machine, virtual_memory| {
        let translate = |vaddr| virtual_memory.physical(vaddr);
        let mut out = Collector::new(&translate);
        // What is named twice is erased once.
        for (at, subject) in subjects.iter().enumerate() {
            if subjects.get(..at).is_some_and(|before| before.contains(subject)) {
                continue;
            }
            match subject {
                Subject::Keys => keys::find(machine, &mut out),
                Subject::Log => log::find(machine, memory, &mut out),
                Subject::Names => names::find(machine, &mut out),
                Subject::FreeObjects => free_objects::find(machine, memory, &mut out),
            }
        }
        out.finish()
    })
}
