//! Values of assignments.

use std::ops::Range;

use super::{Kind, Part, Quote};

/// The value of an assignment, as it is written.
#[derive(Debug, Clone)]
pub(crate) struct Value<'s> {
    pub(crate) span: Range<usize>,
    pub(crate) parts: &'s [Part],
}

/// A byte, or an expansion as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Atom {
    Byte(u8),
    Expansion(Vec<u8>),
}

impl<'s> Value<'s> {
    /// The value, with expansions as they are written.
    pub(crate) fn text(&self, text: &[u8]) -> String {
        let mut out = Vec::new();
        for atom in atoms(self.parts, text) {
            match atom {
                Atom::Byte(byte) => out.push(byte),
                Atom::Expansion(bytes) => out.extend(bytes),
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Whether a shell puts something into it.
    pub(crate) fn is_expanded(&self) -> bool {
        self.parts.iter().any(|part| part.kind == Kind::Expansion)
    }

    /// How all of it is quoted: one pair of quotation marks around it, or none. `None` if it is put together.
    pub(crate) fn quote(&self) -> Option<Quote> {
        match self.parts {
            [] => Some(Quote::None),
            [open, inner @ .., close] if open.kind == Kind::Mark && close.kind == Kind::Mark => {
                let is_pair = open.span.len() == 1 && close.span.len() == 1;
                // A mark of one byte within is a quotation mark; lines that go on have two.
                let is_one = inner.iter().all(|part| {
                    part.quote == open.quote && !(part.kind == Kind::Mark && part.span.len() == 1)
                });
                Some(open.quote).filter(|_| is_pair && is_one)
            }
            parts => {
                let is_bare = parts.iter().all(|part| part.quote == Quote::None && part.span.len() == 1);
                Some(Quote::None).filter(|_| is_bare)
            }
        }
    }

    /// The words that its blanks separate, as parts without quotation marks.
    pub(crate) fn words(&self, text: &[u8]) -> Vec<Vec<&'s Part>> {
        let mut words = vec![Vec::new()];
        for part in self.parts {
            match part.kind {
                Kind::Mark => {}
                Kind::Byte(b' ' | b'\t' | b'\n') => words.push(Vec::new()),
                _ => {
                    words.last_mut().into_iter().for_each(|word| word.push(part));
                    if part.ends_blank(text) {
                        words.push(Vec::new());
                    }
                }
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }
}

impl Part {
    /// Whether it is `${NAME:+VALUE }`, which ends with a blank or is empty.
    pub(crate) fn ends_blank(&self, text: &[u8]) -> bool {
        let raw = text.get(self.span.clone()).filter(|_| self.kind == Kind::Expansion);
        raw.is_some_and(|raw| raw.starts_with(b"${") && raw.contains(&b'+') && raw.ends_with(b" }"))
    }
}

/// What parts stand for.
pub(crate) fn atoms<'p>(parts: impl IntoIterator<Item = &'p Part>, text: &[u8]) -> Vec<Atom> {
    let atom = |part: &Part| match part.kind {
        Kind::Byte(byte) => Some(Atom::Byte(byte)),
        Kind::Expansion => Some(Atom::Expansion(text.get(part.span.clone())?.to_vec())),
        Kind::Mark => None,
    };
    parts.into_iter().filter_map(atom).collect()
}
