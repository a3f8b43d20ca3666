//! Words that limit the CPUs of the capture kernel.

use super::{Config, Stack};

/// How they begin; without `=`, the whole word. A kernel takes `-` for `_` in the name of a parameter.
pub(crate) const LIMITS: [&str; 6] =
    ["nr_cpus=", "nr-cpus=", "maxcpus=", "possible_cpus=", "possible-cpus=", "nosmp"];

/// Ends the kernel's parameters: the words that follow go to init.
pub(crate) const END: &str = "--";

/// A word of the capture kernel's command line that limits its CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuLimit {
    /// The word, such as `maxcpus=1`.
    pub word: String,
    /// CPUs that it allows.
    pub cpus: u32,
    /// The setting that it comes from.
    pub setting: &'static str,
}

impl Config {
    /// What limits the capture kernel's CPUs.
    pub fn cpu_limits(&self) -> Vec<CpuLimit> {
        let stack = self.stack;
        let line = self.command_line.iter().flatten().map(|word| (word, stack.line_setting()));
        let append = self.append.iter().enumerate().map(|(at, word)| match at < self.own {
            true => (word, Stack::SUSE_CPUS),
            false => (word, stack.append_setting()),
        });
        let words = line.chain(append).take_while(|(word, _)| *word != END);
        words
            .filter_map(|(word, setting)| {
                Some(CpuLimit { word: word.clone(), cpus: cpus_of(word)?, setting })
            })
            .collect()
    }

    /// CPUs of the capture kernel; `None` for all. Of several `nr_cpus=`, Linux takes the least (`nrcpus` of kernel/smp.c).
    pub fn capture_cpus(&self) -> Option<u32> {
        self.cpu_limits().iter().map(|limit| limit.cpus).min()
    }
}

/// The CPUs that a word allows, if it is such a limit.
fn cpus_of(word: &str) -> Option<u32> {
    if word == "nosmp" {
        return Some(1);
    }
    let (name, value) = word.split_once('=')?;
    let end = value.find(|next: char| !next.is_ascii_digit()).unwrap_or(value.len());
    let cpus: u32 = value[..end].parse().ok()?;
    match name.replace('-', "_").as_str() {
        // Linux ignores 0.
        "nr_cpus" => Some(cpus).filter(|cpus| *cpus > 0),
        // 0 is nosmp.
        "maxcpus" | "possible_cpus" => Some(cpus.max(1)),
        _ => None,
    }
}

/// Whether a word is one of `old`: begins so, or is it if it has no `=`.
pub(crate) fn is_of(word: &str, old: &[&str]) -> bool {
    old.iter().any(|old| if old.ends_with('=') { word.starts_with(old) } else { word == *old })
}
