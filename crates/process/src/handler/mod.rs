//! The kernel's core handler: the program that `kernel.core_pattern` names.
//!
//! The kernel starts it for each process that dumps core, and keeps the process until the handler has taken the core, or
//! has closed its pipe. So the memory is copied at memory speed, the pipe is closed, and everything else comes after that: the
//! parent of the process goes on, and a service restarts.
//!
//! Data flows through the files in this order: [`crash`] (the command line), [`config`], [`facts`] (/proc), [`runtime`] (what
//! handlers share), [`store`] (room on the disk), [`head`] (the kernel's headers and notes), [`selection`] and [`source`] (which
//! memory, and from where), [`save`] (copy, pack, write), [`journal`], [`uploads`].

mod config;
mod crash;
mod facts;
mod head;
mod journal;
mod runtime;
mod save;
mod selection;
mod source;
mod store;
mod stream;
mod uploads;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagehaul_run::{Outcome, Progress};

pub use config::{CONFIG_FILE, Config, RECIPIENTS_FILE, Space};
pub use crash::Crash;
pub use save::Saved;
pub use uploads::upload;

use self::facts::Facts;
use self::head::Head;
use self::journal::{Entry, Priority};
use self::runtime::Runtime;
use self::save::Means;
use self::source::{Dying, Plan};
use self::store::Store;
use crate::arena::Arena;
use crate::error::ProcessError;
use crate::limits;
use crate::output::Target;
use crate::prepare::{GROWTH, TILES_PER_THREAD};
use crate::tiler::TILE_SIZE;

/// Writes a core that has the file name it is given: calls the function with where the core goes, once.
pub type Write<'a> =
    dyn Fn(&Path, &mut dyn FnMut(&Target) -> Result<Saved, ProcessError>) -> Result<Saved, String> + 'a;

/// What became of a crash.
#[derive(Debug, Clone, PartialEq)]
pub enum Handled {
    /// There is a core.
    Core(PathBuf, Saved),
    /// There is none, for this reason.
    None(String),
}

/// Takes the core of a crash from `input`, the kernel's pipe, and writes it with `write`. The journal gets an entry in any case.
/// `complaints` are about the configuration, and are journalled too.
pub fn handle(
    crash: &Crash,
    config: &Config,
    complaints: &[String],
    input: File,
    progress: &Progress,
    write: &Write<'_>,
) -> Handled {
    // If memory is short, the core is less important than all else.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    let facts = Facts::read(crash);
    let handled = match keep(crash, config, &facts, input, progress, write) {
        Ok((path, saved)) => {
            store::describe(&path, crash, &facts.executable);
            Handled::Core(path, saved)
        }
        Err(why) => Handled::None(why),
    };
    for complaint in complaints {
        // There is nobody to tell that there is no log.
        let _ = Entry::new(Priority::Critical, complaint).send(&config.journal);
    }
    let _ = entry(crash, &handled, facts).send(&config.journal);
    if let (Handled::Core(path, _), Ok(store)) = (&handled, Store::open(config)) {
        store.make_room(Some(path));
    }
    handled
}

/// Journals that the handler cannot do anything.
pub fn complain(config: &Config, what: &str) {
    let _ = Entry::new(Priority::Critical, what).send(&config.journal);
}

fn keep(
    crash: &Crash,
    config: &Config,
    facts: &Facts,
    mut input: File,
    progress: &Progress,
    write: &Write<'_>,
) -> Result<(PathBuf, Saved), String> {
    if let Some(why) = &config.refusal {
        return Err(format!("nothing is written in the clear: {why}"));
    }
    let page = crate::units::page_size();
    // The kernel does not apply the limit to pipes; 1 it takes for "none" itself (do_coredump(), fs/coredump.c).
    if crash.limit < page {
        return Err(format!("the process's RLIMIT_CORE is {} bytes", crash.limit));
    }
    let runtime = Runtime::open(&config.runtime);
    if let (Ok(runtime), Some(most)) = (&runtime, config.rate) {
        let program: &[u8] = if facts.executable.is_empty() { b"?" } else { &facts.executable };
        if runtime.admit(program, most).is_ok_and(|is_admitted| !is_admitted) {
            return Err(format!("its program had {most} cores within a minute (rate)"));
        }
    }
    let directory = config.directory.display();
    let store = Store::open(config).map_err(|error| format!("cannot create {directory}: {error}"))?;
    if let Some(why) = store.make_room(None) {
        return Err(why);
    }
    source::widen(&input);
    let head = Head::read(&mut input).map_err(|error| format!("cannot read the kernel's pipe: {error}"))?;
    let dying = match &head {
        Head::Elf(head) if config.from_process => Dying::find(crash.pid, crash.tid, head),
        _ => None,
    };
    let plan = Plan::new(input, head, dying, config.max_core.min(crash.limit));
    // More than there are CPUs only take memory.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = config.threads.map_or(cpus, |threads| threads.min(cpus));
    let least = (threads as u64 + 1) * TILES_PER_THREAD * TILE_SIZE;
    let wanted = plan.expected.saturating_add(plan.expected / GROWTH.0 + GROWTH.1).max(least);
    // What others have reserved counts twice in what is left, unless they have not touched it yet: half of it is added.
    let most = |others: u64| {
        let available = limits::half_of_available().saturating_add(others / 2);
        config.max_memory.map_or(available, |most| most.min(available))
    };
    // Without the directory, nobody knows what others have.
    let reserved = runtime.and_then(|runtime| runtime.reserve(wanted, least, most));
    let bytes = reserved.as_ref().map_or(least, |reserved| reserved.bytes);
    let arena = allocate(bytes).map_err(|error| format!("cannot allocate memory: {error}"))?;
    let extension = match (config.level, &config.recipients) {
        (Some(_), None) => ".zst",
        (Some(_), Some(_)) => ".zst.age",
        (None, Some(_)) => ".age",
        (None, None) => "",
    };
    let path = store.path(crash, &boot_id(), extension);
    let room = || store.make_room(Some(&path));
    let means = Means { level: config.level, threads, arena, progress, room: &room };
    let mut plan = Some(plan);
    let saved = write(&path, &mut |target| match plan.take() {
        Some(plan) => save::save(plan, target, &means),
        None => Err(ProcessError::NotWritten("a core is written once".into())),
    })?;
    Ok((path, saved))
}

/// Takes as much memory of `bytes` as can be had: what does not fit is streamed.
fn allocate(mut bytes: u64) -> io::Result<Arc<Arena>> {
    loop {
        match Arena::new(bytes as usize) {
            Err(_) if bytes > 2 * TILE_SIZE => bytes = (bytes / 2).max(2 * TILE_SIZE),
            result => return result,
        }
    }
}

/// The boot's number, without hyphens, as it is in the names of systemd-coredump's files.
fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().replace('-', "")
}

/// The journal's entry.
fn entry(crash: &Crash, handled: &Handled, facts: Facts) -> Entry {
    use std::os::unix::ffi::OsStrExt;
    let Crash { pid, uid, gid, signal, time, limit, host, comm, .. } = crash;
    let who = format!("Process {pid} ({}) of user {uid}", comm.to_string_lossy());
    let mut lines = match handled {
        Handled::Core(_, saved) => {
            let source = if saved.from_process { "its memory" } else { "the kernel's pipe" };
            let mut lines =
                format!("{who} dumped core.\n\nThe kernel could let it go after {:.3} s", saved.held);
            lines += &format!(
                " ({} bytes from {source}, buffer of {} bytes",
                saved.page_bytes, saved.buffer_bytes
            );
            lines += if saved.buffer_was_short { ", which was too small).\n" } else { ").\n" };
            if saved.unreadable_pages > 0 {
                lines += &format!("{} pages could not be read and read as zeros.\n", saved.unreadable_pages);
            }
            if saved.limited {
                lines += "Memory is left out: the core has reached its limit (max_core, RLIMIT_CORE).\n";
            }
            lines
        }
        Handled::None(why) => format!("{who} crashed. There is no core: {why}."),
    };
    if let Handled::Core(_, saved) = handled
        && let Some(why) = saved.outcome.why()
    {
        lines += &format!("The core is incomplete: {why}.\n");
    }
    let mut entry = Entry::new(Priority::Critical, lines.trim_end());
    let mut field =
        |name: &str, value: &dyn std::fmt::Display| entry.field(name, value.to_string().as_bytes());
    field("MESSAGE_ID", &journal::MESSAGE_ID);
    field("COREDUMP_PID", pid);
    field("COREDUMP_TID", &crash.tid);
    field("COREDUMP_UID", uid);
    field("COREDUMP_GID", gid);
    field("COREDUMP_SIGNAL", signal);
    field("COREDUMP_SIGNAL_NAME", &crash.signal_name());
    // In microseconds, of which the kernel gives none.
    field("COREDUMP_TIMESTAMP", &format_args!("{time}000000"));
    field("COREDUMP_RLIMIT", limit);
    if let Handled::Core(path, saved) = handled {
        entry.field("COREDUMP_FILENAME", path.as_os_str().as_bytes());
        if saved.limited || saved.outcome != Outcome::Complete {
            entry.field("COREDUMP_TRUNCATED", b"1");
        }
    }
    entry.field("COREDUMP_HOSTNAME", host.as_bytes());
    entry.field("COREDUMP_COMM", comm.as_bytes());
    facts.add(&mut entry);
    entry
}
