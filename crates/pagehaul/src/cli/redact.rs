//! `--redact`. The binary for capture kernels has no list of the kernel's words: there it does nothing, and has no key.

#[cfg(any(feature = "census", feature = "html"))]
use std::path::Path;
#[cfg(feature = "redact")]
use std::path::PathBuf;

use clap::Args;
#[cfg(feature = "redact")]
pub(crate) use pagehaul_redact::{Names, Redaction, task_names};

/// `--redact`, of commands that print what a dump says.
#[derive(Debug, Args)]
pub(crate) struct Redact {
    /// Replace what may name the site, its machines and its people by hashes with the contents of the file KEY
    #[cfg(feature = "redact")]
    #[arg(long, value_name = "KEY")]
    redact: Option<PathBuf>,
}

impl Redact {
    /// The file with the key, which no output replaces.
    #[cfg(any(feature = "census", feature = "html"))]
    pub(crate) fn file(&self) -> Option<&Path> {
        #[cfg(feature = "redact")]
        return self.redact.as_deref();
        #[cfg(not(feature = "redact"))]
        None
    }

    /// Reads the key: before the sandbox, which allows the dump alone.
    pub(crate) fn key(&self) -> anyhow::Result<Option<Redaction>> {
        #[cfg(feature = "redact")]
        return Ok(self.redact.as_deref().map(Redaction::from_file).transpose()?);
        #[cfg(not(feature = "redact"))]
        Ok(None)
    }
}

#[cfg(not(feature = "redact"))]
mod without {
    use pagehaul_facts::Facts;
    use pagehaul_inspect::{LastLine, OnRequest, TriageReport};
    use pagehaul_physmem::PhysMemory;

    /// There is none.
    pub(crate) enum Redaction {}

    /// There are none.
    pub(crate) struct Names;

    /// There is none.
    pub(crate) struct TaskName;

    #[cfg(feature = "census")]
    impl Names {
        pub(crate) fn of_tasks(_: &[TaskName]) -> Self {
            Self
        }
    }

    pub(crate) fn task_names(_: &dyn PhysMemory) -> Vec<TaskName> {
        Vec::new()
    }

    impl Redaction {
        pub(crate) fn name(&self, _: &str, _: &str) -> String {
            match *self {}
        }

        pub(crate) fn report(&self, _: &mut TriageReport) -> Names {
            match *self {}
        }

        pub(crate) fn on_request(&self, _: &mut OnRequest, _: &Names) {
            match *self {}
        }

        pub(crate) fn lines(&self, _: &mut [LastLine], _: &Names) {
            match *self {}
        }

        #[cfg(feature = "census")]
        pub(crate) fn owners(&self, _: &mut pagehaul_owners::Balance, _: &Names) {
            match *self {}
        }

        pub(crate) fn facts(&self, _: &mut Facts, _: &[TaskName]) {
            match *self {}
        }
    }
}

#[cfg(not(feature = "redact"))]
pub(crate) use without::{Names, Redaction, task_names};
