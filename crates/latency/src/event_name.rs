use pagehaul_trace::EventFormat;

/// A trace event as named on command lines: `SYSTEM:EVENT`, or the event alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventName {
    /// The event system; `None` matches any.
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
            Err(format!(
                "{text:?} is not a trace event: expected SYSTEM:EVENT, such as vmscan:mm_vmscan_direct_reclaim_begin"
            ))
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
    /// Returns whether `format` is that of this event.
    pub fn is(&self, format: &EventFormat) -> bool {
        // Text traces may not name the event system.
        let system =
            self.system.as_ref().is_none_or(|system| format.system.is_empty() || *system == format.system);
        system && self.name == format.name
    }
}

/// How starts are matched with ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Key {
    /// By the current task.
    #[default]
    Task,
    /// By field values, as (name in the start, name in the end).
    Fields(Vec<(String, String)>),
}

impl std::str::FromStr for Key {
    type Err = String;

    /// Parses `task`, or fields joined by commas: `dev,sector`, `pid=next_pid` where the names differ.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "task" {
            return Ok(Self::Task);
        }
        let field = |part: &str| {
            let (start, end) = part.split_once('=').unwrap_or((part, part));
            (!start.is_empty() && !end.is_empty()).then(|| (start.to_owned(), end.to_owned()))
        };
        let fields: Option<Vec<_>> = text.split(',').map(field).collect();
        fields.map(Self::Fields).ok_or_else(|| {
            format!("{text:?} is not a key: expected task or fields, such as dev,sector or pid=next_pid")
        })
    }
}
