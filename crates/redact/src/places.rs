//! Redacts sentences of this program about files and servers.

use crate::Redaction;
use crate::addresses::kind_of;

impl Redaction {
    /// Replaces the paths and servers of `known` in a sentence wherever they stand as words, and every other path, URL and address.
    pub fn places(&self, text: &str, known: &[String]) -> String {
        let mut text = text.to_owned();
        for name in known.iter().filter(|name| !name.is_empty()) {
            text = replace_word(&text, name, &self.name("path", name));
        }
        let is_end = |c: char| c.is_whitespace() || "()<>,;\"'`".contains(c);
        let mut out = String::with_capacity(text.len());
        for part in text.split_inclusive(is_end) {
            let word = part.trim_end_matches(|c: char| is_end(c) || ".:".contains(c));
            let kind = if word.contains("://") { Some("path") } else { kind_of(word) };
            let inside = || self.addresses(word, |_| None).unwrap_or_else(|| word.to_owned());
            out.push_str(&kind.map_or_else(inside, |kind| self.name(kind, word)));
            out.push_str(part.strip_prefix(word).unwrap_or_default());
        }
        out
    }
}

/// Replaces a name where no letter, digit or `_` touches it.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(word) {
        out.push_str(before);
        let touched = inside(out.chars().next_back()) || inside(after.chars().next());
        out.push_str(if touched { word } else { by });
        rest = after;
    }
    out + rest
}
