use std::collections::HashMap;

use pagehaul_trace::{Event, EventFormat, Formats, PerFormat, Slot};

use crate::calls::{Missed, task};
use crate::{Histogram, LatencyError};

/// Starts waiting for their end at most; beyond that new ones are counted as not fitting.
const MOST_OPEN: usize = 1 << 20;

/// A trace event as it is named on command lines: `SYSTEM:EVENT`, or the event alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventName {
    /// The subsystem; none means any that has such an event.
    pub system: Option<String>,
    /// The event.
    pub name: String,
}

impl std::str::FromStr for EventName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (system, name) = match text.split_once([':', '/']) {
            Some((system, name)) => (Some(system.to_owned()), name),
            None => (None, text),
        };
        let word =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if word(name) && system.as_deref().is_none_or(word) {
            Ok(Self { system, name: name.to_owned() })
        } else {
            Err(format!("{text:?} names no trace event: write it as vmscan:mm_vmscan_direct_reclaim_begin"))
        }
    }
}

impl std::fmt::Display for EventName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.system {
            Some(system) => write!(f, "{system}:{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl EventName {
    /// Whether a format is of this event.
    pub fn is(&self, format: &EventFormat) -> bool {
        // Text traces name no subsystem.
        let system =
            self.system.as_ref().is_none_or(|system| format.system.is_empty() || *system == format.system);
        system && self.name == format.name
    }
}

/// Which start belongs to which end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Key {
    /// The task that both happen in.
    #[default]
    Task,
    /// Values of fields, as (name in the start, name in the end).
    Fields(Vec<(String, String)>),
}

impl std::str::FromStr for Key {
    type Err = String;

    /// `task`, or fields joined by commas: `dev,sector`, `pid=next_pid` where the names differ.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "task" {
            return Ok(Self::Task);
        }
        let field = |part: &str| {
            let (start, end) = part.split_once('=').unwrap_or((part, part));
            (!start.is_empty() && !end.is_empty()).then(|| (start.to_owned(), end.to_owned()))
        };
        let fields: Option<Vec<_>> = text.split(',').map(field).collect();
        fields
            .map(Self::Fields)
            .ok_or_else(|| format!("{text:?} names no fields: write dev,sector or pid=next_pid"))
    }
}

/// Times from one event to the next of another kind with the same key.
#[derive(Debug)]
pub struct Between {
    start: EventName,
    end: EventName,
    key: Key,
    /// By index of the format: what it is, once it was looked at.
    roles: PerFormat<Role>,
    open: HashMap<Box<[u64]>, u64>,
    missed: Missed,
    restarted: u64,
}

#[derive(Debug, Clone)]
enum Role {
    Other,
    /// Both where start and end are the same event: the time from one to the next.
    Part {
        starts: bool,
        ends: bool,
        slots: Vec<Slot>,
    },
}

impl Between {
    /// Prepares for these events.
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

    /// Takes note of an event, and gives its duration to `histogram` if it ends one.
    ///
    /// # Errors
    /// [`LatencyError::NoField`] if an event has no field of the key's name.
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
            // A record too short for its format.
            self.missed.without_start += 1;
            return Ok(());
        };
        if ends {
            match self.open.remove(&key) {
                Some(ts) => histogram.add(event.ts().saturating_sub(ts)),
                None => self.missed.without_start += u64::from(!starts),
            }
        }
        if starts {
            if self.open.len() >= MOST_OPEN && !self.open.contains_key(&key) {
                self.missed.full_maps += 1;
            } else if self.open.insert(key, event.ts()).is_some() {
                self.restarted += 1;
            }
        }
        Ok(())
    }

    /// Events were lost: what is open may have ended unseen.
    fn forget(&mut self) {
        self.missed.around_losses += self.open.len() as u64;
        self.open.clear();
    }

    /// Starts without an end so far.
    pub fn open(&self) -> u64 {
        self.open.len() as u64
    }

    /// What was missed since the last time. Starts that another start of the same key took the place of count as without
    /// an end.
    pub fn take_missed(&mut self) -> Missed {
        let restarted = std::mem::take(&mut self.restarted);
        let mut missed = std::mem::take(&mut self.missed);
        missed.without_end += restarted;
        missed
    }
}

/// What an event is to this pair.
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

/// Fails with one sentence if a trace that was read to its end knows no such event.
///
/// # Errors
/// [`LatencyError::NotInTrace`].
pub fn check_known(formats: &Formats, name: &EventName) -> Result<(), LatencyError> {
    if formats.iter().any(|format| name.is(format)) {
        return Ok(());
    }
    let mut known: Vec<&str> = formats.iter().map(|format| format.name.as_str()).collect();
    known.sort_unstable();
    known.truncate(12);
    Err(LatencyError::NotInTrace { event: name.to_string(), known: known.join(", ") })
}
