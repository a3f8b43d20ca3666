//! Probes at the begin and return of functions: dynamic trace events, made through tracefs and removed again.

use pagehaul_trace::TraceError;
use pagehaul_trace::live::Tracefs;

use crate::LatencyError;

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
    /// What this kernel offers.
    pub fn offered(tracefs: &Tracefs) -> Option<Self> {
        if tracefs.root().join("kprobe_events").exists() {
            return Some(Self::Kprobe);
        }
        // The list of what dynamic_events takes says whether it is built in.
        let readme = tracefs.read("README").unwrap_or_default();
        readme.contains("f[:[<group>/][<event>]] <func-name>[%return]").then_some(Self::Fprobe)
    }

    /// Its name.
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

/// Two events for each function. They are removed when this is dropped; instances that use them have to be gone by then.
#[derive(Debug)]
pub struct Probes {
    tracefs: Tracefs,
    kind: ProbeKind,
    functions: Vec<String>,
    /// Functions a glob meant, but that cannot be probed.
    refused: Vec<(String, String)>,
}

impl Probes {
    /// Makes the events. Where `all` is false, functions the kernel refuses are left out and noted, unless none is left.
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
        let mut probes = Self { tracefs: tracefs.clone(), kind, functions: Vec::new(), refused: Vec::new() };
        for function in functions {
            match probes.add(&function, active) {
                Ok(()) => probes.functions.push(function),
                Err(error) => {
                    let why = reason(tracefs, &error);
                    if all {
                        return Err(LatencyError::Refused { function, why });
                    }
                    probes.refused.push((function, why));
                }
            }
        }
        match (probes.functions.is_empty(), probes.refused.first()) {
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
        // The stack pointer tells the frames of a function apart: see `Calls::leave`.
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

    /// The subsystem of the events of this process.
    pub fn group() -> String {
        format!("{PREFIX}{}", std::process::id())
    }

    /// Names of the events at the begin and the return of each function, and the function.
    pub fn events(&self) -> impl Iterator<Item = (String, String, &str)> {
        self.functions.iter().enumerate().map(|(number, function)| {
            (event_name('b', number, function), event_name('e', number, function), function.as_str())
        })
    }

    /// Functions that were left out, and why.
    pub fn refused(&self) -> &[(String, String)] {
        &self.refused
    }

    /// What they are.
    pub fn kind(&self) -> ProbeKind {
        self.kind
    }

    /// Calls that the probes did not see, as `kprobe_profile` counts them. fprobes have no such list.
    pub fn misses(&self) -> u64 {
        let Ok(profile) = self.tracefs.read("kprobe_profile") else { return 0 };
        // The file names events without their group: two of us that time the same function count for each other.
        let ours = |name: &str| self.events().any(|(begin, end, _)| name == begin || name == end);
        let misses = |line: &str| {
            let mut words = line.split_whitespace();
            let (name, _, misses) = (words.next()?, words.next()?, words.next()?);
            if ours(name) { misses.parse::<u64>().ok() } else { None }
        };
        profile.lines().filter_map(misses).sum()
    }

    fn remove(&self, event: &str) {
        // What cannot be removed now is, by the next process that makes probes.
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

/// Name of an event: `b3_vfs_read` at the begin, `e3_vfs_read` at the return.
fn event_name(which: char, number: usize, function: &str) -> String {
    // Suffixes of optimised copies have dots, which names of events may not have.
    let word: String = function.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let mut name = format!("{which}{number}_{word}");
    // MAX_EVENT_NAME_LEN of kernel/trace/trace_probe.h is 64, its zero byte included.
    name.truncate(63);
    name
}

/// Whether an event is one of ours, of any process: begin or return, and the function's name as far as it fits.
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

/// Calls of one function that a kretprobe follows at a time. The kernel's own choice, two for each CPU, misses calls that
/// sleep; each costs some hundred bytes, and 4096 is the most it takes.
fn max_active(functions: usize) -> usize {
    (16_384 / functions.max(1)).clamp(64, 4096)
}

/// Removes probes of processes that were killed.
fn remove_orphans(tracefs: &Tracefs) {
    for file in ["kprobe_events", "dynamic_events"] {
        let Ok(list) = tracefs.read(file) else { continue };
        for name in list.lines().filter_map(orphan) {
            let _ = tracefs.append(file, &format!("-:{name}"));
        }
    }
}

/// The group and name of a probe whose process is gone.
fn orphan(line: &str) -> Option<&str> {
    let name = line.split_whitespace().next()?.split_once(':')?.1;
    let pid: u32 = name.split_once('/')?.0.strip_prefix(PREFIX)?.parse().ok()?;
    let gone = pid != std::process::id() && !std::path::Path::new("/proc").join(pid.to_string()).exists();
    gone.then_some(name)
}

/// What the kernel says about the last command it refused, in `error_log` (since 5.2); else the error number.
fn reason(tracefs: &Tracefs, error: &TraceError) -> String {
    let log = tracefs.read("error_log").unwrap_or_default();
    let said =
        log.lines().rev().find_map(|line| line.split_once("error: ").map(|(_, what)| what.trim().to_owned()));
    match said {
        Some(said) => said,
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_probes_of_the_dead_are_orphans() {
        // Process ids end far below this one.
        assert_eq!(orphan("p:pagehaul_4294967295/b0 vfs_read sp=$stack"), Some("pagehaul_4294967295/b0"));
        assert_eq!(orphan("r64:pagehaul_4294967295/e0 vfs_read"), Some("pagehaul_4294967295/e0"));
        assert_eq!(orphan(&format!("p:{}/b0 vfs_read", Probes::group())), None);
        assert_eq!(orphan("p:kprobes/mine vfs_read"), None);
        assert_eq!(orphan(""), None);
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
