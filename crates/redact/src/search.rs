//! Finds names in lines, all of them at once: a dump has names by the thousand, and lines too.

use aho_corasick::AhoCorasick;

/// Shorter names are parts of too many words: they are replaced only where nothing but them can be meant.
const SHORTEST: usize = 3;
/// What precedes and follows the name of a task where the kernel prints it.
const PLACES: [(&str, &str); 6] =
    [("Comm: ", " "), ("INFO: task ", ":"), ("[", ":"), ("task=", ","), (" (", ")"), ("comm=\"", "\"")];

/// What a name names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Program,
    Host,
    Thread,
}

/// Names to be found.
#[derive(Debug)]
pub(super) struct Search {
    patterns: Vec<Pattern>,
    /// None if there is nothing to find.
    automaton: Option<AhoCorasick>,
}

#[derive(Debug)]
struct Pattern {
    kind: Kind,
    before: &'static str,
    name: String,
    after: &'static str,
}

impl Pattern {
    fn text(&self) -> String {
        [self.before, &self.name, self.after].concat()
    }
}

impl Search {
    pub(super) fn new<'a>(names: impl Iterator<Item = (Kind, &'a str)>) -> Self {
        let mut patterns = Vec::new();
        for (kind, name) in names.filter(|(_, name)| !name.is_empty()) {
            let places = if name.len() < SHORTEST { &PLACES[..] } else { &[("", "")] };
            for (before, after) in places {
                patterns.push(Pattern { kind, before, name: name.to_owned(), after });
            }
        }
        // Too many names for an automaton are more than a dump has.
        let texts = patterns.iter().map(Pattern::text);
        let automaton = if patterns.is_empty() { None } else { AhoCorasick::new(texts).ok() };
        Self { patterns, automaton }
    }

    /// Replaces each name by what `by` makes of it, where no letter, digit or `_` touches it. Of names that overlap the first one
    /// is replaced, of those that begin at one place the longest.
    pub(super) fn replace(&self, line: &str, by: impl Fn(Kind, &str) -> String) -> String {
        let Some(automaton) = &self.automaton else { return line.to_owned() };
        let mut found: Vec<(usize, usize, &Pattern)> = Vec::new();
        for place in automaton.find_overlapping_iter(line) {
            let Some(pattern) = self.patterns.get(place.pattern().as_usize()) else { continue };
            let (start, end) = (place.start() + pattern.before.len(), place.end() - pattern.after.len());
            if !is_touched(line, start, end) {
                found.push((start, end, pattern));
            }
        }
        // A program comes before a thread of the same name.
        found.sort_by_key(|(start, end, _)| (*start, std::cmp::Reverse(*end)));
        let (mut out, mut done) = (String::with_capacity(line.len()), 0);
        for (start, end, pattern) in found {
            if start >= done {
                out.push_str(line.get(done..start).unwrap_or_default());
                out.push_str(&by(pattern.kind, &pattern.name));
                done = end;
            }
        }
        out + line.get(done..).unwrap_or_default()
    }
}

/// Whether the place is a part of a longer word.
fn is_touched(line: &str, start: usize, end: usize) -> bool {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let before = line.get(..start).and_then(|before| before.chars().next_back());
    let after = line.get(end..).and_then(|after| after.chars().next());
    inside(before) || inside(after)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn replaced(names: &[&str], line: &str) -> String {
        let search = Search::new(names.iter().map(|name| (Kind::Program, *name)));
        search.replace(line, |_, name| format!("<{}>", name.len()))
    }

    #[test]
    fn whole_words_are_replaced_and_the_longest_of_them() {
        assert_eq!(
            replaced(&["foo", "foo-bar"], "foo foo-bar foo-barx food x_foo"),
            "<3> <7> <3>-barx food x_foo"
        );
        assert_eq!(replaced(&["a b", "b c"], "a b c"), "<3> c");
        assert_eq!(replaced(&["é"], "[é:7]"), "[<2>:7]");
    }

    #[test]
    fn short_names_are_replaced_where_the_kernel_prints_tasks() {
        assert_eq!(
            replaced(&["sh"], "CPU: 0 PID: 7 Comm: sh Not tainted"),
            "CPU: 0 PID: 7 Comm: <2> Not tainted"
        );
        assert_eq!(
            replaced(&["sh"], "Killed process 7 (sh) in sh mode"),
            "Killed process 7 (<2>) in sh mode"
        );
    }

    #[test]
    fn no_name_ends_the_search() {
        assert_eq!(replaced(&["", "x"], "any text"), "any text");
    }

    proptest! {
        #[test]
        fn no_name_is_left_as_a_word(
            names in prop::collection::vec("[a-c]{3,5}", 0..6),
            line in "[a-c ,é]{0,60}",
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let out = replaced(&names, &line);
            for word in out.split([' ', ',']) {
                prop_assert!(!names.contains(&word), "{out}");
            }
        }
    }
}
