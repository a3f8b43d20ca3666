//! What the source lost of the parts of a balance. A part says what it could not read; of one that said nothing, and takes what it cannot
//! read for what is not there, this says it.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use pagehaul_inspect::Machine;
use pagehaul_physmem::{PageState, ReadError, View, Wrap};

/// Runs a part that adds what it lacks to `missing`, and adds what the source lost of it if the part does not say so. Returns whether
/// the part lacks something, too.
pub(crate) fn watched<T>(
    machine: &Machine<'_>,
    missing: &mut Vec<String>,
    what: &str,
    part: impl FnOnce(&mut Vec<String>) -> T,
) -> (T, bool) {
    let said = missing.len();
    let (found, lost) = machine.losing(|| part(&mut *missing));
    if missing.len() == said {
        missing.extend(lost.map(|why| format!("{what}: {why}")));
    }
    (found, missing.len() > said)
}

/// Notes reads of physical memory that fail: page tables are read past the reader that knows what the kernel's addresses lack.
#[derive(Debug, Default)]
pub(crate) struct PhysicalLoss(Mutex<Option<String>>);

impl PhysicalLoss {
    /// Returns the first failure since the last call.
    pub(crate) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Wrap for PhysicalLoss {
    fn wrap<'a>(&'a self, view: Box<dyn View + 'a>) -> Box<dyn View + 'a> {
        Box::new(WatchedView { loss: self, view })
    }
}

struct WatchedView<'a> {
    loss: &'a PhysicalLoss,
    view: Box<dyn View + 'a>,
}

impl View for WatchedView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        self.view.window(paddr, len).inspect_err(|why| {
            if matches!(why.state(), PageState::Missing | PageState::Damaged) {
                let mut first = self.loss.0.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert_with(|| why.to_string());
            }
        })
    }

    fn is_remote(&self) -> bool {
        self.view.is_remote()
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) {
        self.view.will_need(ranges);
    }

    fn will_need_tables(&mut self) {
        self.view.will_need_tables();
    }

    fn end_of_hole(&self, paddr: u64) -> u64 {
        self.view.end_of_hole(paddr)
    }

    fn take_fault(&mut self) -> bool {
        self.view.take_fault()
    }
}
