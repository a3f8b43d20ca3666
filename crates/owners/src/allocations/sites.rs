//! Places in the source that allocated memory, by allocation tags.

use std::collections::HashMap;

use pagehaul_inspect::{AllocTag, CodeTag, Machine, alloc_tags, code_tag};

use super::owners::MAX_REPORTED;
use crate::report::{Site, Sites};

/// Reads the tags. `None`: the kernel counts nothing, or it says in `missing` why that is not known.
pub(crate) fn sites(machine: &Machine<'_>, missing: &mut Vec<String>) -> Option<Sites> {
    let found = match alloc_tags(machine) {
        Ok(found) => found?,
        Err(why) => {
            missing.push(format!("allocation tags: {why}"));
            return None;
        }
    };
    missing.extend(found.broken.map(|why| format!("allocation tags: {why}")));
    let mut all = found.all;
    all.retain(|tag| tag.bytes != 0 || tag.calls != 0);
    let sum = |of: fn(&AllocTag) -> i64| all.iter().map(of).fold(0, i64::saturating_add);
    let (bytes, calls) = (sum(|tag| tag.bytes), sum(|tag| tag.calls));
    all.sort_by_key(|tag| (std::cmp::Reverse(tag.bytes), tag.address));
    let mut names = Tags::new(machine);
    let site = |tag: &AllocTag| {
        let name = names.get(tag.address)?;
        Some(Site {
            file: name.file.clone(),
            line: name.line,
            function: name.function.clone(),
            module: name.module.clone(),
            bytes: tag.bytes,
            calls: tag.calls,
        })
    };
    let largest: Vec<Site> = all.iter().take(MAX_REPORTED).filter_map(site).collect();
    missing.extend(names.why.take().map(|why| format!("names of allocation tags: {why}")));
    Some(Sites { bytes, calls, count: all.len(), largest })
}

/// Names tags.
pub(crate) struct Tags<'a> {
    machine: &'a Machine<'a>,
    known: HashMap<u64, Option<CodeTag>>,
    pub(crate) why: Option<String>,
}

impl<'a> Tags<'a> {
    pub(crate) fn new(machine: &'a Machine<'a>) -> Self {
        Self { machine, known: HashMap::new(), why: None }
    }

    pub(crate) fn get(&mut self, address: u64) -> Option<&CodeTag> {
        let (machine, why) = (self.machine, &mut self.why);
        let found = self.known.entry(address).or_insert_with(|| match code_tag(machine, address) {
            Ok(tag) => Some(tag),
            Err(fault) => {
                why.get_or_insert(fault.to_string());
                None
            }
        });
        found.as_ref()
    }
}

/// Returns a tag as the name of an owner. The file is without its directories, which of modules can be those of a site.
pub(crate) fn place(tag: &CodeTag) -> String {
    let module = tag.module.as_ref().map_or_else(String::new, |module| format!(" [{module}]"));
    let file = tag.file.rsplit('/').next().unwrap_or_default();
    format!("allocated in {}{module}, {file}:{}", tag.function, tag.line)
}
