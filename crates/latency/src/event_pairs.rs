use std::collections::HashMap;

use pagehaul_trace::{Event, EventFormat, Formats, PerFormat, Slot};

use crate::call_tracker::{Missed, task};
use crate::error::LatencyError;
use crate::event_name::{EventName, Key};
use crate::histogram::Histogram;

/// Upper bound of starts that wait for their end; further ones are counted as dropped.
const MAX_OPEN: usize = 1 << 20;

/// Measures the time from each start event to the next end event with the same key.
#[derive(Debug)]
pub struct EventPairs {
    start: EventName,
    end: EventName,
    key: Key,
    roles: PerFormat<Role>,
    open: HashMap<Box<[u64]>, u64>,
    missed: Missed,
    restarted: u64,
}

#[derive(Debug, Clone)]
enum Role {
    Other,
    /// Both are true if start and end are the same event: this measures the time between two of them.
    Part {
        starts: bool,
        ends: bool,
        slots: Vec<Slot>,
    },
}

impl EventPairs {
    /// Prepares for a pair of events.
    pub fn new(start: EventName, end: EventName, key: Key) -> Self {
        Self {
            start,
            end,
            key,
            roles: PerFormat::default(),
            open: HashMap::new(),
            missed: Missed::default(),
            restarted: 0,
        }
    }

    /// Processes an event. An end adds its latency to `histogram`.
    ///
    /// # Errors
    /// [`LatencyError::NoField`] if an event lacks a field of the key.
    pub fn event(&mut self, event: &Event<'_>, histogram: &mut Histogram) -> Result<(), LatencyError> {
        if event.after_gap() {
            self.forget();
        }
        let role = match self.roles.entry(event.format()) {
            Some(role) => role,
            unknown => unknown.insert(role(event.format(), &self.start, &self.end, &self.key)?),
        };
        let Role::Part { starts, ends, slots } = role else { return Ok(()) };
        let (starts, ends) = (*starts, *ends);
        let key: Option<Box<[u64]>> = match &self.key {
            Key::Task => Some([task(event.pid(), event.cpu())].into()),
            Key::Fields(_) => slots.iter().map(|slot| event.u64(*slot)).collect(),
        };
        let Some(key) = key else {
            // The record is too short for its format.
            self.missed.ends_without_start += 1;
            return Ok(());
        };
        if ends {
            match self.open.remove(&key) {
                Some(ts) => histogram.record(event.ts().saturating_sub(ts)),
                None => self.missed.ends_without_start += u64::from(!starts),
            }
        }
        if starts {
            if self.open.len() >= MAX_OPEN && !self.open.contains_key(&key) {
                self.missed.dropped += 1;
            } else if self.open.insert(key, event.ts()).is_some() {
                self.restarted += 1;
            }
        }
        Ok(())
    }

    /// Forgets open starts, because events were lost: their ends may be among them.
    fn forget(&mut self) {
        self.missed.open_at_gap += self.open.len() as u64;
        self.open.clear();
    }

    /// Returns the number of starts without an end so far.
    pub fn open(&self) -> u64 {
        self.open.len() as u64
    }

    /// Returns what was missed since the last call. A start that another start of the same key replaced
    /// counts as without an end.
    pub(crate) fn take_missed(&mut self) -> Missed {
        let restarted = std::mem::take(&mut self.restarted);
        let mut missed = std::mem::take(&mut self.missed);
        missed.starts_without_end += restarted;
        missed
    }
}

/// Returns the role of an event in this pair.
fn role(format: &EventFormat, start: &EventName, end: &EventName, key: &Key) -> Result<Role, LatencyError> {
    let (starts, ends) = (start.is(format), end.is(format));
    if !starts && !ends {
        return Ok(Role::Other);
    }
    let Key::Fields(fields) = key else { return Ok(Role::Part { starts, ends, slots: Vec::new() }) };
    let slot = |(at_start, at_end): &(String, String)| {
        let name = if starts { at_start } else { at_end };
        format.slot(name).ok_or_else(|| LatencyError::NoField {
            event: format.name.clone(),
            field: name.clone(),
            fields: names(format),
        })
    };
    Ok(Role::Part { starts, ends, slots: fields.iter().map(slot).collect::<Result<_, _>>()? })
}

fn names(format: &EventFormat) -> String {
    let names = format.fields.iter().map(|field| field.name.as_str());
    names.filter(|name| !name.starts_with("common_")).collect::<Vec<_>>().join(", ")
}

/// Fails if a trace that has been read to its end has no such event.
///
/// # Errors
/// [`LatencyError::NotInTrace`].
pub(crate) fn check_known(formats: &Formats, name: &EventName) -> Result<(), LatencyError> {
    if formats.iter().any(|format| name.is(format)) {
        return Ok(());
    }
    let mut known: Vec<&str> = formats.iter().map(|format| format.name.as_str()).collect();
    known.sort_unstable();
    known.truncate(12);
    Err(LatencyError::NotInTrace { event: name.to_string(), known: known.join(", ") })
}
