//! Names that a dump's own records give: what they name is private wherever it stands.

use std::collections::BTreeSet;

use super::allowed::is_device;

/// Names of kernel threads, which the kernel gives, and which say much about a crash.
const THREADS: [&str; 7] =
    ["khungtaskd", "kthreadd", "oom_reaper", "rcu_bh", "rcu_preempt", "rcu_sched", "watchdogd"];
/// How others begin: a number or a device follows.
const NUMBERED_THREADS: [&str; 9] =
    ["irq/", "jbd2/", "ksoftirqd/", "kswapd", "kworker/", "migration/", "swapper/", "watchdog/", "xfsaild/"];
/// Shorter names are parts of too many words: they are replaced only where nothing but them can be meant.
const SHORTEST: usize = 3;

/// Names that are private, and names that are not.
#[derive(Debug, Default)]
pub struct Names {
    hosts: BTreeSet<String>,
    tasks: BTreeSet<String>,
    /// Modules, and words of the kernel's release and version: the tables have them as they are.
    pub(super) known: BTreeSet<String>,
}

impl Names {
    /// Returns the names of programs.
    pub fn of_programs(programs: &[String]) -> Self {
        let mut names = Self::default();
        programs.iter().for_each(|name| names.add(Some(name)));
        names
    }

    /// Adds a host by its whole name, by the part before the first dot, and by its domain.
    pub(super) fn add_host(&mut self, name: &str) {
        self.hosts.insert(name.to_owned());
        if let Some((short, domain)) = name.split_once('.') {
            self.hosts.extend([short.to_owned(), domain.to_owned()]);
        }
    }

    /// Adds what the tables have as it is: names of modules that are linked in or that a stack names, and the words of `text`.
    pub(super) fn add_known(&mut self, text: Option<&str>) {
        self.known.extend(text.into_iter().flat_map(str::split_whitespace).map(str::to_owned));
    }

    /// Replaces the names in a line by what `hashed` makes of their kind and themselves.
    pub(super) fn replace(&self, line: &str, hashed: impl Fn(&str, &str) -> String) -> String {
        let mut line = line.to_owned();
        for (kind, names) in [("comm", &self.tasks), ("host", &self.hosts)] {
            // Longer ones first: one may hold another.
            let mut names: Vec<&String> = names.iter().collect();
            names.sort_by_key(|name| std::cmp::Reverse(name.len()));
            for name in names {
                line = replace_word(&line, name, &hashed(kind, name));
            }
        }
        line
    }

    /// Finds names of tasks where the kernel prints them.
    pub(super) fn collect(&mut self, line: &str) {
        let after = |start: &str| Some(line.split_once(start)?.1);
        let ends = [" Kdump: ", " Tainted: ", " Not tainted"];
        let header = after("Comm: ").map(|rest| {
            let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
            rest.get(..end).unwrap_or(rest).trim()
        });
        let blocked = after("INFO: task ").and_then(|rest| rest.split(" blocked ").next()?.rsplit_once(':'));
        let lockup = line
            .contains("lockup")
            .then(|| line.rsplit_once('[')?.1.split_once(']')?.0.rsplit_once(':'))
            .flatten();
        let killed = after("Killed process ").and_then(|rest| rest.split_once('(')?.1.split_once(')'));
        let invoked = line.split_once(" invoked oom-killer");
        let chosen = after("task=").and_then(|rest| rest.split_once(",pid="));
        // `[    123]     0   123  …  name`, one for each process that the OOM killer considers.
        let listed = line.strip_prefix('[').and_then(|rest| {
            let (pid, rest) = rest.split_once(']')?;
            pid.trim().parse::<u32>().ok()?;
            rest.split_whitespace().nth(6)?;
            rest.split_whitespace().last()
        });
        // `name[123]: segfault at …`
        let fault = line.split_once("]: ").and_then(|(before, _)| {
            let (name, pid) = before.rsplit_once('[')?;
            pid.parse::<u32>().ok()?;
            name.rsplit(' ').next()
        });
        if let Some(modules) = after("Modules linked in:") {
            let end = modules.find("[last unloaded").unwrap_or(modules.len());
            let names = modules.get(..end).unwrap_or(modules).split_whitespace();
            self.known.extend(names.filter_map(|name| Some(name.split('(').next()?.to_owned())));
        }
        // `symbol+0x10/0x20 [module]`.
        let module = after("+0x").and_then(|rest| rest.split_once(" [")?.1.split([' ', ']']).next());
        self.known.extend(module.map(str::to_owned));
        let pairs = [blocked, lockup, killed, invoked, chosen].map(|pair| pair.map(|(name, _)| name));
        pairs.into_iter().chain([header, listed, fault]).for_each(|name| self.add(name));
    }

    /// Adds the name of a program, unless the kernel gives such names to its threads.
    pub(super) fn add(&mut self, name: Option<&str>) {
        let name = name.map(str::trim).filter(|name| name.len() >= SHORTEST && !is_kernel_thread(name));
        self.tasks.extend(name.map(str::to_owned));
    }
}

/// Whether a name is one that the kernel gives its threads.
pub(super) fn is_kernel_thread(name: &str) -> bool {
    let numbered = |start: &str| {
        let Some(rest) = name.strip_prefix(start) else { return false };
        let first = rest.split([':', '/', '-', '_', '>']).next().unwrap_or_default();
        let number = first.trim_start_matches('u');
        is_device(rest)
            || is_device(first)
            || !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    THREADS.contains(&name) || NUMBERED_THREADS.iter().any(|start| numbered(start))
}

/// Replaces a name where no letter, digit or `_` touches it.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(word) {
        out.push_str(before);
        let touched = inside(out.chars().next_back()) || inside(after.chars().next());
        out.push_str(if touched { word } else { by });
        rest = after;
    }
    out + rest
}
