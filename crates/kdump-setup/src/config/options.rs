//! Options of makedumpfile that no version has.

use super::{Config, Stack};

/// Long options of makedumpfile 1.5 to 1.7.
const LONG: [&str; 24] = [
    "allow-incomplete",
    "check-params",
    "config",
    "cyclic-buffer",
    "diskset",
    "dry-run",
    "dump-dmesg",
    "eppic",
    "extension",
    "help",
    "mem-usage",
    "message-level",
    "non-cyclic",
    "non-mmap",
    "num-threads",
    "partial-dmesg",
    "reassemble",
    "show-stats",
    "split",
    "splitblock-size",
    "vtop",
    "work-dir",
    "xen_phys_start",
    "xen-",
];

impl Config {
    /// A long option that makedumpfile does not have, where mkdumprd has it check them (`verify_core_collector`): neither the list nor
    /// the program's file has a name that begins so. Newer versions may know more.
    pub(crate) fn unknown_option(&self, program: &[u8]) -> Option<String> {
        let (name, options) = self.collector.split_first()?;
        if self.stack != Stack::KdumpUtils || name != "makedumpfile" {
            return None;
        }
        let is_known = |long: &str| {
            LONG.iter()
                .any(|known| known.starts_with(long) || known.ends_with('-') && long.starts_with(known))
                || memchr::memmem::find(program, long.as_bytes()).is_some()
        };
        // What a shell puts into words, and what follows `--`, is not known.
        let words = options.iter().take_while(|word| *word != "--");
        let mut long = words.filter_map(|word| Some((word, word.strip_prefix("--")?.split('=').next()?)));
        let (word, _) = long.find(|(_, long)| !long.contains(['$', '`', '"', '\'']) && !is_known(long))?;
        Some(word.clone())
    }
}
