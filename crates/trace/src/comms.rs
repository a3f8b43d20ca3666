use std::collections::HashMap;

/// Task names by PID, as `saved_cmdlines` and trace files hold them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Comms(HashMap<i32, Box<str>>);

impl Comms {
    /// Parses lines of `PID COMM`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut comms = Self::default();
        for line in text.lines() {
            if let Some((pid, name)) = line.trim_start().split_once(' ')
                && let Ok(pid) = pid.parse()
            {
                comms.insert(pid, name);
            }
        }
        comms
    }

    /// Sets the name of a task.
    pub(crate) fn insert(&mut self, pid: i32, name: &str) {
        self.0.insert(pid, name.into());
    }

    /// Sets the name of a task that has none yet.
    pub(crate) fn insert_missing(&mut self, pid: i32, name: &str) {
        self.0.entry(pid).or_insert_with(|| name.into());
    }

    /// Returns the name of a task. PID 0 is the idle task of every CPU.
    pub(crate) fn get(&self, pid: i32) -> Option<&str> {
        match self.0.get(&pid) {
            Some(name) => Some(name),
            None => (pid == 0).then_some("<idle>"),
        }
    }

    /// Iterates over all tasks in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i32, &str)> {
        self.0.iter().map(|(&pid, name)| (pid, &**name))
    }
}
