//! Counts of tasks by name and by parent: what a fork bomb, a leak of threads or a stalled service looks like.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::tasks::{Task, Tasks};

/// Tasks of one name.
#[derive(Debug, Clone, Serialize)]
pub struct NameCount {
    /// The name. Numbers in names of kernel threads are `#`.
    pub name: String,
    /// Tasks, each thread counted.
    pub tasks: usize,
    /// Processes whose first thread has the name.
    pub processes: usize,
    /// Tasks by state.
    pub states: BTreeMap<char, usize>,
}

/// Children of one process.
#[derive(Debug, Clone, Serialize)]
pub struct ParentCount {
    /// Process ID of the parent.
    pub pid: u32,
    /// The parent, as `comm/pid`; its process ID alone if it is not among the tasks.
    pub parent: String,
    /// Its child processes.
    pub children: usize,
    /// The name that most of them have.
    pub name: String,
    /// How many have it.
    pub named: usize,
}

/// Counts of tasks.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Counts {
    /// All tasks.
    pub tasks: usize,
    /// Their processes.
    pub processes: usize,
    /// Names with the most tasks first.
    pub by_name: Vec<NameCount>,
    /// Parents with the most children first.
    pub by_parent: Vec<ParentCount>,
    /// Why some may be missing.
    pub broken: Vec<String>,
}

/// Counts the tasks.
pub fn counts(tasks: &Tasks) -> Counts {
    let mut names: HashMap<String, NameCount> = HashMap::new();
    let mut children: HashMap<u32, HashMap<String, usize>> = HashMap::new();
    let mut processes = 0;
    for task in &tasks.all {
        let name = name(task);
        let is_first = task.pid == task.tgid;
        if is_first {
            processes += 1;
            *children.entry(task.ppid).or_default().entry(name.clone()).or_default() += 1;
        }
        let count = names.entry(name).or_insert_with_key(|name| NameCount {
            name: name.clone(),
            tasks: 0,
            processes: 0,
            states: BTreeMap::new(),
        });
        count.tasks += 1;
        count.processes += usize::from(is_first);
        *count.states.entry(task.state).or_default() += 1;
    }
    let mut by_name: Vec<NameCount> = names.into_values().collect();
    by_name.sort_unstable_by(|a, b| b.tasks.cmp(&a.tasks).then_with(|| a.name.cmp(&b.name)));
    let labels: HashMap<u32, String> = tasks.all.iter().map(|task| (task.pid, task.label())).collect();
    let mut by_parent: Vec<ParentCount> = children
        .into_iter()
        .filter_map(|(pid, names)| {
            let children = names.values().sum();
            let (name, named) = names.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)))?;
            let parent = labels.get(&pid).cloned().unwrap_or_else(|| pid.to_string());
            Some(ParentCount { pid, parent, children, name, named })
        })
        .collect();
    by_parent.sort_unstable_by(|a, b| b.children.cmp(&a.children).then_with(|| a.pid.cmp(&b.pid)));
    let mut broken = tasks.broken.clone();
    if tasks.all.is_empty() {
        broken.push("counts: no task could be read".to_owned());
    }
    Counts { tasks: tasks.all.len(), processes, by_name, by_parent, broken }
}

/// The name to count a task by: `kworker/#:#` for each worker of a CPU.
fn name(task: &Task) -> String {
    if !task.kernel_thread {
        return task.comm.clone();
    }
    let mut name = String::new();
    for letter in task.comm.chars() {
        match letter.is_ascii_digit() {
            true if name.ends_with('#') => {}
            true => name.push('#'),
            false => name.push(letter),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::Hex;

    fn task(pid: u32, tgid: u32, ppid: u32, comm: &str, state: char) -> Task {
        Task {
            address: Hex(u64::from(pid)),
            pid,
            tgid,
            ppid,
            comm: comm.to_owned(),
            state,
            kernel_thread: ppid == 2,
            cpu: 0,
            seconds_since_run: None,
            mm: Hex(0),
            flags: Hex(0),
            reclaims: false,
        }
    }

    #[test]
    fn tasks_are_counted_by_name_and_by_parent() {
        let all = vec![
            task(1, 1, 0, "init", 'S'),
            task(5, 5, 2, "kworker/0:1", 'I'),
            task(6, 6, 2, "kworker/12:0H", 'D'),
            task(7, 7, 2, "kworker/1:23", 'I'),
            task(10, 10, 1, "sh", 'S'),
            task(11, 10, 1, "sh", 'D'),
            task(12, 12, 10, "sh", 'R'),
            task(13, 13, 99, "b", 'R'),
        ];
        let mut tasks = Tasks::default();
        tasks.all.extend(all);
        let found = counts(&tasks);
        assert_eq!((found.tasks, found.processes), (8, 7));
        let names: Vec<_> =
            found.by_name.iter().map(|name| (name.name.as_str(), name.tasks, name.processes)).collect();
        assert_eq!(
            names,
            [("sh", 3, 2), ("kworker/#:#", 2, 2), ("b", 1, 1), ("init", 1, 1), ("kworker/#:#H", 1, 1)]
        );
        assert_eq!(found.by_name[0].states, BTreeMap::from([('S', 1), ('D', 1), ('R', 1)]));
        let parents: Vec<_> = found
            .by_parent
            .iter()
            .map(|parent| (parent.parent.as_str(), parent.children, parent.name.as_str(), parent.named))
            .collect();
        assert_eq!(
            parents,
            [
                ("2", 3, "kworker/#:#", 2),
                ("0", 1, "init", 1),
                ("init/1", 1, "sh", 1),
                ("sh/10", 1, "sh", 1),
                ("99", 1, "b", 1)
            ]
        );
        assert_eq!(found.broken, Vec::<String>::new());
    }
}
