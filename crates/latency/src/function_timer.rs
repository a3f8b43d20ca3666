use std::collections::HashMap;

use pagehaul_trace::{Event, EventFormat, PerFormat, Slot, Symbols};

use crate::call_tracker::{CallTracker, Missed, task};
use crate::functions::matches_glob;
use crate::histogram::Histogram;
use crate::probes::parse_event;
use crate::report::NamedHistogram;
use crate::unit::Unit;

/// Collects latencies of functions from events: entry and return probes, and returns of the function graph
/// tracer.
#[derive(Debug)]
pub struct FunctionTimer {
    patterns: Vec<String>,
    symbols: Symbols,
    empty: Histogram,
    roles: PerFormat<Role>,
    functions: Vec<NamedHistogram>,
    by_name: HashMap<String, u32>,
    /// FunctionTimer by address; `None` for those that no pattern matches.
    by_address: HashMap<u64, Option<u32>>,
    calls: CallTracker,
}

#[derive(Debug, Clone, Copy)]
enum Role {
    Other,
    Entry(u32, Option<Slot>),
    Return(u32, Option<Slot>),
    GraphExit { function: Slot, began: Slot, ended: Slot },
}

impl FunctionTimer {
    /// Prepares for functions that match one of `patterns`. `symbols` resolves the addresses of function
    /// graph events.
    pub fn new(patterns: Vec<String>, symbols: Symbols, unit: Unit, step: Option<u64>) -> Self {
        Self {
            patterns,
            symbols,
            empty: Histogram::new(unit, step),
            roles: PerFormat::default(),
            functions: Vec::new(),
            by_name: HashMap::new(),
            by_address: HashMap::new(),
            calls: CallTracker::default(),
        }
    }

    /// Processes an event.
    pub fn event(&mut self, event: &Event<'_>) {
        if event.after_gap() {
            self.calls.forget();
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
            Role::Entry(function, slot) => {
                self.calls.enter(task(event.pid(), event.cpu()), function, event.ts(), sp(slot));
            }
            Role::Return(function, slot) => {
                let latency =
                    self.calls.leave(task(event.pid(), event.cpu()), function, event.ts(), sp(slot));
                self.count(function, latency);
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

    fn count(&mut self, function: u32, latency: Option<u64>) {
        if let (Some(ns), Some(entry)) = (latency, self.functions.get_mut(function as usize)) {
            entry.histogram.record(ns);
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
            Some(function) if begin => Role::Entry(function, slot),
            Some(function) => Role::Return(function, slot),
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

    /// Returns the index of a function, or `None` if no pattern matches it.
    fn number(&mut self, name: &str) -> Option<u32> {
        if let Some(known) = self.by_name.get(name) {
            return Some(*known);
        }
        // Event names have underscores in place of the dots of functions.
        let asked =
            |pattern: &String| matches_glob(pattern, name) || matches_glob(&pattern.replace('.', "_"), name);
        if !self.patterns.iter().any(asked) {
            return None;
        }
        let number = u32::try_from(self.functions.len()).ok()?;
        self.functions.push(NamedHistogram { name: name.to_owned(), histogram: self.empty.clone() });
        self.by_name.insert(name.to_owned(), number);
        Some(number)
    }

    /// Returns whether events of this format measure functions.
    pub(crate) fn measures(format: &EventFormat) -> bool {
        format.name == "funcgraph_exit" || parse_event(&format.system, &format.name).is_some()
    }

    /// Returns the number of open calls.
    pub fn open(&self) -> u64 {
        self.calls.count()
    }

    /// Returns the histograms since the last call: one per function if `by_function`, else one for all.
    pub fn take(&mut self, by_function: bool) -> (Vec<NamedHistogram>, Missed) {
        let mut histograms = Vec::new();
        let mut all = self.empty.clone();
        for entry in &mut self.functions {
            let histogram = std::mem::replace(&mut entry.histogram, self.empty.clone());
            if by_function {
                histograms.push(NamedHistogram { name: entry.name.clone(), histogram });
            } else {
                all.merge(&histogram);
            }
        }
        if !by_function {
            let names: Vec<&str> = self.functions.iter().map(|entry| entry.name.as_str()).collect();
            histograms.push(NamedHistogram { name: names.join(", "), histogram: all });
        }
        (histograms, self.calls.take_missed())
    }
}
