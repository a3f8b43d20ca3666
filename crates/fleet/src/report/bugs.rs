//! The file of bugs that a team keeps: which signatures are of one bug, and its state.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use serde::Serialize;
use toml_edit::{Document, Item, Table, Value};

use super::gather::Crash;
use super::input::{Bad, InputError, read};
use super::version::{by_version, is_fixed};

/// State of a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    Open,
    Fixed,
}

/// A bug.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Bug {
    pub(crate) id: String,
    pub(crate) title: Option<String>,
    pub(crate) link: Option<String>,
    pub(crate) state: State,
    /// Releases that have the fix, one for each branch.
    pub(crate) fixed_in: Vec<String>,
    /// Exact or coarse.
    pub(crate) signatures: Vec<String>,
}

impl Bug {
    /// Whether a crash of this kernel is a regression: the kernel has the fix.
    pub(crate) fn is_regression(&self, release: &str) -> bool {
        self.state == State::Fixed && is_fixed(release, &self.fixed_in)
    }

    /// The state in a few words.
    pub(crate) fn state(&self) -> String {
        match (self.state, self.fixed_in.as_slice()) {
            (State::Open, _) => "open".to_owned(),
            (State::Fixed, []) => "fixed".to_owned(),
            (State::Fixed, releases) => format!("fixed in {}", releases.join(", ")),
        }
    }
}

/// A fixed bug that a kernel with the fix crashed of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Regression {
    pub(crate) bug: String,
    pub(crate) title: String,
    pub(crate) state: String,
    pub(crate) release: String,
    pub(crate) crashes: usize,
    /// Seconds since 1970.
    pub(crate) first_seen: Option<i64>,
    pub(crate) last_seen: Option<i64>,
}

/// The bugs of a file, and which signatures are theirs.
#[derive(Debug, Default)]
pub(crate) struct Bugs {
    pub(crate) bugs: Vec<Bug>,
    by_signature: HashMap<String, usize>,
}

const BUG_KEYS: &str = "id, title, link, state, fixed-in, signatures";

impl Bugs {
    /// Reads a file of bugs.
    ///
    /// # Errors
    /// Fails if it cannot be read, or a line is not as expected.
    pub(crate) fn open(path: &Path) -> Result<Self, InputError> {
        Self::parse(&read(path)?).map_err(|bad| bad.of(path))
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        let document = Document::parse(text).map_err(|error| {
            let line = line(text, error.span());
            Bad { line, expected: format!("TOML: {}", error.message().replace('\n', "; ")) }
        })?;
        let mut bugs = Self::default();
        let mut ids = HashMap::new();
        for (key, item) in document.as_table() {
            let tables = item.as_array_of_tables().filter(|_| key == "bug");
            let Some(tables) = tables else {
                return Err(Bad::new(line(text, item.span()), "[[bug]], and nothing else at the top"));
            };
            for table in tables {
                let at = line(text, table.span());
                let bug = bug(text, table, at)?;
                if let Some(other) = ids.insert(bug.id.clone(), at) {
                    return Err(Bad {
                        line: at,
                        expected: format!("an id that no other bug has; line {other} has it"),
                    });
                }
                for (signature, at) in signatures(text, table)? {
                    if let Some(other) = bugs.by_signature.insert(signature, bugs.bugs.len())
                        && let Some(other) = bugs.bugs.get(other).or(Some(&bug))
                    {
                        let expected = format!("a signature of one bug only; {} has it, too", other.id);
                        return Err(Bad { line: at, expected });
                    }
                }
                bugs.bugs.push(bug);
            }
        }
        Ok(bugs)
    }

    /// Notes the bug of each crash. An exact signature counts before a coarse one.
    pub(crate) fn assign(&self, crashes: &mut [Crash]) {
        let of = |sig: &Option<String>| self.by_signature.get(sig.as_ref()?).copied();
        for crash in crashes {
            crash.bug = of(&crash.sig).or_else(|| of(&crash.coarse));
        }
    }

    /// Returns the signatures that no crash has, with their bugs.
    pub(crate) fn unseen(&self, crashes: &[Crash]) -> Vec<String> {
        let mut unseen: BTreeMap<&String, usize> =
            self.by_signature.iter().map(|(sig, bug)| (sig, *bug)).collect();
        for sig in crashes.iter().flat_map(|crash| [&crash.sig, &crash.coarse]).flatten() {
            unseen.remove(sig);
        }
        let mut unseen: Vec<(usize, &String)> = unseen.into_iter().map(|(sig, bug)| (bug, sig)).collect();
        unseen.sort_unstable();
        let name = |(bug, sig): (usize, &String)| Some(format!("{sig} of {}", self.bugs.get(bug)?.id));
        unseen.into_iter().filter_map(name).collect()
    }

    /// Returns the fixed bugs that kernels with the fix crashed of, in the order of bugs and kernels.
    pub(crate) fn regressions(&self, crashes: &[Crash]) -> Vec<Regression> {
        let mut found: BTreeMap<(usize, &str), Regression> = BTreeMap::new();
        for crash in crashes {
            let (Some(at), Some(release)) = (crash.bug, crash.release.as_deref()) else { continue };
            let Some(bug) = self.bugs.get(at).filter(|bug| bug.is_regression(release)) else { continue };
            let regression = found.entry((at, release)).or_insert_with(|| Regression {
                bug: bug.id.clone(),
                title: bug.title.clone().or_else(|| crash.title.clone()).unwrap_or_default(),
                state: bug.state(),
                release: release.to_owned(),
                crashes: 0,
                first_seen: crash.time,
                last_seen: crash.time,
            });
            regression.crashes += 1;
            regression.first_seen = [regression.first_seen, crash.time].into_iter().flatten().min();
            regression.last_seen = [regression.last_seen, crash.time].into_iter().flatten().max();
        }
        let mut found: Vec<((usize, &str), Regression)> = found.into_iter().collect();
        found.sort_by(|((a, old), _), ((b, new), _)| a.cmp(b).then_with(|| by_version(old, new)));
        found.into_iter().map(|(_, regression)| regression).collect()
    }
}

fn bug(text: &str, table: &Table, at: usize) -> Result<Bug, Bad> {
    if let Some((key, item)) = table.iter().find(|(key, _)| !BUG_KEYS.split(", ").any(|known| known == *key))
    {
        return Err(Bad {
            line: line_of(text, table, key, item),
            expected: format!("one of the keys {BUG_KEYS}; not {key}"),
        });
    }
    let string = |key: &str| -> Result<Option<String>, Bad> {
        let Some(item) = table.get(key) else { return Ok(None) };
        let value = item.as_str().filter(|value| !value.is_empty());
        let bad = || Bad { line: line_of(text, table, key, item), expected: format!("a text for {key}") };
        value.map(|value| Some(value.to_owned())).ok_or_else(bad)
    };
    let id = string("id")?.ok_or_else(|| Bad::new(at, "an id for the bug"))?;
    let fixed_in = releases(text, table)?;
    let state = match string("state")?.as_deref() {
        Some("open") => State::Open,
        Some("fixed") => State::Fixed,
        None if fixed_in.is_empty() => State::Open,
        None => State::Fixed,
        Some(_) => return Err(Bad::new(line_of_key(text, table, "state"), "the state open or fixed")),
    };
    if state == State::Open && !fixed_in.is_empty() {
        return Err(Bad::new(line_of_key(text, table, "fixed-in"), "fixed-in only where the state is fixed"));
    }
    let signatures: Vec<String> =
        signatures(text, table)?.into_iter().map(|(signature, _)| signature).collect();
    if signatures.is_empty() {
        return Err(Bad {
            line: at,
            expected: format!("signatures of {id}, such as [\"1f896b3534f31037\"]"),
        });
    }
    Ok(Bug { id, title: string("title")?, link: string("link")?, state, fixed_in, signatures })
}

/// The signatures of a bug, with their lines.
fn signatures(text: &str, table: &Table) -> Result<Vec<(String, usize)>, Bad> {
    let Some(item) = table.get("signatures") else { return Ok(Vec::new()) };
    let Some(values) = item.as_array() else {
        let at = line_of(text, table, "signatures", item);
        return Err(Bad::new(at, "a list for signatures, such as [\"1f896b3534f31037\"]"));
    };
    let signature = |value: &Value| {
        let hex = |text: &&str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let at = line(text, value.span());
        let found = value.as_str().filter(hex).map(|text| (text.to_ascii_lowercase(), at));
        found.ok_or_else(|| Bad::new(at, "a signature of 16 hexadecimal digits"))
    };
    values.iter().map(signature).collect()
}

/// `fixed-in`: a release or a list of them.
fn releases(text: &str, table: &Table) -> Result<Vec<String>, Bad> {
    let Some(item) = table.get("fixed-in") else { return Ok(Vec::new()) };
    let values: Vec<Option<&str>> = match item.as_array() {
        Some(values) => values.iter().map(Value::as_str).collect(),
        None => vec![item.as_str()],
    };
    let values = Some(values).filter(|values| !values.is_empty()).unwrap_or_else(|| vec![None]);
    let release = |text: &&str| text.starts_with(|c: char| c.is_ascii_digit());
    let releases: Option<Vec<String>> =
        values.into_iter().map(|value| value.filter(release).map(str::to_owned)).collect();
    releases.ok_or_else(|| {
        let at = line_of(text, table, "fixed-in", item);
        Bad::new(at, "a release for fixed-in, such as \"6.12.4\", or a list with one of each branch")
    })
}

fn line_of(text: &str, table: &Table, key: &str, item: &Item) -> usize {
    let span = table.get_key_value(key).and_then(|(key, _)| key.span());
    line(text, span.or_else(|| item.span()))
}

fn line_of_key(text: &str, table: &Table, key: &str) -> usize {
    line(text, table.get_key_value(key).and_then(|(key, _)| key.span()))
}

/// The line, from 1, in which a part of a text begins.
fn line(text: &str, span: Option<Range<usize>>) -> usize {
    let before = span.and_then(|span| text.as_bytes().get(..span.start)).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: &str = r#"# What we know.
[[bug]]
id = "NET-7"
title = "tcp_ack reads a freed skb"
link = "https://bugs.example/NET-7"
state = "fixed"
fixed-in = ["6.1.95", "6.12.4"]
signatures = ["1F896b3534f31037", "aaaaaaaaaaaaaaaa"]

[[bug]]
id = "FS-1"
signatures = ["bbbbbbbbbbbbbbbb"]
"#;

    #[test]
    fn a_file_is_read() {
        let bugs = Bugs::parse(TWO).unwrap();
        assert_eq!(bugs.bugs.len(), 2);
        assert_eq!(bugs.bugs[0].state(), "fixed in 6.1.95, 6.12.4");
        assert_eq!(bugs.by_signature["1f896b3534f31037"], 0);
        assert_eq!((bugs.bugs[1].state, bugs.bugs[1].title.clone()), (State::Open, None));
        assert!(bugs.bugs[0].is_regression("6.12.5") && !bugs.bugs[0].is_regression("6.12.3"));
        assert!(!bugs.bugs[1].is_regression("6.12.5"));
        assert!(Bugs::parse("").unwrap().bugs.is_empty());
    }

    #[test]
    fn an_exact_signature_counts_before_a_coarse_one() {
        let bugs = Bugs::parse(TWO).unwrap();
        let crash = |sig: &str, coarse: &str| Crash {
            sig: Some(sig.to_owned()),
            coarse: Some(coarse.to_owned()),
            ..Crash::default()
        };
        let (a, b, other) = ("a".repeat(16), "b".repeat(16), "c".repeat(16));
        let mut crashes = [crash(&a, &b), crash(&other, &b), crash(&other, &other), Crash::default()];
        bugs.assign(&mut crashes);
        assert_eq!(crashes.each_ref().map(|crash| crash.bug), [Some(0), Some(1), None, None]);
        assert_eq!(bugs.unseen(&crashes), ["1f896b3534f31037 of NET-7"]);
    }

    #[test]
    fn an_error_names_the_line_and_what_was_expected() {
        let after = |from: &str, to: &str| Bugs::parse(&TWO.replacen(from, to, 1)).unwrap_err();
        for (from, to, line, expected) in [
            ("id = \"NET-7\"\n", "", 2, "an id"),
            ("state = \"fixed\"", "state = \"closed\"", 6, "open or fixed"),
            ("state = \"fixed\"", "state = \"open\"", 7, "only where the state is fixed"),
            ("title", "titel", 4, "id, title, link"),
            ("\"6.12.4\"]", "7]", 7, "a release"),
            ("[\"6.1.95\", \"6.12.4\"]", "[]", 7, "a release"),
            ("\"aaaaaaaaaaaaaaaa\"", "\"a\"", 8, "16 hexadecimal"),
            ("\"bbbbbbbbbbbbbbbb\"", "\n \"aaaaaaaaaaaaaaaa\"", 13, "NET-7 has it"),
            ("\"bbbbbbbbbbbbbbbb\"", "\"bbbbbbbbbbbbbbbb\", \"bbbbbbbbbbbbbbbb\"", 12, "FS-1 has it"),
            ("signatures = [\"bbbbbbbbbbbbbbbb\"]", "", 10, "signatures of FS-1"),
            ("signatures = [\"bbbbbbbbbbbbbbbb\"]", "signatures = 7", 12, "a list"),
            ("FS-1", "NET-7", 10, "line 2 has it"),
            ("[[bug]]\nid = \"FS-1\"", "[bugs]\nid = \"FS-1\"", 10, "[[bug]]"),
            ("link = ", "link ", 5, "TOML"),
        ] {
            let bad = after(from, to);
            assert_eq!(bad.line, line, "{to}: {bad:?}");
            assert!(bad.expected.contains(expected), "{to}: {bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_by_line(text in "\\PC{0,200}", at in 0_usize..400, cut in 0_usize..400) {
            let _ = Bugs::parse(&text);
            let mut known = TWO.to_owned();
            known.insert_str(TWO.floor_char_boundary(at), &text.chars().take(3).collect::<String>());
            known.truncate(known.floor_char_boundary(cut));
            if let Err(bad) = Bugs::parse(&known) {
                prop_assert!((1..=known.lines().count() + 1).contains(&bad.line), "{:?}", bad);
            }
        }

        #[test]
        fn what_is_written_is_read(
            bugs in prop::collection::vec(
                ("[a-zA-Z0-9 \"\\\\]{0,12}", any::<bool>(), prop::collection::btree_set(0_u64..u64::MAX, 1..4)),
                0..6,
            )
        ) {
            let mut text = String::new();
            let mut seen = std::collections::HashSet::new();
            let mut expected = Vec::new();
            for (number, (title, fixed, signatures)) in bugs.into_iter().enumerate() {
                let signatures = signatures.into_iter().filter(|sig| seen.insert(*sig));
                let signatures: Vec<String> = signatures.map(|sig| format!("{sig:016x}")).collect();
                if signatures.is_empty() || title.is_empty() {
                    continue;
                }
                text += &format!("[[bug]]\nid = \"B{number}\"\ntitle = {title:?}\nsignatures = {signatures:?}\n");
                if fixed {
                    text += "fixed-in = \"6.1\"\n";
                }
                expected.push((title, fixed, signatures));
            }
            let found = Bugs::parse(&text);
            let found = found.unwrap().bugs;
            prop_assert_eq!(found.len(), expected.len());
            for (bug, (title, fixed, signatures)) in found.into_iter().zip(expected) {
                prop_assert_eq!(bug.title, Some(title));
                prop_assert_eq!(bug.state == State::Fixed, fixed);
                prop_assert_eq!(bug.signatures, signatures);
            }
        }
    }
}
