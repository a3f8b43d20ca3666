//! Probes at the begin and return of functions: dynamic trace events, made through tracefs and removed again.

use pagehaul_trace::TraceError;
use pagehaul_trace::live::Tracefs;

use crate::error::LatencyError;

const PREFIX: &str = "pagehaul_";

/// How the kernel is to catch functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    /// kprobe and kretprobe events: since 4.1 with every CONFIG_KPROBE_EVENTS.
    Kprobe,
    /// fprobe events, on top of ftrace: since 6.5 (334e5519c3757) with CONFIG_FPROBE_EVENTS.
    Fprobe,
}

impl ProbeKind {
    /// Returns the kind that this kernel offers.
    pub fn available(tracefs: &Tracefs) -> Option<Self> {
        if tracefs.root().join("kprobe_events").exists() {
            return Some(Self::Kprobe);
        }
        // The syntax of dynamic_events lists fprobes if they are built in.
        let readme = tracefs.read("README").unwrap_or_default();
        readme.contains("f[:[<group>/][<event>]] <func-name>[%return]").then_some(Self::Fprobe)
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe",
            Self::Fprobe => "fprobe",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe_events",
            Self::Fprobe => "dynamic_events",
        }
    }
}

/// Two events per function, removed when dropped. Instances that use them must be gone by then.
#[derive(Debug)]
pub struct Probes {
    tracefs: Tracefs,
    kind: ProbeKind,
    functions: Vec<String>,
    /// FunctionTimer that a glob matched but that cannot be probed, with the reason.
    skipped: Vec<(String, String)>,
}

impl Probes {
    /// Creates the events. If `all` is false, functions that the kernel rejects are skipped, unless none is
    /// left.
    ///
    /// # Errors
    /// [`LatencyError::Refused`].
    pub fn create(
        tracefs: &Tracefs,
        kind: ProbeKind,
        functions: Vec<String>,
        all: bool,
    ) -> Result<Self, LatencyError> {
        remove_orphans(tracefs);
        let active = max_active(functions.len());
        let mut probes = Self { tracefs: tracefs.clone(), kind, functions: Vec::new(), skipped: Vec::new() };
        for function in functions {
            match probes.add(&function, active) {
                Ok(()) => probes.functions.push(function),
                Err(error) => {
                    let why = reason(tracefs, &error);
                    if all {
                        return Err(LatencyError::Refused { function, why });
                    }
                    probes.skipped.push((function, why));
                }
            }
        }
        match (probes.functions.is_empty(), probes.skipped.first()) {
            (true, Some((function, why))) => {
                Err(LatencyError::Refused { function: function.clone(), why: why.clone() })
            }
            _ => Ok(probes),
        }
    }

    fn add(&self, function: &str, active: usize) -> Result<(), TraceError> {
        let number = self.functions.len();
        let (begin, end) = (event_name('b', number, function), event_name('e', number, function));
        let group = Self::group();
        // The stack pointer identifies the frame of a call: see `CallTracker::leave`.
        let (begin_line, end_line) = match self.kind {
            ProbeKind::Kprobe => (
                format!("p:{group}/{begin} {function} sp=$stack"),
                format!("r{active}:{group}/{end} {function} sp=$stack"),
            ),
            ProbeKind::Fprobe => (
                format!("f:{group}/{begin} {function} sp=$stack"),
                format!("f:{group}/{end} {function}%return sp=$stack"),
            ),
        };
        self.tracefs.append(self.kind.file(), &begin_line)?;
        self.tracefs.append(self.kind.file(), &end_line).inspect_err(|_| self.remove(&begin))
    }

    /// Returns the event group of this process.
    pub fn group() -> String {
        format!("{PREFIX}{}", std::process::id())
    }

    /// Returns the events at entry and return of each function, and the function.
    pub fn events(&self) -> impl Iterator<Item = (String, String, &str)> {
        self.functions.iter().enumerate().map(|(number, function)| {
            (event_name('b', number, function), event_name('e', number, function), function.as_str())
        })
    }

    /// Returns the functions that were skipped, with the reason.
    pub fn skipped(&self) -> &[(String, String)] {
        &self.skipped
    }

    /// Returns the kind of probes.
    pub fn kind(&self) -> ProbeKind {
        self.kind
    }

    /// Returns the calls that the probes missed, from `kprobe_profile`. fprobes have no such file.
    pub fn misses(&self) -> u64 {
        let Ok(profile) = self.tracefs.read("kprobe_profile") else { return 0 };
        // The file omits event groups: two pagehaul processes that probe the same function count for each
        // other.
        let ours = |name: &str| self.events().any(|(begin, end, _)| name == begin || name == end);
        let misses = |line: &str| {
            let mut words = line.split_whitespace();
            let (name, _, misses) = (words.next()?, words.next()?, words.next()?);
            if ours(name) { misses.parse::<u64>().ok() } else { None }
        };
        profile.lines().filter_map(misses).sum()
    }

    fn remove(&self, event: &str) {
        // The next process that creates probes removes what cannot be removed now.
        let _ = self.tracefs.append(self.kind.file(), &format!("-:{}/{event}", Self::group()));
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        for (begin, end, _) in self.events() {
            self.remove(&begin);
            self.remove(&end);
        }
    }
}

/// Returns the name of an event: `b3_vfs_read` at entry, `e3_vfs_read` at return.
fn event_name(which: char, number: usize, function: &str) -> String {
    // Suffixes of partial copies have dots, which event names must not have.
    let word: String = function.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let mut name = format!("{which}{number}_{word}");
    // MAX_EVENT_NAME_LEN in kernel/trace/trace_probe.h is 64, with the NUL.
    name.truncate(63);
    name
}

/// Parses the name of a probe event of any pagehaul process: whether it is an entry, and the function's name,
/// possibly truncated.
pub(crate) fn parse_event(system: &str, name: &str) -> Option<(bool, String)> {
    let known = system.is_empty() || system.starts_with(PREFIX);
    let begin = match name.as_bytes().first()? {
        b'b' => true,
        b'e' => false,
        _ => return None,
    };
    let (number, function) = name.get(1..)?.split_once('_')?;
    number.parse::<usize>().ok().filter(|_| known)?;
    Some((begin, function.to_owned()))
}

/// Returns the number of concurrent calls of a function that a kretprobe follows (maxactive). The kernel's
/// default, two per CPU, misses calls that sleep. Each costs some hundred bytes; the kernel's limit is 4096.
fn max_active(functions: usize) -> usize {
    (16_384 / functions.max(1)).clamp(64, 4096)
}

/// Removes probes of processes that were killed.
fn remove_orphans(tracefs: &Tracefs) {
    for file in ["kprobe_events", "dynamic_events"] {
        let Ok(list) = tracefs.read(file) else { continue };
        let orphans = list.lines().filter_map(|line| orphan(line, |pid| tracefs.owner_may_live(pid)));
        for name in orphans {
            let _ = tracefs.append(file, &format!("-:{name}"));
        }
    }
}

/// Returns group and name of a probe whose process is gone.
fn orphan(line: &str, may_live: impl FnOnce(u32) -> bool) -> Option<&str> {
    let name = line.split_whitespace().next()?.split_once(':')?.1;
    let pid: u32 = name.split_once('/')?.0.strip_prefix(PREFIX)?.parse().ok()?;
    (!may_live(pid)).then_some(name)
}

/// Returns the kernel's message about the last rejected command from `error_log` (since 5.2), else the error
/// number.
fn reason(tracefs: &Tracefs, error: &TraceError) -> String {
    let log = tracefs.read("error_log").unwrap_or_default();
    let message =
        log.lines().rev().find_map(|line| line.split_once("error: ").map(|(_, what)| what.trim().to_owned()));
    match message {
        Some(message) => message,
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_probes_of_the_dead_are_orphans() {
        // Process ids stay far below this one.
        fn is_orphan(line: &str) -> Option<&str> {
            orphan(line, |pid| pid == std::process::id())
        }
        assert_eq!(is_orphan("p:pagehaul_4294967295/b0 vfs_read sp=$stack"), Some("pagehaul_4294967295/b0"));
        assert_eq!(is_orphan("r64:pagehaul_4294967295/e0 vfs_read"), Some("pagehaul_4294967295/e0"));
        assert_eq!(is_orphan(&format!("p:{}/b0 vfs_read", Probes::group())), None);
        assert_eq!(is_orphan("p:kprobes/mine vfs_read"), None);
        assert_eq!(is_orphan(""), None);
    }

    #[test]
    fn names_of_events_tell_the_function() {
        let name = event_name('b', 12, "foo.isra.0");
        assert_eq!(name, "b12_foo_isra_0");
        assert_eq!(parse_event("pagehaul_77", &name), Some((true, "foo_isra_0".into())));
        assert_eq!(parse_event("pagehaul_77", "e0_vfs_read"), Some((false, "vfs_read".into())));
        assert_eq!(parse_event("kprobes", "e0_vfs_read"), None);
        assert_eq!(parse_event("", "b_vfs_read"), None);
        assert_eq!(event_name('e', 0, &"f".repeat(100)).len(), 63);
    }

    #[test]
    fn few_functions_get_more_room_for_sleepers() {
        assert_eq!(max_active(1), 4096);
        assert_eq!(max_active(100), 163);
        assert_eq!(max_active(1000), 64);
    }
}
