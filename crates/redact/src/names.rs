//! Names that a dump's own records give: what they name is private wherever it stands.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use crate::NO_HOST;
use crate::allowed::{Place, is_allowed, is_device};
use crate::embedded::has_address;
use crate::search::{Kind, Search};

/// Names of kernel threads, which the kernel gives, and which say much about a crash.
const THREADS: [&str; 7] =
    ["khungtaskd", "kthreadd", "oom_reaper", "rcu_bh", "rcu_preempt", "rcu_sched", "watchdogd"];
/// How others begin: a number or a device follows.
const NUMBERED_THREADS: [&str; 9] =
    ["irq/", "jbd2/", "ksoftirqd/", "kswapd", "kworker/", "migration/", "swapper/", "watchdog/", "xfsaild/"];

/// A task of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskName {
    /// What it is called.
    pub name: String,
    /// Whether the kernel called it so.
    pub is_kernel_thread: bool,
}

/// Names that are private, and names that are not.
#[derive(Debug, Default)]
pub struct Names {
    hosts: BTreeSet<String>,
    programs: BTreeSet<String>,
    /// Kernel threads whose names may have a part that a site gave.
    threads: BTreeSet<String>,
    /// Modules, and words of the kernel's release and version: the tables have them as they are.
    pub(super) known: BTreeSet<String>,
    search: OnceLock<Search>,
}

impl Names {
    /// Returns the names of tasks.
    pub fn of_tasks<'a>(tasks: impl IntoIterator<Item = &'a TaskName>) -> Self {
        let mut names = Self::default();
        tasks.into_iter().for_each(|task| names.add_task(&task.name, task.is_kernel_thread));
        names
    }

    /// Adds a task that the dump's own tables have.
    pub(super) fn add_task(&mut self, name: &str, is_kernel_thread: bool) {
        self.search.take();
        let names = if is_kernel_thread { &mut self.threads } else { &mut self.programs };
        names.insert(name.to_owned());
    }

    /// Whether a program has this name.
    pub(super) fn is_program(&self, name: &str) -> bool {
        self.programs.contains(name)
    }

    /// Whether this is the name of the host or of a task, which `replace` finds.
    pub(super) fn is_private(&self, name: &str) -> bool {
        [&self.hosts, &self.programs, &self.threads].into_iter().any(|names| names.contains(name))
    }

    /// Whether a kernel thread has this name, and no program.
    pub(super) fn is_thread(&self, name: &str) -> bool {
        !self.is_program(name) && (self.threads.contains(name) || is_kernel_thread(name))
    }

    /// Adds a host by its whole name, by the part before the first dot, and by its domain.
    pub(super) fn add_host(&mut self, name: &str) {
        if name == NO_HOST {
            return;
        }
        self.search.take();
        self.hosts.insert(name.to_owned());
        if let Some((short, domain)) = name.split_once('.') {
            self.hosts.extend([short.to_owned(), domain.to_owned()]);
        }
    }

    /// Adds what the tables have as it is: names of modules that are linked in or that a stack names, and the words of `text`.
    pub(super) fn add_known(&mut self, text: Option<&str>) {
        self.known.extend(text.into_iter().flat_map(str::split_whitespace).map(str::to_owned));
    }

    /// Replaces the names in a line by what `by` makes of them.
    pub(super) fn replace(&self, line: &str, by: impl Fn(Kind, &str) -> String) -> String {
        let all = [(Kind::Program, &self.programs), (Kind::Host, &self.hosts), (Kind::Thread, &self.threads)];
        let all =
            all.into_iter().flat_map(|(kind, names)| names.iter().map(move |name| (kind, name.as_str())));
        self.search.get_or_init(|| Search::new(all)).replace(line, by)
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
            self.add_modules(names.filter_map(|name| name.split('(').next()));
        }
        // `symbol+0x10/0x20 [module]`.
        let module = after("+0x").and_then(|rest| rest.split_once(" [")?.1.split([' ', ']']).next());
        self.add_modules(module.into_iter());
        let pairs = [blocked, lockup, killed, invoked, chosen].map(|pair| pair.map(|(name, _)| name));
        pairs.into_iter().chain([header, listed, fault]).for_each(|name| self.add(name));
    }

    /// Adds names of modules that a line has: they are identifiers of C.
    fn add_modules<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        self.known.extend(names.filter(is_name).map(str::to_owned));
    }

    /// Adds the name of a task that a line has: of a program, unless the dump has a kernel thread of this name, or the kernel gives
    /// such names to its threads.
    pub(super) fn add(&mut self, name: Option<&str>) {
        let name = name.map(str::trim).filter(|name| !name.is_empty() && !self.is_thread(name));
        if let Some(name) = name {
            self.add_task(name, false);
        }
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

/// Whether a name is one that the kernel gives its threads, and has no part that a site gave: kworkers have the names of workqueues,
/// threads of interrupts those of interfaces.
pub(super) fn is_plain_thread(name: &str) -> bool {
    let plain = |part: &str| {
        let part = part.trim_start_matches(['u', 'R']).trim_end_matches(['H', 'I']);
        is_allowed(part, Place::Text) || part.split('_').all(|word| is_allowed(word, Place::Text))
    };
    let rest = NUMBERED_THREADS.iter().find_map(|start| name.strip_prefix(start));
    THREADS.contains(&name)
        || is_kernel_thread(name)
            && !has_address(name)
            && rest.is_some_and(|rest| is_device(rest) || rest.split(['-', '+', ':', '/', '>']).all(plain))
}
