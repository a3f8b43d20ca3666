//! Line formats: one for each event name and sequence of fields.

use std::borrow::Cow;
use std::collections::HashMap;

use super::field_names::field_name;
use super::fields::SHRINKER_NAMES;
use crate::format::{EventFormat, Field, FieldKind, Formats, Slot};

/// Event name and sequence of fields of a line.
#[derive(Debug)]
pub(super) struct LineFormat {
    pub(super) name: Box<[u8]>,
    /// The text before each value: `order=`, or `objects to shrink `.
    pub(super) before: Fields,
    /// The event system, if the first line with this format names it.
    pub(super) system: Box<[u8]>,
    /// The first two values are words without a name, as in shrinker events.
    pub(super) shrinker: bool,
}

/// Upper bounds of line formats per event name and in all; no real trace has more.
const MAX_OF_NAME: usize = 64;
const MOST: usize = 1 << 16;

/// Event formats made for line formats.
#[derive(Default)]
pub(super) struct LineFormats {
    names: HashMap<Box<[u8]>, HashMap<Fields, usize>>,
}

/// The text before each value.
type Fields = Box<[Box<[u8]>]>;

impl LineFormats {
    /// Returns the index of the event format, which the first line of a kind creates. `None` if the event
    /// name has too many.
    pub(super) fn index(&mut self, line: &LineFormat, formats: &mut Formats) -> Option<usize> {
        let known = self.names.get(&line.name);
        if let Some(&index) = known.and_then(|known| known.get(&line.before)) {
            return Some(index);
        }
        if known.is_some_and(|known| known.len() >= MAX_OF_NAME) || formats.iter().len() >= MOST {
            return None;
        }
        let index = formats.add(line.event_format());
        self.names.entry(line.name.clone()).or_default().insert(line.before.clone(), index);
        Some(index)
    }
}

impl LineFormat {
    fn event_format(&self) -> EventFormat {
        let name = String::from_utf8_lossy(&self.name);
        let field = |(at, before): (usize, &[u8])| {
            let printed = match SHRINKER_NAMES.get(at) {
                Some(name) if self.shrinker => Cow::Borrowed(*name),
                _ => String::from_utf8_lossy(field_of(before)),
            };
            Field {
                name: field_name(&name, &printed).to_owned(),
                type_name: "text".into(),
                slot: Slot { offset: at as u32, size: 0, kind: FieldKind::Text },
            }
        };
        EventFormat {
            index: 0,
            system: String::from_utf8_lossy(&self.system).into_owned(),
            name: name.clone().into_owned(),
            id: u32::MAX,
            fields: self.before.iter().map(|before| &**before).enumerate().map(field).collect(),
            print: String::new(),
            common_pid: None,
        }
    }
}

/// Returns the field name in the text before a value: `order` for `order=`, `objects to shrink` for `objects
/// to shrink `, `nid` for `nid: `.
fn field_of(before: &[u8]) -> &[u8] {
    if let Some(name) = before.strip_suffix(b"=") {
        return name;
    }
    let name = before.trim_ascii_end();
    name.strip_suffix(b":").unwrap_or(name)
}
