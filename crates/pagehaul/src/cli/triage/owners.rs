//! The owners of memory in a report. The binary for capture kernels does without: it has no time to read all struct pages.

#[cfg(feature = "census")]
mod balance {
    use pagehaul_inspect::{Machine, TriageReport};
    use pagehaul_kernel::Kernel;
    pub(crate) use pagehaul_owners::are_evidence;
    use pagehaul_owners::{Effort, References, balance, blame, use_rows};
    use pagehaul_physmem::PhysMemory;
    pub(crate) use pagehaul_render::owners::{memory_use, text};

    use crate::cli::options::Threads;
    use crate::cli::redact::{Names, Redaction};

    pub(crate) type Owners = pagehaul_owners::Balance;

    /// Finds the owners of all pages, redacts them, and names them in the findings.
    pub(crate) fn find(
        machine: &Machine<'_>,
        memory: &dyn PhysMemory,
        redaction: Option<&(&Redaction, Names)>,
        report: &mut TriageReport,
    ) -> anyhow::Result<Option<Owners>> {
        let kernel = Kernel::discover(memory)?;
        // The kernel's memory is read only if that says more than the rows.
        let effort = Effort { threads: Threads::default().count(), references: References::Above(10) };
        let mut owners = balance(machine, &kernel, memory, effort)?;
        if let Some((redaction, names)) = redaction {
            redaction.owners(&mut owners, names);
        }
        // What else is missing is in the balance; these decide who is named.
        let records = owners.missing.iter().filter(|why| why.starts_with("page_owner: "));
        report.missing.extend(records.map(|why| format!("owners of memory: {why}")));
        use_rows(report, &owners);
        blame(report, &owners);
        Ok(Some(owners))
    }

    /// Notes that the dump lacks pages.
    pub(crate) fn note_loss(owners: &mut Owners) {
        owners.incomplete = true;
        owners.is_whole = false;
    }
}

#[cfg(not(feature = "census"))]
mod balance {
    use pagehaul_inspect::{Machine, TriageReport};
    use pagehaul_physmem::PhysMemory;

    use crate::cli::redact::{Names, Redaction};

    /// There is none.
    #[derive(serde::Serialize)]
    pub(crate) enum Owners {}

    pub(crate) fn are_evidence(_: &TriageReport) -> bool {
        false
    }

    pub(crate) fn find(
        _: &Machine<'_>,
        _: &dyn PhysMemory,
        _: Option<&(&Redaction, Names)>,
        _: &mut TriageReport,
    ) -> anyhow::Result<Option<Owners>> {
        Ok(None)
    }

    pub(crate) fn note_loss(owners: &mut Owners) {
        match *owners {}
    }

    pub(crate) fn text(owners: &Owners) -> String {
        match *owners {}
    }

    #[cfg(feature = "html")]
    pub(crate) fn memory_use(owners: &Owners) -> pagehaul_render::memory_use::MemoryUse {
        match *owners {}
    }
}

#[cfg(feature = "html")]
pub(crate) use balance::memory_use;
pub(crate) use balance::{Owners, are_evidence, find, note_loss, text};
