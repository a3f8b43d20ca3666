//! What CRIU does not restore, without a word: it is found when processes are saved, and in the report and in the checkpoint.
//!
//! All of it is in [`LIST`]. What no file of /proc shows (docs/guide/src/processes.md has a table) cannot be found.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pagehaul_present::number::counted;
use serde::Deserialize;

use super::criu::Criu;
use super::options::Lost;
use super::tree::Process;
use crate::fork::descriptor_of;
use crate::mapping::{self, Mapping};
use crate::procfs::{self, Stat};
use crate::units::Pid;

/// A property that CRIU does not restore.
struct Property {
    name: &'static str,
    /// Its name in a sentence.
    what: &'static str,
    of: Of,
    /// The version that restores it.
    restored_by: Option<(u32, u32)>,
    /// What is otherwise after a restart.
    then: &'static str,
}

/// Who has a property.
enum Of {
    /// Mappings with one of the kernel's flags, unless they have the other one.
    Mappings([u8; 2], Option<[u8; 2]>),
    /// Threads of which this is true, whatever pagehaul has.
    Set(fn(&Thread) -> bool),
    /// Threads with another value than pagehaul: restarted, they have that of `pagehaul restart`.
    Threads(fn(&Thread) -> Option<String>),
    /// Processes with another value, in a file of /proc.
    Processes(&'static str),
    /// Descriptors of this kind that have something to read.
    Unread(&'static str),
}

const INHERITED: &str = "after a restart it is that of `pagehaul restart`";

/// By trials with CRIU 4.1.1 and the source of 4.2; `speculation` by the source only.
const LIST: [Property; 11] = [
    Property {
        name: "mseal",
        what: "seals (mseal)",
        of: Of::Mappings(*b"sl", None),
        restored_by: None,
        then: "not sealed after a restart",
    },
    Property {
        name: "mlock_onfault",
        what: "MLOCK_ONFAULT",
        of: Of::Mappings(*b"lf", None),
        restored_by: None,
        then: "a restart locks all pages in memory",
    },
    Property {
        name: "madv_wipeonfork",
        what: "MADV_WIPEONFORK",
        // The kernel gives it to all droppable memory.
        of: Of::Mappings(*b"wf", Some(*b"dp")),
        restored_by: Some((4, 2)),
        then: "children that are born after a restart get the contents",
    },
    Property {
        name: "map_droppable",
        what: "MAP_DROPPABLE",
        of: Of::Mappings(*b"dp", None),
        restored_by: Some((4, 2)),
        then: "ordinary memory after a restart, whose contents children get",
    },
    Property {
        name: "cpu_affinity",
        what: "CPU affinity",
        of: Of::Set(Thread::is_pinned),
        restored_by: None,
        then: INHERITED,
    },
    Property {
        name: "timer_slack",
        what: "timer slack (PR_SET_TIMERSLACK)",
        of: Of::Threads(Thread::timer_slack),
        restored_by: None,
        then: INHERITED,
    },
    Property {
        name: "io_priority",
        what: "I/O priority",
        of: Of::Threads(Thread::io_priority),
        restored_by: None,
        then: INHERITED,
    },
    Property {
        name: "speculation",
        what: "protection from speculation (PR_SET_SPECULATION_CTRL)",
        of: Of::Threads(Thread::speculation),
        restored_by: None,
        then: INHERITED,
    },
    Property {
        name: "coredump_filter",
        what: "coredump_filter",
        of: Of::Processes("coredump_filter"),
        restored_by: None,
        then: INHERITED,
    },
    Property {
        name: "personality",
        what: "personality",
        of: Of::Processes("personality"),
        restored_by: None,
        then: INHERITED,
    },
    Property {
        name: "inotify_events",
        what: "unread events",
        of: Of::Unread("anon_inode:inotify"),
        restored_by: None,
        then: "they are dropped, and only later ones are read after a restart",
    },
];

/// Whether flags of a mapping, each with a space after it, have one that CRIU may not restore. It is asked of each mapping while the
/// processes are frozen: it allocates nothing.
pub(super) fn has_any(flags: &str) -> bool {
    flags.as_bytes().as_chunks().0.iter().any(|[one, other, _space]| is_lost_with([*one, *other]))
}

fn is_lost_with(flag: [u8; 2]) -> bool {
    LIST.iter().any(|property| matches!(property.of, Of::Mappings(lost, _) if lost == flag))
}

/// Finds what processes lose. `flagged` has the lines of smaps of a process that [`has_any`] is true of; where it has none, its
/// smaps is read. Nothing is found of processes that have ended: see [`not_checked`].
pub(super) fn find<'a>(
    tree: &[Process],
    criu: &Criu,
    flagged: impl Fn(Pid) -> Option<&'a [u8]>,
) -> Vec<Lost> {
    let mappings = tree.iter().flat_map(|process| match flagged(process.pid) {
        Some(lines) => mapping::parse(lines).unwrap_or_default(),
        None => mapping::read(process.pid, process.pid).unwrap_or_default(),
    });
    let counts =
        |mapping: &Mapping| mapping.flags.iter().any(|flag| is_lost_with(*flag)) && !is_kernels(mapping);
    let mappings: Vec<Mapping> = mappings.filter(counts).collect();
    let threads: Vec<Thread> = tree.iter().flat_map(|process| Thread::all(process.pid)).collect();
    let me = std::process::id() as Pid;
    let own = Thread::read(me, me);
    let is_lost =
        |property: &&Property| property.restored_by.is_none_or(|version| !criu.is_at_least(version));
    let found = LIST.iter().filter(is_lost).filter_map(|property| {
        let (count, unit) = match property.of {
            Of::Mappings(flag, unless) => (with_flag(&mappings, flag, unless), "mapping"),
            Of::Set(is_set) => (threads.iter().filter(|thread| is_set(thread)).count(), "thread"),
            Of::Threads(value) => {
                let own = own.as_ref().and_then(value);
                let differs = |thread: &&Thread| value(thread).is_some_and(|value| Some(value) != own);
                (threads.iter().filter(differs).count(), "thread")
            }
            Of::Unread(kind) => {
                (tree.iter().map(|process| unread(process.pid, kind)).sum(), "inotify descriptor")
            }
            Of::Processes(file) => {
                let own = procfs::read_text(me, file).ok();
                let value = |process: &&Process| procfs::read_text(process.pid, file).ok();
                let differs = |process: &&Process| {
                    value(process).is_some_and(|value| !value.trim().is_empty() && Some(value) != own)
                };
                (tree.iter().filter(differs).count(), "process")
            }
        };
        (count > 0).then(|| Lost {
            property: property.name.to_owned(),
            count,
            note: sentence(property, count, unit, &criu.version),
        })
    });
    found.collect()
}

/// Returns a note where so many processes were left running and have ended.
pub(super) fn not_checked(ended: usize) -> Option<String> {
    let counted = with_unit(ended, "process");
    (ended > 0).then(|| {
        format!("{counted} ended after being saved: what CRIU does not restore of them was not looked for")
    })
}

fn with_unit(count: usize, unit: &str) -> String {
    match (unit, count) {
        ("process", 2..) => format!("{count} processes"),
        _ => counted(count as u64, unit),
    }
}

fn sentence(property: &Property, count: usize, unit: &str, version: &str) -> String {
    let counted = with_unit(count, unit);
    let Property { what, then, .. } = property;
    format!("CRIU {version} does not restore the {what} of {counted}: {then}")
}

/// Whether the kernel made a mapping, and makes it at a restart: newer kernels seal them (CONFIG_MSEAL_SYSTEM_MAPPINGS, Linux 6.16).
fn is_kernels(mapping: &Mapping) -> bool {
    let name = mapping.name.as_slice();
    let starts = |prefix: &[u8]| name.starts_with(prefix);
    !mapping.has_file()
        && (starts(b"[vdso") || starts(b"[vvar") || starts(b"[vectors") || starts(b"[uprobes"))
}

/// Descriptors of a process, of a kind that `/proc/PID/fd` names, that have something to read.
fn unread(pid: Pid, kind: &str) -> usize {
    let Ok(descriptors) = fs::read_dir(procfs::path(pid, "fd")) else { return 0 };
    let has_some = |entry: &fs::DirEntry| {
        let is_of_kind = fs::read_link(entry.path()).is_ok_and(|link| link == Path::new(kind));
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok()).filter(|_| is_of_kind);
        let descriptor = number.and_then(|number| descriptor_of(pid, number).ok());
        descriptor
            .is_some_and(|descriptor| rustix::io::ioctl_fionread(&descriptor).is_ok_and(|bytes| bytes > 0))
    };
    descriptors.flatten().filter(has_some).count()
}

fn with_flag(mappings: &[Mapping], flag: [u8; 2], unless: Option<[u8; 2]>) -> usize {
    let counts = |mapping: &&Mapping| mapping.has(&flag) && !unless.is_some_and(|flag| mapping.has(&flag));
    mappings.iter().filter(counts).count()
}

/// A thread, and what its `status` has.
struct Thread {
    pid: Pid,
    tid: Pid,
    status: String,
}

impl Thread {
    fn all(pid: Pid) -> Vec<Self> {
        let threads = procfs::threads(pid).unwrap_or_default();
        threads.into_iter().filter_map(|tid| Self::read(pid, tid)).collect()
    }

    fn read(pid: Pid, tid: Pid) -> Option<Self> {
        let status = procfs::read_text(pid, &format!("task/{tid}/status")).ok()?;
        Some(Self { pid, tid, status })
    }

    fn line(&self, key: &str) -> Option<&str> {
        self.status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
    }

    /// Whether it may not run on all CPUs that it could have: those of its cpuset, or all that are online. What pagehaul may run on is no
    /// measure: that of the `pagehaul restart` to come is not known.
    fn is_pinned(&self) -> bool {
        let allowed = self.line("Cpus_allowed_list:").and_then(Cpus::parse);
        let possible = cpuset(self.pid).or_else(online).as_deref().and_then(Cpus::parse);
        allowed.zip(possible).is_some_and(|(allowed, possible)| !allowed.has_all(&possible))
    }

    /// None for real-time threads, whose timers have none.
    fn timer_slack(&self) -> Option<String> {
        let is_real_time = matches!(self.stat()?.policy, libc::SCHED_FIFO | libc::SCHED_RR);
        let slack = if is_real_time { None } else { procfs::read_text(self.tid, "timerslack_ns").ok() };
        slack.filter(|slack| !slack.trim().is_empty())
    }

    /// None for the one that follows from the nice value, which CRIU restores.
    fn io_priority(&self) -> Option<String> {
        // `IOPRIO_WHO_PROCESS`, `IOPRIO_CLASS_SHIFT` and `IOPRIO_CLASS_BE` of include/uapi/linux/ioprio.h.
        const WHO_PROCESS: libc::c_int = 1;
        const CLASS_SHIFT: u32 = 13;
        const BEST_EFFORT: i64 = 2;
        // SAFETY: numbers only.
        let value = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, self.tid) };
        let of_nice = (BEST_EFFORT << CLASS_SHIFT) + (self.stat()?.nice + 20) / 5;
        (value >> CLASS_SHIFT > 0 && value != of_nice).then(|| value.to_string())
    }

    /// What it has switched off for itself: "thread mitigated", "conditional disabled" and the like. None for threads with seccomp
    /// filters, which set it on kernels before 5.16, at a restart as well.
    fn speculation(&self) -> Option<String> {
        if self.line("Seccomp:") != Some("0") {
            return None;
        }
        let [store, branch] =
            ["Speculation_Store_Bypass:", "SpeculationIndirectBranch:"].map(|key| self.line(key));
        Some(format!("{}, {}", store?, branch.unwrap_or_default()))
    }

    fn stat(&self) -> Option<Stat> {
        Stat::read(self.pid, self.tid).ok()
    }
}

/// A list of CPUs.
#[derive(Debug, PartialEq, Eq)]
struct Cpus(Vec<Range<u64>>);

impl Cpus {
    /// Reads a list as the kernel prints it, such as `0-3,8`. None if it is another text.
    fn parse(list: &str) -> Option<Self> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?)
        };
        list.trim().split(',').map(range).collect::<Option<_>>().map(Self)
    }

    /// Whether it has all that another list has. The kernel joins neighbours, so that each range lies in one.
    fn has_all(&self, other: &Self) -> bool {
        let has =
            |range: &Range<u64>| self.0.iter().any(|own| own.start <= range.start && range.end <= own.end);
        other.0.iter().all(has)
    }
}

/// The CPUs that are online.
fn online() -> Option<String> {
    std::fs::read_to_string("/sys/devices/system/cpu/online").ok()
}

/// The CPUs of a process's cpuset that are online: in cgroup v2, those of the next directory upwards that has some.
fn cpuset(pid: Pid) -> Option<String> {
    let text = procfs::read_text(pid, "cgroup").ok()?;
    let of = |root: &str, path: &str, name: &str| {
        let own: PathBuf = Path::new(root).join(path);
        let mut directories = own.ancestors().take_while(|directory| directory.starts_with(root));
        directories.find_map(|directory| std::fs::read_to_string(directory.join(name)).ok())
    };
    let second = text.lines().find_map(|line| line.strip_prefix("0::/"));
    let first = || {
        let lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(":/"));
        let mut paths = lines.filter(|(names, _)| names.split(',').any(|name| name == "cpuset"));
        of("/sys/fs/cgroup/cpuset", paths.next()?.1, "cpuset.effective_cpus")
    };
    second.and_then(|path| of("/sys/fs/cgroup", path, "cpuset.cpus.effective")).or_else(first)
}

/// What a checkpoint says of it. Nothing in those of versions that did not write it down.
pub(super) fn of(about: &serde_json::Value) -> Vec<Lost> {
    let all = about["lost"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter_map(|lost| Lost::deserialize(lost).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify;

    #[test]
    fn flags_that_are_lost_are_found_among_others() {
        assert!(has_any("rd wr sl ") && has_any("lf ") && !has_any("rd wr lo ac dd ") && !has_any(""));
    }

    #[test]
    fn seals_of_the_kernels_own_mappings_do_not_count() {
        let lines = b"1000-2000 r-xp 0 00:00 0    [vdso]\nVmFlags: rd ex sl \n\
                      3000-4000 r--p 0 00:00 0    [vvar_vclock]\nVmFlags: rd sl \n\
                      5000-6000 rw-p 0 00:00 0    [anon:a]\nVmFlags: rd wr wf dp sl \n\
                      7000-8000 r-xp 0 08:01 9    [vdso]\nVmFlags: rd ex sl \n";
        let all: Vec<Mapping> = mapping::parse(lines).unwrap();
        let own: Vec<Mapping> = all.into_iter().filter(|mapping| !is_kernels(mapping)).collect();
        assert_eq!(with_flag(&own, *b"sl", None), 2);
        assert_eq!((with_flag(&own, *b"wf", None), with_flag(&own, *b"wf", Some(*b"dp"))), (1, 0));
    }

    #[test]
    fn lists_of_cpus_are_compared_by_what_they_have() {
        let has = |own: &str, other: &str| Cpus::parse(own).unwrap().has_all(&Cpus::parse(other).unwrap());
        // Unpinned threads have all possible CPUs, online or not.
        assert!(has("0-63\n", "0-1") && has("0-3,8", "1,8") && has("5", "5"));
        assert!(!has("0", "0-1") && !has("0-3,8", "0-3,8-9") && !has("2-3", "0-1"));
        assert_eq!((Cpus::parse(""), Cpus::parse("a"), Cpus::parse("1-")), (None, None, None));
    }

    #[test]
    fn events_that_nobody_has_read_are_found() {
        let me = std::process::id() as Pid;
        let directory = tempfile::tempdir().unwrap();
        let events = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&events, directory.path(), inotify::WatchFlags::CREATE).unwrap();
        assert_eq!(unread(me, "anon_inode:inotify"), 0);
        fs::write(directory.path().join("new"), "").unwrap();
        assert_eq!(unread(me, "anon_inode:inotify"), 1);
        rustix::io::read(&events, &mut [0; 4096]).unwrap();
        assert_eq!(unread(me, "anon_inode:inotify"), 0);
    }

    #[test]
    fn checkpoints_without_a_record_have_none() {
        let record = serde_json::json!({"lost": [
            {"property": "mseal", "count": 3, "note": "a"}, {"property": 7}, "x", {"count": 1}
        ]});
        let lost = Lost { property: "mseal".into(), count: 3, note: "a".into() };
        assert_eq!(of(&record), [lost]);
        for none in [serde_json::json!({}), serde_json::json!({"lost": 7}), serde_json::Value::Null] {
            assert_eq!(of(&none), []);
        }
    }

    #[test]
    fn a_sentence_has_what_is_lost_and_what_follows() {
        let of = |index: usize, count, unit| sentence(&LIST[index], count, unit, "4.2");
        assert_eq!(
            of(0, 1, "mapping"),
            "CRIU 4.2 does not restore the seals (mseal) of 1 mapping: not sealed after a restart"
        );
        assert!(
            of(9, 2, "process").starts_with("CRIU 4.2 does not restore the personality of 2 processes: ")
        );
    }
}
