//! Replaces what may name a site, its machines and its people by keyed hashes: equal words stay equal, and without the key they
//! cannot be guessed.
//!
//! A word of the log stays only if it is on the allow list (`allowed.rs`) and no record of the dump says that it is a name
//! (`names.rs`), and neither it nor a part of it has the form of an address (`addresses.rs`, `embedded.rs`).

mod addresses;
mod allowed;
mod embedded;
mod names;
mod on_request;
#[cfg(feature = "owners")]
mod owners;
mod peers;
mod places;
mod report;
mod search;
mod task_names;

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pagehaul_facts::{Crash, Facts};
use sha2::{Digest, Sha256};

use addresses::kind_of;
use allowed::{Place, is_allowed, is_one_number, is_registers};
use embedded::{canonical, find, hashes};
use names::is_plain_thread;
pub use names::{Names, TaskName};
use peers::Lead;
use search::Kind;
pub use task_names::task_names;

/// Bytes of a key file that count.
const MAX_KEY: u64 = 1 << 20;
/// What takes the place of text that can hold anything.
pub const REMOVED: &str = "<redacted>";
/// What precedes text up to the end of its line: command lines of the kernel, numbers of devices.
const REST_OF_LINE: [&str; 4] =
    ["ommand line: ", "ommand line parameters ", "SerialNumber: ", "Serial Number: "];
/// Where the part of a call trace ends that ran on a stack: `</IRQ>`.
const STACKS: [&str; 5] = ["/IRQ", "/NMI", "/SOFTIRQ", "/TASK", "/#DF"];
/// Bytes that end a word.
const DELIMITERS: &str = "[](){}<>,;=\"'|";
/// Kinds of what was replaced.
const KINDS: [&str; 9] = ["address", "cgroup", "comm", "host", "ip", "mac", "path", "uuid", "word"];
/// The host name of a machine that was given none.
const NO_HOST: &str = "(none)";
/// Bytes that a key needs to be a secret.
const LEAST_KEY: usize = 16;

/// Why a file is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be read.
    #[error("cannot read the key {path}")]
    Read {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is a pipe, a device or a directory: the contents of a device are no secret, and those of a pipe come once or never.
    #[error("the key {path} is not a file; `head -c 32 /dev/urandom > FILE` makes one")]
    NoFile {
        /// What was named.
        path: PathBuf,
    },
    /// It is too short to be a secret.
    #[error("the key {path} has {bytes} bytes; it needs {LEAST_KEY}: `head -c 32 /dev/urandom` makes one")]
    Short { path: PathBuf, bytes: usize },
}

/// A key and what it does.
#[derive(Debug)]
pub struct Redaction {
    key: [u8; 32],
}

impl Redaction {
    /// Reads the key: the contents of any regular file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is none, or is too short to be a secret.
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        let failed = |source| KeyError::Read { path: path.to_owned(), source };
        // A pipe without a writer would block.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(KeyError::NoFile { path: path.to_owned() });
        }
        let mut bytes = Vec::new();
        file.take(MAX_KEY).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() < LEAST_KEY {
            return Err(KeyError::Short { path: path.to_owned(), bytes: bytes.len() });
        }
        Ok(Self { key: Sha256::digest(&bytes).into() })
    }

    /// Returns `KIND-` and a hash of the name.
    pub fn name(&self, kind: &str, name: &str) -> String {
        let hash = Sha256::new()
            .chain_update(self.key)
            .chain_update(kind)
            .chain_update([0])
            .chain_update(name)
            .finalize();
        let hex: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        format!("{kind}-{hex}")
    }

    /// Returns the hash of a host's name. A machine without one has `(none)`, which stays.
    pub fn host(&self, name: &str) -> String {
        if name == NO_HOST { name.to_owned() } else { self.name("host", name) }
    }

    /// Redacts the host, names of tasks, and the log. `tasks` are those that the dump has.
    pub fn facts(&self, facts: &mut Facts, tasks: &[TaskName]) {
        let mut names = Names::of_tasks(tasks);
        if let Some(host) = &facts.host {
            names.add_host(host);
        }
        let crash = facts.crash.as_ref();
        let lines = facts.log.iter().filter(|record| record.facility == 0).map(|record| record.text.as_str());
        lines.chain(crash.iter().flat_map(|crash| crash.text.lines())).for_each(|line| names.collect(line));
        names.add(crash.and_then(|crash| crash.task.as_deref()));
        names.add_known(facts.release.as_deref());
        names.add_known(facts.version.as_deref());
        for record in &mut facts.log {
            // Programs write what they like.
            record.text =
                if record.facility == 0 { self.text(&record.text, &names) } else { REMOVED.to_owned() };
        }
        facts.crash.iter_mut().for_each(|crash| self.crash(crash, &names));
        facts.host = facts.host.as_ref().map(|host| self.host(host));
    }

    /// Redacts a crash as the log has it.
    pub(crate) fn crash(&self, crash: &mut Crash, names: &Names) {
        crash.text = crash.text.lines().map(|line| self.text(line, names)).collect::<Vec<_>>().join("\n");
        crash.panic = crash.panic.as_ref().map(|text| self.text(text, names));
        crash.hardware = crash.hardware.as_ref().map(|text| self.text(text, names));
        crash.task = crash.task.as_ref().map(|task| self.task(task, names));
        if crash.signature.frames.is_empty() {
            crash.title = self.text(&crash.title, names);
        }
    }

    /// Redacts the name of a task: of a program, unless a kernel thread is known to have it.
    pub fn task(&self, name: &str, names: &Names) -> String {
        if names.is_thread(name) { self.kernel_name(name) } else { self.name("comm", name) }
    }

    /// Returns what the kernel calls a thread or a workqueue, without what a site gave: an NFS client's has the server's address.
    pub fn kernel_name(&self, name: &str) -> String {
        if is_plain_thread(name) { name.to_owned() } else { self.text(name, &Names::default()) }
    }

    /// Replaces the names that a dump's records gave.
    fn replace(&self, text: &str, names: &Names) -> String {
        names.replace(text, |kind, name| match kind {
            Kind::Program => self.name("comm", name),
            Kind::Host => self.name("host", name),
            Kind::Thread => self.kernel_name(name),
        })
    }

    /// Keeps of a line what is known to say nothing about a site, and replaces each other word by its hash.
    fn text(&self, line: &str, names: &Names) -> String {
        if is_environment(line) {
            return format!("    {REMOVED}");
        }
        let end = REST_OF_LINE.iter().find_map(|start| Some(line.find(start)? + start.len()));
        let (line, rest) = end.and_then(|end| line.split_at_checked(end)).unwrap_or((line, ""));
        let line = self.replace(&self.lookalikes(line, names), names);
        let is_end = |c: char| c.is_whitespace() || DELIMITERS.contains(c);
        let place = if is_registers(&line) { Place::Registers } else { Place::Text };
        let (mut out, mut quoted, mut after) = (String::with_capacity(line.len()), false, ' ');
        let (mut lead, mut done) = (Lead::Nothing, 0);
        for part in line.split_inclusive(is_end) {
            done += part.len();
            let whole = part.trim_end_matches(is_end);
            let core = whole.trim_end_matches(['.', ':', '!']);
            let place = if quoted || after == '=' { Place::Value } else { place };
            let following = line.get(done..).unwrap_or_default();
            out.push_str(&match self.glued(whole, core, place, names) {
                Some(redacted) => redacted,
                None => {
                    let end = whole.strip_prefix(core).unwrap_or_default();
                    self.named(core, lead, following, place, names) + end
                }
            });
            out.push_str(part.strip_prefix(whole).unwrap_or_default());
            if !core.is_empty() {
                lead = Lead::of(core);
            }
            after = part.chars().next_back().unwrap_or(' ');
            quoted ^= after == '"';
        }
        if !rest.is_empty() {
            out.push_str(REMOVED);
        }
        out
    }

    /// Replaces what looks like a hash already, but is a name: `host-525400123456`.
    fn lookalikes(&self, line: &str, names: &Names) -> String {
        let mut out = line.to_owned();
        for hash in hashes(line).iter().rev() {
            let name = line.get(hash.start..hash.end).unwrap_or_default();
            if !names.is_private(name) {
                out.replace_range(hash.start..hash.end, &self.name("word", name));
            }
        }
        out
    }

    /// Redacts a word that has addresses, or hashes that took the place of names: what is around them is judged without them.
    fn glued(&self, word: &str, core: &str, place: Place, names: &Names) -> Option<String> {
        let is_whole = kind_of(core).is_some_and(|kind| !["ip", "mac"].contains(&kind));
        if is_whole || names.known.contains(core) {
            return None;
        }
        self.addresses(word, |rest| {
            let (before, rest) = rest.split_at(rest.find(|c: char| c == '/' || c.is_alphanumeric())?);
            let rest_end = rest.trim_end_matches(|c: char| !c.is_alphanumeric());
            let after = rest.strip_prefix(rest_end).unwrap_or_default();
            let is_prefix = rest_end.strip_prefix('/').is_some_and(|size| size.parse::<u8>().is_ok());
            let rest = if is_prefix { rest_end.to_owned() } else { self.word(rest_end, place, names) };
            Some([before, &rest, after].concat())
        })
    }

    /// Replaces the addresses in a word, and what is around them by what `rest` makes of it. Returns None if there are none.
    fn addresses(&self, word: &str, rest: impl Fn(&str) -> Option<String>) -> Option<String> {
        let found = find(word);
        if found.is_empty() {
            return None;
        }
        let rest = |text: &str| rest(text).unwrap_or_else(|| text.to_owned());
        let mut parts = Vec::new();
        let mut done = 0;
        for part in found {
            parts.push(rest(word.get(done..part.start).unwrap_or_default()));
            let text = word.get(part.start..part.end).unwrap_or_default();
            parts.push(
                part.kind.map_or_else(|| text.to_owned(), |kind| self.name(kind, &canonical(kind, text))),
            );
            done = part.end;
        }
        parts.push(rest(word.get(done..).unwrap_or_default()));
        let mut out = String::new();
        for part in parts {
            // A hash stays one if it is read again.
            let touches = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            if touches(out.chars().next_back()) && touches(part.chars().next()) {
                out.push('-');
            }
            out.push_str(&part);
        }
        Some(out)
    }

    /// Redacts a word; if the one before it says that it names a machine, whatever its form.
    fn named(&self, word: &str, lead: Lead, following: &str, place: Place, names: &Names) -> String {
        let name = word.split([':', '/', '#', '%']).next().unwrap_or_default();
        let said_of = if name == word { following } else { "" };
        if lead.names(name, said_of) {
            let rest = word.strip_prefix(name).unwrap_or_default();
            // What an NFS server exports is a path.
            let path = rest.trim_start_matches(':');
            let colons = rest.strip_suffix(path).unwrap_or_default();
            return self.name("word", name) + colons + &self.word(path, place, names);
        }
        self.word(word, place, names)
    }

    fn word(&self, word: &str, place: Place, names: &Names) -> String {
        if STACKS.contains(&word) {
            return word.to_owned();
        }
        if let Some(kind) = kind_of(word) {
            return self.name(kind, word);
        }
        let keeps = |word: &str| {
            is_allowed(word, place) || is_hashed(word) || is_plain_thread(word) || names.known.contains(word)
        };
        if keeps(word) {
            return word.to_owned();
        }
        if word.contains("::") || place != Place::Registers && is_one_number(word) {
            return self.name("word", word);
        }
        // `node:0`, `CPU#1`, `CPUs/tasks`, `task:name`.
        let (mut out, mut lead) = (String::new(), Lead::Nothing);
        for part in word.split_inclusive([':', '#', '/']) {
            let core = part.trim_end_matches([':', '#', '/']);
            let stays = keeps(core) && !lead.names(core, "");
            out.push_str(&if stays { core.to_owned() } else { self.name("word", core) });
            // A slash joins what is listed, too.
            lead = if part.ends_with(':') { Lead::of(core) } else { Lead::Nothing };
            out.push_str(part.strip_prefix(core).unwrap_or_default());
        }
        out
    }
}

/// Whether a line is a word of the kernel's command line that init gets as an argument or in its environment: `    NAME=VALUE`.
fn is_environment(line: &str) -> bool {
    line.strip_prefix("    ").is_some_and(|word| word.contains('=') && !word.contains(char::is_whitespace))
}

/// Whether a word was replaced already.
fn is_hashed(word: &str) -> bool {
    word.split_once('-').is_some_and(|(kind, hash)| {
        KINDS.contains(&kind) && hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests;
