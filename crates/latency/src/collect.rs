use std::collections::HashMap;

use pagehaul_trace::{Event, EventFormat, PerFormat, Slot, Symbols};

use crate::calls::{Calls, Missed, task};
use crate::functions::matches;
use crate::probes::parse_event;
use crate::report::Part;
use crate::{Histogram, Unit};

/// Makes histograms of functions from events: begin and return pairs of our probes, and returns of the function graph tracer.
#[derive(Debug)]
pub struct Functions {
    patterns: Vec<String>,
    symbols: Symbols,
    empty: Histogram,
    /// By index of the format.
    roles: PerFormat<Role>,
    functions: Vec<Part>,
    by_name: HashMap<String, u32>,
    /// Functions of addresses met so far; none for those nobody asked for.
    by_address: HashMap<u64, Option<u32>>,
    calls: Calls,
}

#[derive(Debug, Clone, Copy)]
enum Role {
    Other,
    Begin(u32, Option<Slot>),
    End(u32, Option<Slot>),
    GraphExit { function: Slot, began: Slot, ended: Slot },
}

impl Functions {
    /// Prepares for functions that match one of `patterns`. `names` is for events that carry addresses.
    pub fn new(patterns: Vec<String>, symbols: Symbols, unit: Unit, step: Option<u64>) -> Self {
        Self {
            patterns,
            symbols,
            empty: Histogram::new(unit, step),
            roles: PerFormat::default(),
            functions: Vec::new(),
            by_name: HashMap::new(),
            by_address: HashMap::new(),
            calls: Calls::default(),
        }
    }

    /// Takes note of an event.
    pub fn event(&mut self, event: &Event<'_>) {
        if event.after_gap() {
            self.forget();
        }
        let role = match *self.roles.entry(event.format()) {
            Some(role) => role,
            None => {
                let role = self.role(event.format());
                *self.roles.entry(event.format()) = Some(role);
                role
            }
        };
        let sp = |slot: Option<Slot>| event.u64(slot?);
        match role {
            Role::Other => {}
            Role::Begin(function, slot) => {
                self.calls.enter(task(event.pid(), event.cpu()), function, event.ts(), sp(slot));
            }
            Role::End(function, slot) => {
                let took = self.calls.leave(task(event.pid(), event.cpu()), function, event.ts(), sp(slot));
                self.count(function, took);
            }
            Role::GraphExit { function, began, ended } => {
                let values = (event.u64(function), event.u64(began), event.u64(ended));
                let (Some(address), Some(began), Some(ended)) = values else { return };
                if let Some(function) = self.at_address(address) {
                    self.count(function, Some(ended.saturating_sub(began)));
                }
            }
        }
    }

    fn count(&mut self, function: u32, took: Option<u64>) {
        if let (Some(ns), Some(part)) = (took, self.functions.get_mut(function as usize)) {
            part.histogram.add(ns);
        }
    }

    fn role(&mut self, format: &EventFormat) -> Role {
        if format.name == "funcgraph_exit" {
            let slots = (format.slot("func"), format.slot("calltime"), format.slot("rettime"));
            return match slots {
                (Some(function), Some(began), Some(ended)) => Role::GraphExit { function, began, ended },
                _ => Role::Other,
            };
        }
        let Some((begin, name)) = parse_event(&format.system, &format.name) else { return Role::Other };
        let slot = format.slot("sp");
        match self.number(&name) {
            Some(function) if begin => Role::Begin(function, slot),
            Some(function) => Role::End(function, slot),
            None => Role::Other,
        }
    }

    fn at_address(&mut self, address: u64) -> Option<u32> {
        if let Some(known) = self.by_address.get(&address) {
            return *known;
        }
        let name = match self.symbols.containing(address) {
            Some(name) => name.to_owned(),
            None => format!("{address:#x}"),
        };
        let function = self.number(&name);
        self.by_address.insert(address, function);
        function
    }

    /// The number of a function, if it was asked for.
    fn number(&mut self, name: &str) -> Option<u32> {
        if let Some(known) = self.by_name.get(name) {
            return Some(*known);
        }
        // Names of events have underscores for the dots of functions.
        let asked = |pattern: &String| matches(pattern, name) || matches(&pattern.replace('.', "_"), name);
        if !self.patterns.iter().any(asked) {
            return None;
        }
        let number = u32::try_from(self.functions.len()).ok()?;
        self.functions.push(Part { name: name.to_owned(), histogram: self.empty.clone() });
        self.by_name.insert(name.to_owned(), number);
        Some(number)
    }

    /// Events were lost: what is open may have ended unseen.
    fn forget(&mut self) {
        self.calls.forget();
    }

    /// Whether events of this format time functions, asked for or not.
    pub fn knows(format: &EventFormat) -> bool {
        format.name == "funcgraph_exit" || parse_event(&format.system, &format.name).is_some()
    }

    /// Calls open now.
    pub fn open(&self) -> u64 {
        self.calls.count()
    }

    /// The histograms since the last time; one for all functions unless `by_function`.
    pub fn take(&mut self, by_function: bool) -> (Vec<Part>, Missed) {
        let mut parts = Vec::new();
        let mut all = self.empty.clone();
        for part in &mut self.functions {
            let histogram = std::mem::replace(&mut part.histogram, self.empty.clone());
            if by_function {
                parts.push(Part { name: part.name.clone(), histogram });
            } else {
                all.merge(&histogram);
            }
        }
        if !by_function {
            let names: Vec<&str> = self.functions.iter().map(|part| part.name.as_str()).collect();
            parts.push(Part { name: names.join(", "), histogram: all });
        }
        (parts, self.calls.take_missed())
    }
}
