//! The rules of getopt_long(3): clusters of short options, unambiguous prefixes of long ones, options after operands.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An option that a program knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptionSpec<K> {
    pub(crate) key: K,
    pub(crate) short: Option<char>,
    pub(crate) long: Option<&'static str>,
    pub(crate) takes_value: bool,
}

/// An argument, as the rules divide the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Argument<K> {
    /// An option, with its value if it takes one.
    Option(K, OsString),
    /// Anything else.
    Operand(OsString),
}

/// Divides a command line. Returns the arguments up to the first error, and that error in getopt's words.
pub(crate) fn parse<K: Copy>(
    arguments: impl IntoIterator<Item = OsString>,
    specs: &[OptionSpec<K>],
) -> (Vec<Argument<K>>, Option<String>) {
    let mut parser = Parser { specs, found: Vec::new() };
    let error = parser.run(&mut arguments.into_iter()).err();
    (parser.found, error)
}

struct Parser<'a, K> {
    specs: &'a [OptionSpec<K>],
    found: Vec<Argument<K>>,
}

impl<K: Copy> Parser<'_, K> {
    fn run(&mut self, arguments: &mut dyn Iterator<Item = OsString>) -> Result<(), String> {
        while let Some(argument) = arguments.next() {
            match argument.as_bytes() {
                b"--" => {
                    self.found.extend(arguments.map(Argument::Operand));
                    return Ok(());
                }
                [b'-', b'-', long @ ..] => self.long(long, arguments)?,
                [b'-', cluster @ ..] if !cluster.is_empty() => self.cluster(cluster, arguments)?,
                _ => self.found.push(Argument::Operand(argument)),
            }
        }
        Ok(())
    }

    fn long(&mut self, text: &[u8], arguments: &mut dyn Iterator<Item = OsString>) -> Result<(), String> {
        let (name, value) = match text.iter().position(|&byte| byte == b'=') {
            Some(at) => (&text[..at], Some(OsStr::from_bytes(&text[at + 1..]).to_owned())),
            None => (text, None),
        };
        let spec = self.find_long(name)?;
        let long = spec.long.unwrap_or_default();
        let value = match (spec.takes_value, value) {
            (false, Some(_)) => return Err(format!("option '--{long}' doesn't allow an argument")),
            (false, None) => OsString::new(),
            (true, Some(value)) => value,
            (true, None) => {
                arguments.next().ok_or_else(|| format!("option '--{long}' requires an argument"))?
            }
        };
        self.found.push(Argument::Option(spec.key, value));
        Ok(())
    }

    fn find_long(&self, name: &[u8]) -> Result<OptionSpec<K>, String> {
        let matches = |spec: &&OptionSpec<K>| spec.long.is_some_and(|long| long.as_bytes().starts_with(name));
        let candidates: Vec<_> = self.specs.iter().filter(matches).collect();
        let exact = candidates.iter().find(|spec| spec.long.is_some_and(|long| long.as_bytes() == name));
        match (exact, candidates.as_slice()) {
            (Some(spec), _) | (None, [spec]) => Ok(**spec),
            (None, []) => Err(format!("unrecognized option '--{}'", String::from_utf8_lossy(name))),
            (None, several) => {
                let names: Vec<_> = several.iter().filter_map(|spec| spec.long).collect();
                Err(format!(
                    "option '--{}' is ambiguous; possibilities: '--{}'",
                    String::from_utf8_lossy(name),
                    names.join("' '--")
                ))
            }
        }
    }

    /// `-ld31` is `-l -d 31`: a value is the rest of the argument, or the next one.
    fn cluster(
        &mut self,
        mut cluster: &[u8],
        arguments: &mut dyn Iterator<Item = OsString>,
    ) -> Result<(), String> {
        while let [first, rest @ ..] = cluster {
            let letter = char::from(*first);
            let spec = self.specs.iter().find(|spec| spec.short == Some(letter));
            let Some(spec) = spec else { return Err(format!("invalid option -- '{letter}'")) };
            if !spec.takes_value {
                self.found.push(Argument::Option(spec.key, OsString::new()));
                cluster = rest;
                continue;
            }
            let value = match rest {
                [] => arguments.next().ok_or_else(|| format!("option requires an argument -- '{letter}'"))?,
                rest => OsString::from_vec(rest.to_vec()),
            };
            self.found.push(Argument::Option(spec.key, value));
            break;
        }
        Ok(())
    }
}

/// The number at the start of `text`, 0 without one: atoi(3), which makedumpfile reads numbers with.
pub(crate) fn atoi(text: &OsStr) -> i64 {
    let text = text.as_bytes().trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let value = digits.iter().take_while(|byte| byte.is_ascii_digit()).fold(0_i64, |value, &digit| {
        value.saturating_mul(10).saturating_add(i64::from(digit - b'0')).min(i64::from(i32::MAX))
    });
    if negative { -value } else { value }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPECS: [OptionSpec<char>; 5] = [
        OptionSpec { key: 'l', short: Some('l'), long: None, takes_value: false },
        OptionSpec { key: 'd', short: Some('d'), long: None, takes_value: true },
        OptionSpec { key: 's', short: None, long: Some("split"), takes_value: false },
        OptionSpec { key: 'z', short: None, long: Some("splitblock-size"), takes_value: true },
        OptionSpec { key: 'm', short: None, long: Some("message-level"), takes_value: true },
    ];

    /// The arguments in a line, `KEY=VALUE` for options; after them the error.
    fn parsed(line: &str) -> String {
        let (found, error) = parse(line.split(' ').map(OsString::from), &SPECS);
        let shown = found.into_iter().map(|argument| match argument {
            Argument::Option(key, value) => format!("{key}={}", value.display()),
            Argument::Operand(text) => text.display().to_string(),
        });
        shown.chain(error).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn clusters_prefixes_and_operands() {
        for (line, expected) in [
            ("-ld31 core file", "l= d=31 core file"),
            ("-ld 31 core", "l= d=31 core"),
            ("core -d 31 file -l", "core d=31 file l="),
            ("--message-level=7 --message 3 --m=1", "m=7 m=3 m=1"),
            ("--split core", "s= core"),
            ("--splitb 1", "z=1"),
            ("-l -- -d --x -", "l= -d --x -"),
            ("- -d -1", "- d=-1"),
            ("--message-level=", "m="),
            (
                "-d31 --spli",
                "d=31 option '--spli' is ambiguous; possibilities: '--split' '--splitblock-size'",
            ),
            ("--split=1", "option '--split' doesn't allow an argument"),
            ("core --message", "core option '--message-level' requires an argument"),
            ("-ldd", "l= d=d"),
            ("-ql", "invalid option -- 'q'"),
            ("-d", "option requires an argument -- 'd'"),
            ("--nothing", "unrecognized option '--nothing'"),
        ] {
            assert_eq!(parsed(line), expected, "{line}");
        }
    }

    #[test]
    fn numbers_are_read_as_atoi_reads_them() {
        for (text, value) in [
            ("31", 31),
            ("-1", -1),
            (" +7x", 7),
            ("x", 0),
            ("", 0),
            ("99999999999999999999", i32::MAX.into()),
        ] {
            assert_eq!(atoi(OsStr::new(text)), value, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_command_line_has_a_meaning_or_an_error(
            arguments in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..8), 0..6),
        ) {
            let count = arguments.len();
            let (found, error) = parse(arguments.into_iter().map(OsString::from_vec), &SPECS);
            prop_assert!(error.is_some() || found.len() + 1 >= count / 2);
        }
    }
}
