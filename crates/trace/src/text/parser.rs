//! Takes lines apart. Kinds of events are learned as they come: one [`EventFormat`] for each event name and sequence of fields.

use std::borrow::Cow;
use std::collections::HashMap;

use super::args::{self, Pair, SHRINKER_NAMES};
use super::batch::{Batch, Line};
use super::head::{self, Head};
use super::names::field_name;
use crate::event::{Value, number};
use crate::{EventFormat, Field, Kind, Slot, Span};

/// What is known of the kinds of events so far.
pub(super) struct Parser {
    /// Kinds by event name, and where in `named` they are.
    kinds: HashMap<Box<[u8]>, usize>,
    named: Vec<Named>,
    /// Places in `named` by a hash of a name's end: saves the look-up for most lines.
    recent: [usize; RECENT],
    /// Formats made so far.
    formats: usize,
    pairs: Vec<Pair>,
}

/// The kinds of one event name.
struct Named {
    name: Box<[u8]>,
    kinds: Vec<TextKind>,
}

const RECENT: usize = 64;

/// A sequence of fields, and the format made for it.
struct TextKind {
    /// What stands before each value: `order=`, or `objects to shrink `.
    before: Vec<Box<[u8]>>,
    format: usize,
    /// Its first two values are the words that [`args::shrinker`] cuts.
    shrinker: bool,
}

/// Sequences of fields kept for one event name; more is no trace.
const MAX_KINDS: usize = 64;

impl Default for Parser {
    fn default() -> Self {
        Self {
            kinds: HashMap::new(),
            named: Vec::new(),
            recent: [usize::MAX; RECENT],
            formats: 0,
            pairs: Vec::new(),
        }
    }
}

impl Parser {
    /// Takes the lines of a batch apart.
    pub(super) fn parse(&mut self, batch: &mut Batch) {
        batch.lines.clear();
        batch.values.clear();
        batch.notes.clear();
        batch.formats.clear();
        batch.unknown = 0;
        let bytes = std::mem::take(&mut batch.bytes);
        let text = &bytes[..batch.len];
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', text) {
            self.line(text, start, end, batch);
            start = end + 1;
        }
        if start < text.len() {
            self.line(text, start, text.len(), batch);
        }
        batch.bytes = bytes;
    }

    #[inline]
    fn line(&mut self, text: &[u8], start: usize, end: usize, batch: &mut Batch) {
        let line = &text[start..end];
        let Some(head) = head::parse(line) else {
            if let Some(note) = head::note(line) {
                batch.notes.push((batch.lines.len(), note));
            }
            return;
        };
        let part = |span: Span| &line[span.start as usize..span.end as usize];
        let at = place(&mut self.kinds, &mut self.named, &mut self.recent, part(head.name));
        let args = part(head.args);
        let first = batch.values.len();
        for kind in &self.named[at].kinds {
            batch.values.resize(first + kind.before.len(), Value::default());
            let values = &mut batch.values[first..];
            if args::expected(args, &kind.before, values) {
                if kind.shrinker {
                    args::cut_shrinker(args, values);
                }
                batch.lines.push(Line { start, head, format: kind.format, first, count: kind.before.len() });
                return;
            }
        }
        batch.values.truncate(first);
        if let Some(format) = self.learn(at, line, &head, batch) {
            batch.lines.push(Line { start, head, format, first, count: batch.values.len() - first });
        }
    }

    /// Takes the fields of a line apart that is not as known; its format, made if there is none. None if there are too many.
    #[cold]
    fn learn(&mut self, at: usize, line: &[u8], head: &Head, batch: &mut Batch) -> Option<usize> {
        let part = |span: Span| &line[span.start as usize..span.end as usize];
        let (name, args) = (part(head.name), part(head.args));
        let part = |span: Span| args.get(span.start as usize..span.end as usize).unwrap_or_default();
        // `trace-cmd report -R` has all fields as pairs.
        let shrinker = name.starts_with(b"mm_shrink_slab_") && !args.contains(&b'=');
        if shrinker {
            args::shrinker(args, &mut self.pairs);
        } else {
            args::pairs(args, &mut self.pairs);
        }
        let before = |&(name, value): &Pair| {
            let own = name.end > name.start;
            if own { part(Span { start: name.start, end: value.start }).into() } else { Box::default() }
        };
        let before: Vec<Box<[u8]>> = self.pairs.iter().map(before).collect();
        let kinds = &self.named[at].kinds;
        let known = kinds.iter().find(|kind| kind.before == before).map(|kind| kind.format);
        if known.is_none() && kinds.len() >= MAX_KINDS {
            batch.unknown += 1;
            return None;
        }
        let values = self.pairs.iter().map(|&(_, span)| Value { span, number: number(part(span)) });
        batch.values.extend(values);
        if known.is_some() {
            return known;
        }
        let names = self.pairs.iter().enumerate().map(|(at, &(name, _))| match SHRINKER_NAMES.get(at) {
            Some(name) if shrinker => Cow::Borrowed(*name),
            _ => String::from_utf8_lossy(part(name)),
        });
        let system = line.get(head.system.start as usize..head.system.end as usize).unwrap_or_default();
        let system = String::from_utf8_lossy(system);
        batch.formats.push(text_format(&system, &String::from_utf8_lossy(name), names));
        let format = self.formats;
        self.formats += 1;
        self.named[at].kinds.push(TextKind { before, format, shrinker });
        Some(format)
    }
}

/// Where a name's kinds are, made if there are none.
#[inline]
fn place(
    kinds: &mut HashMap<Box<[u8]>, usize>,
    named: &mut Vec<Named>,
    recent: &mut [usize; RECENT],
    name: &[u8],
) -> usize {
    let end = name.last_chunk::<4>().map_or(0, |end| u32::from_le_bytes(*end));
    let hash = (end.wrapping_mul(0x9e37_79b1) >> 26) as usize ^ (name.len() % RECENT);
    let slot = &mut recent[hash % RECENT];
    if named.get(*slot).is_some_and(|known| known.name.len() == name.len() && args::begins(name, &known.name))
    {
        return *slot;
    }
    *slot = match kinds.get(name) {
        Some(&at) => at,
        None => {
            named.push(Named { name: name.into(), kinds: Vec::new() });
            kinds.insert(name.into(), named.len() - 1);
            named.len() - 1
        }
    };
    *slot
}

fn text_format<'a>(system: &str, name: &str, names: impl Iterator<Item = Cow<'a, str>>) -> EventFormat {
    let field = |(at, printed): (usize, Cow<'a, str>)| Field {
        name: field_name(name, &printed).to_owned(),
        type_name: "text".into(),
        slot: Slot { offset: at as u32, size: 0, kind: Kind::Text },
    };
    EventFormat {
        index: 0,
        system: system.to_owned(),
        name: name.to_owned(),
        id: u32::MAX,
        fields: names.enumerate().map(field).collect(),
        print: String::new(),
        common_pid: None,
    }
}
