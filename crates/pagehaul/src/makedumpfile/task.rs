//! What a command line asks for, after makedumpfile's checks of it.

use std::ffi::OsString;
use std::path::PathBuf;

use pagehaul_kernel::DumpLevel;

use super::options::Options;

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Task {
    /// Write a dump; to standard output without outputs, in parts with several.
    Dump { source: PathBuf, outputs: Vec<PathBuf> },
    /// Classify pages, write nothing.
    DryRun { source: PathBuf },
    /// Write the kernel log; to standard output without an output.
    Dmesg { source: PathBuf, output: Option<PathBuf> },
    /// Turn the flattened stream on standard input into a file.
    Rearrange { output: PathBuf },
    /// Join a split set.
    Reassemble { parts: Vec<PathBuf>, output: PathBuf },
    /// Count a live machine's pages by class.
    MemUsage { source: PathBuf },
    /// Print the version.
    Version,
    /// Print how to use it.
    Help,
}

/// The highest value of --message-level: every bit set.
const EVERY_MESSAGE: i64 = 31;

impl Options {
    /// Checks the command line. The error is a sentence of makedumpfile or about a refused option; `None` where
    /// makedumpfile has no words for it.
    pub(super) fn task(&self) -> Result<Task, Option<String>> {
        if self.help {
            return Ok(Task::Help);
        }
        if self.version {
            return Ok(Task::Version);
        }
        if let Some(error) = &self.error {
            return Err(Some(error.clone()));
        }
        if !(0..=EVERY_MESSAGE).contains(&self.message_level) {
            return Err(Some(format!("Message_level({}) is invalid.", self.message_level)));
        }
        let paths: Vec<PathBuf> = self.operands.iter().map(OsString::as_os_str).map(PathBuf::from).collect();
        if self.dump_dmesg {
            return dmesg(&paths, self.flattened).ok_or(None);
        }
        if self.rearrange {
            return match paths.as_slice() {
                [output] if !self.flattened => Ok(Task::Rearrange { output: output.clone() }),
                _ => Err(None),
            };
        }
        if self.reassemble {
            return match paths.split_last() {
                Some((output, parts)) if !parts.is_empty() && !self.flattened => {
                    Ok(Task::Reassemble { parts: parts.to_vec(), output: output.clone() })
                }
                _ => Err(None),
            };
        }
        if self.mem_usage {
            return match paths.as_slice() {
                [source] => Ok(Task::MemUsage { source: source.clone() }),
                _ => Err(None),
            };
        }
        self.dump(&paths)
    }

    fn dump(&self, paths: &[PathBuf]) -> Result<Task, Option<String>> {
        self.dump_levels()?;
        if self.elf && self.codec.is_some() {
            return Err(None);
        }
        if self.threads.is_some() && self.elf {
            return Err(Some("--num-threads cannot used with ELF format.".into()));
        }
        let Some((source, outputs)) = paths.split_first() else { return Err(None) };
        let (source, outputs) = (source.clone(), outputs.to_vec());
        if self.split && (self.flattened || self.elf || self.threads.is_some()) {
            return Err(None);
        }
        let right = match outputs.len() {
            0 => self.flattened || self.dry_run,
            1 => !self.flattened && !self.split,
            _ => self.split,
        };
        if !right {
            return Err(None);
        }
        Ok(if self.dry_run { Task::DryRun { source } } else { Task::Dump { source, outputs } })
    }

    /// Returns the levels: the first, and those to try when the disk is full.
    pub(super) fn dump_levels(&self) -> Result<Vec<DumpLevel>, String> {
        let level = |&level: &i64| {
            let bits = u8::try_from(level).ok().and_then(DumpLevel::new);
            bits.ok_or_else(|| format!("Dump_level({level}) is invalid."))
        };
        self.levels.iter().map(level).collect()
    }
}

fn dmesg(paths: &[PathBuf], flattened: bool) -> Option<Task> {
    match (paths, flattened) {
        ([source], true) => Some(Task::Dmesg { source: source.clone(), output: None }),
        ([source, output], false) => {
            Some(Task::Dmesg { source: source.clone(), output: Some(output.clone()) })
        }
        _ => None,
    }
}
