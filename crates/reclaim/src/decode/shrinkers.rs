use std::collections::HashMap;

use pagehaul_trace::{Event, Slot, Symbols};

/// Numbers shrinkers in the order of appearance, by the function that scans their objects.
#[derive(Debug, Default)]
pub struct ShrinkerNames {
    shrinkers: Vec<Known>,
    by_address: HashMap<u64, u32>,
    by_name: HashMap<Box<str>, u32>,
    /// The last one named: the begin and the end of a call name the same.
    last_named: u32,
}

#[derive(Debug)]
enum Known {
    Address(u64),
    Name(Box<str>),
}

impl ShrinkerNames {
    pub(super) fn id(&mut self, event: &Event<'_>, slot: Option<Slot>) -> u32 {
        let Some(slot) = slot else { return self.named("unknown") };
        match event.u64(slot) {
            Some(address) => {
                if let Some(&id) = self.by_address.get(&address) {
                    return id;
                }
                let id = self.shrinkers.len() as u32;
                self.shrinkers.push(Known::Address(address));
                self.by_address.insert(address, id);
                id
            }
            None => {
                if let Some(Known::Name(last)) = self.shrinkers.get(self.last_named as usize)
                    && event.spelling(slot) == Some(last.as_bytes())
                {
                    return self.last_named;
                }
                let text = event.text(slot).unwrap_or_default();
                // Text traces have the offset in the function too: "super_cache_scan+0x0/0x1b0 [xfs]".
                self.named(text.split(['+', ' ']).next().unwrap_or_default())
            }
        }
    }

    fn named(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.by_name.get(name) {
            self.last_named = id;
            return id;
        }
        let id = self.shrinkers.len() as u32;
        self.shrinkers.push(Known::Name(name.into()));
        self.by_name.insert(name.into(), id);
        id
    }

    /// Returns the name of a shrinker's function, or its address if the symbol is not known.
    pub fn name(&self, id: u32, symbols: &Symbols) -> String {
        match self.shrinkers.get(id as usize) {
            Some(Known::Address(address)) => {
                symbols.name(*address).map_or_else(|| format!("{address:#x}"), str::to_owned)
            }
            Some(Known::Name(name)) => name.to_string(),
            None => "unknown".into(),
        }
    }
}
