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
    /// A long option that makedumpfile does not have, for which it ends with an error (mkdumprd has it check them:
    /// `verify_core_collector`). Neither the list nor the program's file has a name that begins so: newer versions may know more.
    pub(crate) fn unknown_option(&self, program: &[u8]) -> Option<String> {
        let (name, options) = self.collector.split_first()?;
        if name != "makedumpfile" {
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

    /// Whether makedumpfile compresses the dump: -c, -l, -p or -z, also in a cluster, and not -E.
    pub(crate) fn is_compressed(&self) -> bool {
        let mut letters = Vec::new();
        let mut words = self.collector.iter().skip(1);
        while let Some(word) = words.next() {
            let Some(cluster) = word.strip_prefix('-').filter(|cluster| !cluster.starts_with('-')) else {
                continue;
            };
            // These have a value: the rest, or the next word.
            let end = cluster.find(['b', 'd', 'g', 'i', 'x']);
            letters.extend(cluster[..end.unwrap_or(cluster.len())].chars());
            if end.is_some_and(|end| end + 1 == cluster.len()) {
                words.next();
            }
        }
        !letters.contains(&'E') && letters.iter().any(|letter| "clpz".contains(*letter))
    }
}
