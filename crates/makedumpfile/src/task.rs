//! What a command line asks for, after makedumpfile's checks of it.

use std::ffi::OsString;
use std::path::PathBuf;

use pagehaul_kernel::DumpLevel;

use crate::options::Options;

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Write a dump.
    Dump {
        /// The vmcore.
        source: PathBuf,
        /// The dump; none for standard output, several for the parts of a split set.
        outputs: Vec<PathBuf>,
    },
    /// Classify pages, write nothing.
    DryRun {
        /// The vmcore.
        source: PathBuf,
    },
    /// Write the kernel log.
    Dmesg {
        /// The vmcore.
        source: PathBuf,
        /// The log; none for standard output.
        output: Option<PathBuf>,
    },
    /// Turn the flattened stream on standard input into a file.
    Rearrange {
        /// The dump.
        output: PathBuf,
    },
    /// Join a split set.
    Reassemble {
        /// The parts.
        parts: Vec<PathBuf>,
        /// The dump.
        output: PathBuf,
    },
    /// Count a live machine's pages by class.
    MemUsage {
        /// The machine's memory, usually /proc/kcore.
        source: PathBuf,
    },
    /// Print the version.
    Version,
    /// Print how to use it.
    Help,
}

/// Why a command line is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalid {
    /// In the words of makedumpfile, or why an option of it is refused.
    Because(String),
    /// Options and operands do not go together; makedumpfile has no words for it.
    Combination,
}

/// The highest value of --message-level: every bit set.
const EVERY_MESSAGE: i64 = 31;

impl Options {
    /// Checks the command line.
    pub fn task(&self) -> Result<Task, Invalid> {
        if self.help {
            return Ok(Task::Help);
        }
        if self.version {
            return Ok(Task::Version);
        }
        if let Some(error) = &self.error {
            return Err(Invalid::Because(error.clone()));
        }
        if !(0..=EVERY_MESSAGE).contains(&self.message_level) {
            return Err(Invalid::Because(format!("Message_level({}) is invalid.", self.message_level)));
        }
        let paths: Vec<PathBuf> = self.operands.iter().map(OsString::as_os_str).map(PathBuf::from).collect();
        if self.dump_dmesg {
            return dmesg(&paths, self.flattened).ok_or(Invalid::Combination);
        }
        if self.rearrange {
            return match paths.as_slice() {
                [output] if !self.flattened => Ok(Task::Rearrange { output: output.clone() }),
                _ => Err(Invalid::Combination),
            };
        }
        if self.reassemble {
            return match paths.split_last() {
                Some((output, parts)) if !parts.is_empty() && !self.flattened => {
                    Ok(Task::Reassemble { parts: parts.to_vec(), output: output.clone() })
                }
                _ => Err(Invalid::Combination),
            };
        }
        if self.mem_usage {
            return match paths.as_slice() {
                [source] => Ok(Task::MemUsage { source: source.clone() }),
                _ => Err(Invalid::Combination),
            };
        }
        self.dump(&paths)
    }

    fn dump(&self, paths: &[PathBuf]) -> Result<Task, Invalid> {
        self.dump_levels().map_err(Invalid::Because)?;
        if self.elf && self.codec.is_some() {
            return Err(Invalid::Combination);
        }
        if self.threads.is_some() && self.elf {
            return Err(Invalid::Because("--num-threads cannot used with ELF format.".into()));
        }
        let Some((source, outputs)) = paths.split_first() else { return Err(Invalid::Combination) };
        let (source, outputs) = (source.clone(), outputs.to_vec());
        if self.split && (self.flattened || self.elf || self.threads.is_some()) {
            return Err(Invalid::Combination);
        }
        let right = match outputs.len() {
            0 => self.flattened || self.dry_run,
            1 => !self.flattened && !self.split,
            _ => self.split,
        };
        if !right {
            return Err(Invalid::Combination);
        }
        Ok(if self.dry_run { Task::DryRun { source } } else { Task::Dump { source, outputs } })
    }

    /// Returns the levels: the first, and those to try when the disk is full.
    pub(crate) fn dump_levels(&self) -> Result<Vec<DumpLevel>, String> {
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
