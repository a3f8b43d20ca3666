//! How kdump-utils read the lines of `/etc/kdump.conf` (`kdump_get_conf_val` of kdump-lib-initramfs.sh).

use crate::root::Root;

/// What separates words for a shell's `read`; no other white space does.
pub(super) const BLANKS: [char; 2] = [' ', '\t'];
/// What `\s` of sed has besides.
const WHITE: [char; 5] = [' ', '\t', '\r', '\x0b', '\x0c'];
const SCRIPTS: [&str; 2] = ["/usr/lib/kdump/kdump-lib-initramfs.sh", "/lib/kdump/kdump-lib-initramfs.sh"];

/// Which scripts read the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// kdump-utils 1.0.60 and newer (d81109c, b43908c), by `read`: a pair of double quotation marks around a value is removed, and a CR
    /// is a part of the value.
    Shell,
    /// Older ones, by sed: a CR is white space, and quotation marks are a part of the value.
    Sed,
    /// Not known: both are removed.
    Unknown,
}

/// A line with an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) number: usize,
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    /// Whether it ends in CR and LF, and not in a comment.
    pub(super) has_return: bool,
    /// Whether quotation marks are around the value.
    pub(super) is_quoted: bool,
}

impl Reader {
    /// The scripts that are installed.
    pub(super) fn installed(root: &Root) -> Self {
        let Some(text) = SCRIPTS.iter().find_map(|path| root.text(path)) else { return Self::Unknown };
        match () {
            () if text.contains("_val#\\\"}") => Self::Shell,
            () if text.contains("sed -n") => Self::Sed,
            () => Self::Unknown,
        }
    }

    /// The lines with options.
    pub(super) fn lines(self, text: &str) -> Vec<Line<'_>> {
        let lines = text.split('\n').zip(1..);
        lines.filter_map(|(line, number)| self.line(line, number)).collect()
    }

    fn line(self, line: &str, number: usize) -> Option<Line<'_>> {
        let start = line.trim_start_matches(WHITE);
        if start.is_empty() || start.starts_with('#') {
            return None;
        }
        let has_return = line.ends_with('\r') && !line.contains('#');
        let (blanks, cut): (&[char], _) = match self {
            Self::Shell => (&BLANKS, line),
            // The comment goes first.
            Self::Sed | Self::Unknown => (&WHITE, line.split('#').next().unwrap_or_default()),
        };
        let cut = cut.trim_matches(blanks);
        let (name, value) = cut.split_once(blanks).unwrap_or((cut, ""));
        let mut value = value.trim_start_matches(blanks);
        if let Some((before, _)) = value.split_once('#') {
            value = before.trim_end_matches(WHITE);
        }
        let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let value = match inner {
            // parse_config reads the words again.
            Some(inner) if self != Self::Sed => inner.trim_matches(blanks),
            _ => value,
        };
        Some(Line { number, name, value, has_return, is_quoted: inner.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_scripts_do() {
        let read = |reader: Reader, text| {
            let lines = reader.lines(text).into_iter();
            lines
                .map(|line| format!("{} {}|{}", line.number, line.name, line.value))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let quoted = "#c\n \t\r\n path\t \"/var/crash\" # why\r\nkdump_post \"/a b\"\n";
        assert_eq!(read(Reader::Shell, quoted), "3 path|/var/crash 4 kdump_post|/a b");
        assert_eq!(read(Reader::Unknown, quoted), "3 path|/var/crash 4 kdump_post|/a b");
        assert_eq!(read(Reader::Sed, quoted), "3 path|\"/var/crash\" 4 kdump_post|\"/a b\"");
        let returns = "failure_action shell\r\npath\u{a0}/x\n";
        assert_eq!(read(Reader::Shell, returns), "1 failure_action|shell\r 2 path\u{a0}/x|");
        assert_eq!(read(Reader::Sed, returns), "1 failure_action|shell 2 path\u{a0}/x|");
        assert_eq!(read(Reader::Shell, "path \"\npath \"\"\npath 'a'"), "1 path|\" 2 path| 3 path|'a'");
        assert!(Reader::Shell.lines(returns)[0].has_return && !Reader::Shell.lines(quoted)[0].has_return);
    }

    #[test]
    fn the_installed_scripts_say_how() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        assert_eq!(Reader::installed(&root), Reader::Unknown);
        let file = root.path(SCRIPTS[0]);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "_val=\"${_val#\\\"}\"\n").unwrap();
        assert_eq!(Reader::installed(&root), Reader::Shell);
        std::fs::write(&file, "sed -n -e \"s/#.*//;s/\\s*$//\"\n").unwrap();
        assert_eq!(Reader::installed(&root), Reader::Sed);
    }
}
