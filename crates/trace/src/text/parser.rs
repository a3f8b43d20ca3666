//! Takes lines apart.

use std::collections::HashMap;
use std::sync::Arc;

use super::args::{self, Pair};
use super::batch::{Batch, Line};
use super::head::{self, Head};
use super::shape::Shape;
use crate::Span;
use crate::event::{Value, number};

/// Takes lines apart, and keeps the kinds of events it met: lines like earlier ones are done faster, and come out the same. What a
/// batch holds depends on its text only.
pub(super) struct Parser {
    /// Bytes of the longest line that counts.
    longest: usize,
    /// Kinds by event name, and where in `named` they are.
    kinds: HashMap<Box<[u8]>, usize>,
    named: Vec<Named>,
    /// Places in `named` by a hash of a name's end: saves the look-up for most lines.
    recent: [usize; RECENT],
    pairs: Vec<Pair>,
    /// Batches so far.
    batch: u64,
}

/// The kinds of one event name.
struct Named {
    name: Box<[u8]>,
    kinds: Vec<TextKind>,
}

const RECENT: usize = 64;

struct TextKind {
    shape: Arc<Shape>,
    /// The last batch that had it, and its place among the shapes of that.
    batch: u64,
    place: usize,
}

/// Kinds kept for one event name.
const MAX_KINDS: usize = 64;
/// Event names kept.
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

    /// Takes the lines of a batch apart.
    pub(super) fn parse(&mut self, batch: &mut Batch) {
        batch.lines.clear();
        batch.values.clear();
        batch.notes.clear();
        batch.shapes.clear();
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
        for kind in &mut self.named[at].kinds {
            let count = kind.shape.before.len();
            batch.values.resize(first + count, Value::default());
            let values = &mut batch.values[first..];
            if args::expected(args, &kind.shape.before, values)
                && (!kind.shape.shrinker || args::cut_shrinker(args, values))
            {
                if kind.batch != self.batch {
                    (kind.batch, kind.place) = (self.batch, batch.shapes.len());
                    batch.shapes.push(Arc::clone(&kind.shape));
                }
                batch.lines.push(Line { start, head, shape: kind.place, first, count });
                return;
            }
        }
        batch.values.truncate(first);
        let shape = self.learn(at, line, &head, batch);
        batch.lines.push(Line { start, head, shape, first, count: batch.values.len() - first });
    }

    /// Takes the fields of a line apart that is not as known; the place of its kind among the batch's shapes.
    #[cold]
    fn learn(&mut self, at: usize, line: &[u8], head: &Head, batch: &mut Batch) -> usize {
        let part = |span: Span| &line[span.start as usize..span.end as usize];
        let (name, args) = (part(head.name), part(head.args));
        let system = line.get(head.system.start as usize..head.system.end as usize).unwrap_or_default();
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
        let before: Box<[Box<[u8]>]> = self.pairs.iter().map(before).collect();
        let values = self.pairs.iter().enumerate().map(|(at, &(_, span))| {
            // The shrinker and its address are words.
            let word = shrinker && at < args::SHRINKER_NAMES.len();
            Value { span, number: if word { None } else { number(part(span)) } }
        });
        batch.values.extend(values);
        let (known, own) = (&mut self.named[at].kinds, self.batch);
        let place = batch.shapes.len();
        if let Some(kind) = known.iter_mut().find(|kind| kind.shape.before == before) {
            if kind.batch == own {
                return kind.place;
            }
            (kind.batch, kind.place) = (own, place);
            batch.shapes.push(Arc::clone(&kind.shape));
            return place;
        }
        let shape = Arc::new(Shape { name: name.into(), before, system: system.into(), shrinker });
        if known.len() < MAX_KINDS {
            known.push(TextKind { shape: Arc::clone(&shape), batch: own, place });
        }
        batch.shapes.push(shape);
        place
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
    let at = recent[hash % RECENT];
    if named.get(at).is_some_and(|known| known.name.len() == name.len() && args::begins(name, &known.name)) {
        return at;
    }
    let at = match kinds.get(name) {
        Some(&at) => at,
        None => {
            if named.len() >= MAX_NAMES {
                // No trace has so many. What is known is there to save time only.
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
