//! Parses lines.

use std::collections::HashMap;
use std::sync::Arc;

use super::batch::{Batch, Line};
use super::fields::{self, Pair};
use super::header::{self, LineHeader};
use super::line_format::LineFormat;
use crate::event::{Span, Value, number};

/// Parses lines and remembers their formats. Lines with a known format take a fast path with the same result.
/// The contents of a batch depend on its text only.
pub(super) struct Parser {
    /// Length of the longest line that is not skipped.
    longest: usize,
    /// Index in `named` by event name.
    kinds: HashMap<Box<[u8]>, usize>,
    named: Vec<Named>,
    /// Indices in `named` by a hash of the end of the name: saves most map lookups.
    recent: [usize; RECENT],
    pairs: Vec<Pair>,
    /// Number of batches so far.
    batch: u64,
}

/// The line formats of one event name.
struct Named {
    name: Box<[u8]>,
    kinds: Vec<TextKind>,
}

const RECENT: usize = 64;

struct TextKind {
    format: Arc<LineFormat>,
    /// The last batch that used it, and its index in that batch.
    batch: u64,
    place: usize,
}

/// Upper bound of formats remembered per event name.
const MAX_KINDS: usize = 64;
/// Upper bound of event names remembered.
const MAX_NAMES: usize = 4096;

impl Parser {
    pub(super) fn new(longest: usize) -> Self {
        Self {
            longest,
            kinds: HashMap::new(),
            named: Vec::new(),
            recent: [usize::MAX; RECENT],
            pairs: Vec::new(),
            batch: 0,
        }
    }

    /// Parses the lines of a batch.
    pub(super) fn parse(&mut self, batch: &mut Batch) {
        batch.lines.clear();
        batch.values.clear();
        batch.notes.clear();
        batch.formats.clear();
        self.batch += 1;
        let bytes = std::mem::take(&mut batch.bytes);
        let text = bytes.get(..batch.end).unwrap_or_default();
        let begin = batch.begin;
        let mut start = begin;
        for end in memchr::memchr_iter(b'\n', text.get(begin..).unwrap_or_default()) {
            let end = begin + end;
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
        if line.len() > self.longest {
            return;
        }
        let Some(header) = header::parse(line) else {
            if let Some(note) = header::note(line) {
                batch.notes.push((batch.lines.len(), note));
            }
            return;
        };
        let at = place(&mut self.kinds, &mut self.named, &mut self.recent, header.name.of(line));
        let args = header.args.of(line);
        let first = batch.values.len();
        for kind in &mut self.named[at].kinds {
            let count = kind.format.before.len();
            batch.values.resize(first + count, Value::default());
            let values = &mut batch.values[first..];
            if fields::expected(args, &kind.format.before, values)
                && (!kind.format.shrinker || fields::cut_shrinker(args, values))
            {
                if kind.batch != self.batch {
                    (kind.batch, kind.place) = (self.batch, batch.formats.len());
                    batch.formats.push(Arc::clone(&kind.format));
                }
                batch.lines.push(Line { start, header, format: kind.place, first, count });
                return;
            }
        }
        batch.values.truncate(first);
        let format = self.learn(at, line, &header, batch);
        batch.lines.push(Line { start, header, format, first, count: batch.values.len() - first });
    }

    /// Parses the fields of a line with an unknown format. Returns the index of its format in the batch.
    #[cold]
    fn learn(&mut self, at: usize, line: &[u8], header: &LineHeader, batch: &mut Batch) -> usize {
        let (name, args) = (header.name.of(line), header.args.of(line));
        let system = line.get(header.system.start as usize..header.system.end as usize).unwrap_or_default();
        // `trace-cmd report -R` prints all fields as pairs.
        let shrinker = name.starts_with(b"mm_shrink_slab_") && !args.contains(&b'=');
        if shrinker {
            fields::shrinker(args, &mut self.pairs);
        } else {
            fields::pairs(args, &mut self.pairs);
        }
        let before = |&(name, value): &Pair| {
            let own = name.end > name.start;
            if own { Span { start: name.start, end: value.start }.of(args).into() } else { Box::default() }
        };
        let before: Box<[Box<[u8]>]> = self.pairs.iter().map(before).collect();
        let values = self.pairs.iter().enumerate().map(|(at, &(_, span))| {
            // The shrinker and its address are words.
            let word = shrinker && at < fields::SHRINKER_NAMES.len();
            Value { span, number: if word { None } else { number(span.of(args)) } }
        });
        batch.values.extend(values);
        let (known, own) = (&mut self.named[at].kinds, self.batch);
        let place = batch.formats.len();
        if let Some(kind) = known.iter_mut().find(|kind| kind.format.before == before) {
            if kind.batch == own {
                return kind.place;
            }
            (kind.batch, kind.place) = (own, place);
            batch.formats.push(Arc::clone(&kind.format));
            return place;
        }
        let format = Arc::new(LineFormat { name: name.into(), before, system: system.into(), shrinker });
        if known.len() < MAX_KINDS {
            known.push(TextKind { format: Arc::clone(&format), batch: own, place });
        }
        batch.formats.push(format);
        place
    }
}

/// Returns the index of an event name, and adds it if missing.
#[inline]
fn place(
    kinds: &mut HashMap<Box<[u8]>, usize>,
    named: &mut Vec<Named>,
    recent: &mut [usize; RECENT],
    name: &[u8],
) -> usize {
    let end = name.last_chunk::<4>().map_or(0, |end| u32::from_le_bytes(*end));
    let hash = (end.wrapping_mul(0x9e37_79b1) >> 26) as usize ^ (name.len() % RECENT);
    let at = recent[hash % RECENT];
    if named.get(at).is_some_and(|known| known.name.len() == name.len() && fields::begins(name, &known.name))
    {
        return at;
    }
    let at = match kinds.get(name) {
        Some(&at) => at,
        None => {
            if named.len() >= MAX_NAMES {
                // No real trace has so many. The cache only saves time.
                kinds.clear();
                named.clear();
                recent.fill(usize::MAX);
            }
            named.push(Named { name: name.into(), kinds: Vec::new() });
            kinds.insert(name.into(), named.len() - 1);
            named.len() - 1
        }
    };
    recent[hash % RECENT] = at;
    at
}
