//! `--erase`: what a dump does not hold.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use pagehaul_erase::{Found, Subject, find, with_record};
use pagehaul_present::number;
use pagehaul_vmcore::Source;

use crate::crash_report;

/// What is overwritten in a dump.
#[derive(Debug, Args)]
pub(crate) struct Erase {
    /// Overwrite these in the dump, separated by commas: keys (payloads of keyrings, dm-crypt, TLS in the kernel, WireGuard, fscrypt,
    /// with their ciphers; the random number generator), log (its text), names (of user tasks and the host), free-objects (slab objects
    /// that are free, with zeros). They are found by the kernel's types (BTF), and the dump records them. If some cannot be found,
    /// nothing is written. User memory, stacks and free pages can have copies
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    erase: Vec<Subject>,
    /// Write the dump even if some of what --erase names cannot be found; the dump records what
    #[arg(long, requires = "erase")]
    allow_unerased: bool,
}

impl Erase {
    /// Returns what is to be erased.
    pub(crate) fn subjects(&self) -> &[Subject] {
        &self.erase
    }

    /// Erases it from `source`, which this process reads.
    pub(crate) fn apply(&self, source: &mut Source, quiet: bool) -> anyhow::Result<()> {
        if self.erase.is_empty() {
            return Ok(());
        }
        let found = find(source.memory(), &self.erase)
            .with_context(|| format!("{}: nothing can be erased", source.path().display()))?;
        self.erase_found(source, found, quiet)
    }

    /// Erases it from `source`. Another process, which gets `arguments`, finds it within `budget`.
    pub(crate) fn apply_from_other(
        &self,
        source: &mut Source,
        arguments: &[OsString],
        budget: Duration,
        quiet: bool,
    ) -> anyhow::Result<()> {
        if self.erase.is_empty() {
            return Ok(());
        }
        let found = crash_report::erasure(&self.erase, arguments, budget)
            .with_context(|| format!("{}: nothing can be erased", source.path().display()))?;
        self.erase_found(source, found, quiet)
    }

    fn erase_found(&self, source: &mut Source, found: Found, quiet: bool) -> anyhow::Result<()> {
        let Found { erasure, unerased } = found;
        if !unerased.is_empty() && !self.allow_unerased {
            bail!(
                "{}: nothing is written, because not all of what --erase names can be erased (--allow-unerased goes on): {}",
                source.path().display(),
                unerased.join("; ")
            );
        }
        if !quiet {
            let (places, bytes) = erasure.count();
            tell!("pagehaul: {} erased, in {}", number::bytes(bytes), number::counted(places, "place"));
            unerased.iter().for_each(|why| tell!("pagehaul: not erased: {why}"));
        }
        let missing = unerased.iter().map(|why| format!("not erased: {why}"));
        let record: Vec<String> = erasure.record().iter().cloned().chain(missing).collect();
        source.supply_notes(with_record(source.memory().notes(), &record));
        source.read_through(Box::new(erasure));
        Ok(())
    }
}
