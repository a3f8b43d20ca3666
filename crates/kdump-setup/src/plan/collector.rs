//! The options of makedumpfile that a plan sets: codec and dump level. All others stay.

use super::edit;
use crate::config::{Config, Stack, Target};

/// `makedumpfile -F FORMAT -d LEVEL`, which openSUSE's scripts put before MAKEDUMPFILE_OPTIONS.
const SUSE_OWN: usize = 5;
/// Programs that copy all memory.
const COPIES: [&str; 4] = ["cp", "dd", "scp", "cat"];

impl Config {
    /// Why the program that writes the dump, or its options, are not understood: the dump may have all memory.
    pub fn unclear_collector(&self) -> Option<String> {
        // openSUSE's scripts choose the program, and put these options last. A plan changes none of them.
        let setting = self.stack.options();
        if self.stack == Stack::Suse {
            if self.suse.as_ref().is_some_and(|suse| suse.transfer.is_some()) {
                let setting = Stack::SUSE_TRANSFER;
                return Some(format!(
                    "{setting} in {} is set: it is in place of makedumpfile",
                    self.stack.file()
                ));
            }
            let format = Stack::SUSE_FORMAT;
            match self.collector.first().map(String::as_str) {
                None => {
                    return Some(format!("{format} in {} is none: only the log is saved", self.stack.file()));
                }
                Some("cat") => {
                    return Some(format!("{format} in {} is raw: cat copies all memory", self.stack.file()));
                }
                Some(_) => {}
            }
            let (_, further) = self.further_options();
            let file = self.stack.file();
            return further.then(|| {
                format!("{setting} in {file} sets a dump level or codec, and the last of two counts")
            });
        }
        if self.stack == Stack::KdumpTools {
            // A value of a shell, which is not quoted again in a sentence.
            return match edit::is_computed(&self.collector) {
                true => Some(format!("a part of {setting} is computed")),
                false if has_quotes(&self.collector) => Some(format!("{setting} is not understood")),
                false => None,
            };
        }
        let command = self.collector.join(" ");
        let name = self.collector.first()?.rsplit('/').next()?;
        if COPIES.contains(&name) {
            return Some(format!("{setting} is `{command}`: {name} copies all memory"));
        }
        let is_clear =
            name == "makedumpfile" && !has_quotes(&self.collector) && !edit::is_computed(&self.collector);
        (!is_clear).then(|| format!("{setting} is `{command}`, which is not understood"))
    }

    /// Whether makedumpfile runs from the initramfs. Debian's scripts run in the real root file system.
    pub(crate) fn runs_in_image(&self) -> bool {
        let program = self.collector.first().map(String::as_str);
        self.stack != Stack::KdumpTools && program == Some("makedumpfile")
    }

    /// Whether a program that copies all memory writes the dump.
    pub fn copies_memory(&self) -> bool {
        let name = self.collector.first().and_then(|program| program.rsplit('/').next());
        name.is_some_and(|name| COPIES.contains(&name))
    }

    /// Whether makedumpfile writes an ELF dump, which is not compressed. A plan keeps it.
    pub fn writes_elf(&self) -> bool {
        is_elf(&self.collector)
    }

    /// Of openSUSE's MAKEDUMPFILE_OPTIONS, behind the level and the format: what is left without a level and a codec, and whether there
    /// is one.
    pub(super) fn further_options(&self) -> (Vec<String>, bool) {
        let further = self.collector.get(SUSE_OWN..).unwrap_or_default();
        let (mut kept, mut found, mut further) = (Vec::new(), false, further.iter());
        while let Some(word) = further.next() {
            match word.strip_prefix('-').filter(|letters| !letters.starts_with('-')) {
                Some(letters) if letters.starts_with(['c', 'l', 'p', 'z', 'E', 'd']) => {
                    found = true;
                    if letters.ends_with('d') {
                        further.next();
                    }
                }
                _ => kept.push(word.clone()),
            }
        }
        (kept, found)
    }

    /// Whether the dump goes to a program or device that cannot seek.
    pub(super) fn streams(&self) -> bool {
        matches!(self.target, Target::Ssh { .. } | Target::Raw(_))
    }
}

fn has_quotes(words: &[String]) -> bool {
    words.iter().any(|word| word.contains(['"', '\'', '\\']))
}

/// Whether the option -E is given, alone or together with others that have no value.
fn is_elf(words: &[String]) -> bool {
    words.iter().skip(1).any(|word| {
        let letters = word.strip_prefix('-').unwrap_or_default();
        letters.contains('E') && letters.chars().all(|letter| "EFclpz".contains(letter))
    })
}

/// The command line that is planned where the configured one is not understood, with the codec of the distribution if none is planned.
pub(super) fn default(config: &Config, codec: Option<&str>, level: u8) -> Vec<String> {
    let codec = codec.unwrap_or(if config.stack == Stack::KdumpTools { "-c" } else { "-l" });
    let flattened = (config.stack == Stack::KdumpTools || config.streams()).then_some("-F");
    let words = ["makedumpfile"].into_iter().chain(flattened).chain([codec, "-d"]);
    words.map(str::to_owned).chain([level.to_string()]).collect()
}

/// makedumpfile's options with another codec and level.
pub(super) fn planned(collector: &[String], codec: Option<&str>, level: u8) -> Vec<String> {
    let Some((program, options)) = collector.split_first() else { return Vec::new() };
    let mut words = vec![program.clone()];
    let mut options = options.iter();
    let is_elf = is_elf(collector);
    let (mut kept_codec, mut kept_level) = (None, None);
    while let Some(word) = options.next() {
        let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else {
            words.push(word.clone());
            continue;
        };
        match letters.split_once('d') {
            // `-d 31`, `-d31`, and `-ld 31`: the codec before it is replaced as well.
            Some((before, value)) if before.chars().all(|letter| "clpzF".contains(letter)) => {
                kept_level = if value.is_empty() { options.next().cloned() } else { Some(value.to_owned()) };
                kept_codec = before.chars().rfind(|letter| "clpz".contains(*letter)).or(kept_codec);
                if before.contains('F') {
                    words.push("-F".into());
                }
            }
            _ if letters.len() == 1 && "clpz".contains(letters) => kept_codec = letters.chars().next(),
            _ => words.push(word.clone()),
        }
    }
    let kept_codec = kept_codec.map(|letter| format!("-{letter}"));
    if kept_level == Some(level.to_string()) && (is_elf || codec.is_none() || codec == kept_codec.as_deref())
    {
        return collector.to_vec();
    }
    let codec = codec.map(str::to_owned).or(kept_codec);
    words.extend(codec.filter(|_| !is_elf));
    words.extend(["-d".to_owned(), level.to_string()]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codec_and_level_are_replaced() {
        let planned = |line: &str, codec| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            planned(&words, codec, 31).join(" ")
        };
        for (line, expected) in [
            ("makedumpfile -F -c -d 31", "makedumpfile -F -z -d 31"),
            ("makedumpfile -l --message-level 7 -d 17", "makedumpfile --message-level 7 -z -d 31"),
            ("makedumpfile -z -d 31 --message-level 7", "makedumpfile -z -d 31 --message-level 7"),
            ("makedumpfile -Fld31 --num-threads 4", "makedumpfile -F --num-threads 4 -z -d 31"),
            ("/sbin/makedumpfile -E -d 31", "/sbin/makedumpfile -E -d 31"),
            ("makedumpfile -FE -d 1", "makedumpfile -FE -d 31"),
        ] {
            assert_eq!(planned(line, Some("-z")), expected);
            assert_eq!(planned(expected, Some("-z")), expected, "not idempotent");
        }
        assert_eq!(planned("makedumpfile -F -l -d 1", None), "makedumpfile -F -l -d 31");
    }
}
