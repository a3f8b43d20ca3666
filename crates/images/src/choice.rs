//! Which kernel an image is of.

use std::fmt;

use pagehaul_elfcore::notes;
use pagehaul_physmem::PhysMemory;

use crate::candidate::{Candidate, Candidates, candidates};
use crate::cpu_notes;
use crate::proof::{Contradiction, Proof, prove};

/// Candidates whose kernel is searched in all memory, because they do not say where it is (before 4.10).
const MAX_SEARCHES: usize = 8;

/// A kernel that was found in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelInMemory {
    /// Its VMCOREINFO.
    pub text: Vec<u8>,
    /// Physical address of the VMCOREINFO.
    pub at: u64,
    /// Its release.
    pub release: String,
    /// When it crashed, in seconds since 1970, if it did.
    pub crash_time: Option<u64>,
    /// Whether a CPU ran it when the image was made; `None` if the source does not tell.
    pub runs: Option<bool>,
}

/// Why no kernel was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoKernel {
    /// Bytes of memory.
    pub searched: u64,
    /// Different texts that look like VMCOREINFO and were judged.
    pub candidates: usize,
    /// Whether there were more.
    pub more: bool,
    /// What contradicts the one that came nearest, with its address.
    pub nearest: Option<(u64, Contradiction)>,
}

impl fmt::Display for NoKernel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.searched >> 20;
        match &self.nearest {
            None => write!(
                out,
                "no VMCOREINFO (a text that begins with OSRELEASE=) is in {mib} MiB of memory: it is not a Linux kernel's, or it is \
                 encrypted or incomplete"
            ),
            Some((at, why)) => write!(
                out,
                "of {}{} that memory has, no VMCOREINFO fits; the nearest is at {at:#x}, but {why}",
                if self.more { "more than " } else { "" },
                self.candidates
            ),
        }
    }
}

/// Finds the kernels in memory: first the one to read, then the others. That is the one that crashed, of several the one that crashed
/// last; without any, the one that the CPUs run.
pub fn find(memory: &dyn PhysMemory, threads: usize) -> Result<Vec<KernelInMemory>, NoKernel> {
    let Candidates { found, more } = candidates(memory, threads);
    let count = found.len();
    let roots = cpu_notes::page_tables(memory.notes());
    let mut searches = 0;
    let mut nearest: Option<(u64, Contradiction)> = None;
    let mut proven: Vec<(Proof, Candidate)> = Vec::new();
    for candidate in found {
        // It costs one read for each 2 MiB.
        let needs_search =
            candidate.info.get("SYMBOL(phys_base)").is_some() && candidate.info.number("phys_base").is_none();
        searches += usize::from(needs_search);
        if needs_search && searches > MAX_SEARCHES {
            continue;
        }
        match prove(&candidate.info, memory) {
            Ok(proof) => proven.push((proof, candidate)),
            Err(why) => {
                if nearest.as_ref().is_none_or(|(_, known)| distance(&why) < distance(known)) {
                    nearest = Some((candidate.at, why));
                }
            }
        }
    }
    let mut kernels = one_of_each(proven);
    kernels.sort_by_key(|(proof, candidate)| {
        let runs = runs(memory, &roots, proof).unwrap_or(false);
        let crash_time = candidate.info.unsigned("CRASHTIME");
        std::cmp::Reverse((crash_time.is_some(), crash_time, runs, candidate.text.len()))
    });
    if kernels.is_empty() {
        return Err(NoKernel { searched: memory.held_bytes(), candidates: count, more, nearest });
    }
    let described = |(proof, candidate): (Proof, Candidate)| KernelInMemory {
        at: candidate.at,
        release: candidate.info.get("OSRELEASE").unwrap_or_default().to_owned(),
        crash_time: candidate.info.unsigned("CRASHTIME"),
        runs: runs(memory, &roots, &proof),
        text: candidate.text,
    };
    Ok(kernels.into_iter().map(described).collect())
}

/// How far a candidate came.
fn distance(why: &Contradiction) -> u8 {
    match why {
        Contradiction::OtherTables { .. } => 0,
        Contradiction::OtherImage { exists: true, .. } => 1,
        Contradiction::OtherImage { exists: false, .. } => 2,
        Contradiction::Incomplete => 3,
        Contradiction::Info(_) => 4,
    }
}

/// Of all copies of one kernel's VMCOREINFO, returns the best: its own note, else one with the time of the crash, else the longest.
fn one_of_each(proven: Vec<(Proof, Candidate)>) -> Vec<(Proof, Candidate)> {
    let quality = |candidate: &Candidate| {
        let crash_time = candidate.info.unsigned("CRASHTIME");
        (candidate.is_note, crash_time.is_some(), candidate.text.len(), crash_time)
    };
    let mut kernels: Vec<(Proof, Candidate)> = Vec::new();
    for (proof, candidate) in proven {
        match kernels.iter_mut().find(|(known, _)| known.root == proof.root) {
            Some((_, best)) if quality(&candidate) > quality(best) => *best = candidate,
            Some(_) => {}
            None => kernels.push((proof, candidate)),
        }
    }
    kernels
}

/// Returns whether a CPU runs the kernel, by the page tables that CPUs used.
fn runs(memory: &dyn PhysMemory, roots: &[u64], proof: &Proof) -> Option<bool> {
    if roots.is_empty() {
        return None;
    }
    let mut view = memory.view();
    // All page tables of a kernel share the entry of its image, the last, but for those of user mode (page table isolation).
    let mut image = |root: u64| view.read_u64(root.checked_add(511 * 8)?).ok().filter(|entry| *entry != 0);
    let own = image(proof.root)?;
    Some(roots.iter().any(|root| image(*root) == Some(own)))
}

/// Returns the notes of a source with the VMCOREINFO of `kernel`.
pub(crate) fn notes_with(kernel: &KernelInMemory, of_cpus: &[u8]) -> Vec<u8> {
    let mut all = of_cpus.to_vec();
    notes::push(&mut all, "VMCOREINFO", 0, &kernel.text);
    all
}
