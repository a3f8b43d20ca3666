//! Objects counted by the stack that allocated them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

use super::names::Stacks;
use super::owners::MAX_REPORTED;

/// Stacks that are counted apart, and tasks of one of them.
const MAX_STACKS: usize = 1 << 16;
const MAX_TASKS: usize = 256;
/// Tasks that are named.
const NAMED_TASKS: usize = 4;

/// What a record names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum By {
    /// A handle of the stack depot.
    Stack(u32),
    /// Return addresses, the innermost first.
    Addresses(Vec<u64>),
}

/// Objects of one stack.
#[derive(Debug)]
struct Count<T> {
    objects: u64,
    bytes: u64,
    tasks: HashMap<T, u64>,
}

/// Objects by what they are of, and stack; tasks are `T`.
#[derive(Debug)]
pub(crate) struct Counts<K, T> {
    counts: HashMap<(K, By), Count<T>>,
    /// Objects of stacks beyond the limit.
    pub(crate) cut: u64,
}

/// Objects of one of the stacks with the most bytes.
#[derive(Debug)]
pub(crate) struct Row<K, T> {
    pub(crate) of: K,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) stack: Vec<String>,
    /// Tasks that allocated the most.
    pub(crate) named: Vec<T>,
    /// Number of these tasks, up to 256.
    pub(crate) tasks: usize,
}

impl<K: Copy + Ord + Hash, T: Copy + Ord + Hash> Counts<K, T> {
    pub(crate) fn new() -> Self {
        Self { counts: HashMap::new(), cut: 0 }
    }

    /// Counts an object.
    pub(crate) fn add(&mut self, of: K, by: By, bytes: u64, task: T) {
        let key = (of, by);
        if self.counts.len() >= MAX_STACKS && !self.counts.contains_key(&key) {
            self.cut += 1;
            return;
        }
        let empty = || Count { objects: 0, bytes: 0, tasks: HashMap::new() };
        let count = self.counts.entry(key).or_insert_with(empty);
        count.objects += 1;
        count.bytes = count.bytes.saturating_add(bytes);
        if count.tasks.len() < MAX_TASKS || count.tasks.contains_key(&task) {
            *count.tasks.entry(task).or_default() += 1;
        }
    }

    /// Number of all stacks.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Returns the stacks with the most bytes, and how many objects are of stacks that cannot be read.
    pub(crate) fn largest(self, stacks: &mut Stacks<'_>) -> (Vec<Row<K, T>>, u64) {
        let mut all: Vec<((K, By), Count<T>)> = self.counts.into_iter().collect();
        all.sort_by_cached_key(|((of, by), count)| {
            let address = match by {
                By::Stack(handle) => u64::from(*handle),
                By::Addresses(all) => all.first().copied().unwrap_or(0),
            };
            (Reverse(count.bytes), *of, address)
        });
        let mut lost = 0;
        let mut largest = Vec::new();
        for ((of, by), count) in all {
            if largest.len() >= MAX_REPORTED {
                break;
            }
            let stack = match by {
                By::Stack(handle) => stacks.functions(handle),
                By::Addresses(addresses) => Some(stacks.named(&addresses)),
            };
            let Some(stack) = stack else {
                lost += count.objects;
                continue;
            };
            let mut tasks: Vec<(T, u64)> = count.tasks.into_iter().collect();
            tasks.sort_unstable_by_key(|(task, objects)| (Reverse(*objects), *task));
            largest.push(Row {
                of,
                objects: count.objects,
                bytes: count.bytes,
                stack,
                named: tasks.iter().take(NAMED_TASKS).map(|(task, _)| *task).collect(),
                tasks: tasks.len(),
            });
        }
        (largest, lost)
    }
}
