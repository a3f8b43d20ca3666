//! Options that makedumpfile refuses.

use super::Config;

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

/// Its options of one letter that have a value: the rest of the word, or the next one.
const WITH_VALUES: [char; 6] = ['b', 'd', 'g', 'i', 'L', 'x'];
/// Its options that compress.
const CODECS: &str = "clpz";
/// How the list of its options of one letter begins, for getopt, in the program's file: `b:cDd:eEFfg:hi:lL:pRvXx:z` in 1.7.
const LETTERS: &[u8] = b"b:cDd:";

impl Config {
    /// An option for which makedumpfile ends with an error (mkdumprd has it check them: `verify_core_collector`). Neither the list nor
    /// the program's file has a long name that begins so: newer versions may know more.
    pub(crate) fn refused_option(&self, program: &[u8]) -> Option<String> {
        let (name, options) = self.collector.split_first()?;
        if name != "makedumpfile" {
            return None;
        }
        let known = memchr::memmem::find(program, LETTERS).and_then(|at| program.get(at..));
        let known = known.map(|known| known.iter().take_while(|byte| **byte != 0));
        if let Some(known) = known {
            let is_known = |letter: char| known.clone().any(|byte| letter == char::from(*byte));
            let refused =
                |(word, letters): (&str, &str)| (!letters.chars().all(is_known)).then(|| word.to_owned());
            if let Some(word) = self.letters().find_map(refused) {
                return Some(word);
            }
        }
        if self.has_letter("E") && self.has_letter(CODECS) {
            return Some("-E with a codec".to_owned());
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
        !self.has_letter("E") && self.has_letter(CODECS)
    }

    /// Whether one of these options of one letter is given.
    fn has_letter(&self, any: &str) -> bool {
        self.letters().any(|(_, letters)| letters.contains(|letter| any.contains(letter)))
    }

    /// Words with options of one letter, and these letters. What a shell puts into words is not known.
    fn letters(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut words = self.collector.iter().skip(1).map(String::as_str).take_while(|word| *word != "--");
        std::iter::from_fn(move || {
            loop {
                let word = words.next()?;
                let cluster = word.strip_prefix('-').filter(|cluster| !cluster.starts_with('-'));
                let Some(cluster) = cluster.filter(|cluster| !cluster.contains(['$', '`', '"', '\''])) else {
                    continue;
                };
                let end = cluster.find(WITH_VALUES);
                if end.is_some_and(|end| end + 1 == cluster.len()) {
                    words.next();
                }
                return Some((word, &cluster[..end.unwrap_or(cluster.len())]));
            }
        })
    }
}
