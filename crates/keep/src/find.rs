//! All that is named, from the roots of the kernel's structures.

use pagehaul_btf::Fault;
use pagehaul_capture::{FileLayout, KeepRules, OwnerRules};
use pagehaul_inspect::{Machine, TypesError, with_types};
use pagehaul_kernel::VirtualMemory;
use pagehaul_physmem::PhysMemory;

use crate::choice::Choice;
use crate::{cgroups, file_systems, processes};

/// Why a choice cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The kernel cannot be opened, or has no types.
    #[error(transparent)]
    Types(#[from] TypesError),
    /// A structure of the kernel cannot be read.
    #[error("cannot read {what}: {source}")]
    Structure {
        /// What was being read.
        what: String,
        /// The cause.
        source: Fault,
    },
    /// A list of the kernel ends early, so that something may be missing.
    #[error("{what} is damaged: {why}")]
    Broken {
        /// What was being read.
        what: String,
        /// The cause.
        why: String,
    },
    /// What is named does not exist, or has no pages that could be known. One sentence.
    #[error("{0}")]
    NotThere(String),
}

impl FindError {
    pub(crate) fn reading(what: impl Into<String>) -> impl FnOnce(Fault) -> Self {
        let what = what.into();
        |source| Self::Structure { what, source }
    }
}

/// Finds what `choice` names in the memory of a crashed kernel.
pub fn find(memory: &dyn PhysMemory, choice: &Choice) -> Result<OwnerRules, FindError> {
    with_types(memory, |machine, virtual_memory| rules(machine, virtual_memory, choice))?
}

fn rules(
    machine: &Machine<'_>,
    memory: &VirtualMemory<'_>,
    choice: &Choice,
) -> Result<OwnerRules, FindError> {
    let mut rules = OwnerRules {
        files: files(machine).map_err(FindError::reading("the layout of inodes"))?,
        ..OwnerRules::default()
    };
    if choice.keeps_some() {
        let processes = processes::find(machine, memory, &choice.pids, &mut rules.record)?;
        let cgroups = match choice.cgroups.is_empty() {
            true => None,
            false => Some(cgroups::find(machine, &choice.cgroups, &mut rules.record)?),
        };
        rules.keep = Some(KeepRules { processes, cgroups });
    }
    if !choice.file_systems.is_empty() {
        rules.drop = Some(file_systems::find(machine, &choice.file_systems, &mut rules.record)?);
    }
    Ok(rules)
}

fn files(machine: &Machine<'_>) -> Result<FileLayout, Fault> {
    let space = machine.space();
    Ok(FileLayout {
        host: space.offset_of("address_space", "host")?,
        mapping: space.offset_of("inode", "i_mapping")?,
        data: space.offset_of("inode", "i_data")?,
        super_block: space.offset_of("inode", "i_sb")?,
    })
}
