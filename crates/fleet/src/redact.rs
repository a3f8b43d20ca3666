//! Replaces names and addresses of a site by keyed hashes: equal ones stay equal, and without the key they cannot be guessed.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, ensure};
use pagehaul_facts::Facts;
use sha2::{Digest, Sha256};

/// Bytes of a key file that count.
const MOST_KEY: u64 = 1 << 20;
/// What takes the place of text that can hold anything.
pub(crate) const REMOVED: &str = "<redacted>";
/// What precedes text up to the end of its line: command lines of the kernel, numbers of devices.
const REST_OF_LINE: [&str; 3] = ["ommand line: ", "SerialNumber: ", "Serial Number: "];
/// How names of kernel threads begin. They are the kernel's, and say much about a crash.
const KERNEL_THREADS: [&str; 12] = [
    "swapper",
    "kworker",
    "ksoftirqd",
    "migration",
    "kswapd",
    "rcu",
    "khungtaskd",
    "kthreadd",
    "watchdog",
    "jbd2",
    "xfs",
    "irq/",
];

/// A key and what it does.
#[derive(Debug)]
pub(crate) struct Redaction {
    key: [u8; 32],
}

impl Redaction {
    /// Reads the key: the contents of any file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is too short to be a secret.
    pub(crate) fn from_file(path: &Path) -> anyhow::Result<Self> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MOST_KEY).read_to_end(&mut bytes));
        read.with_context(|| format!("cannot read the key {}", path.display()))?;
        ensure!(bytes.len() >= 16, "the key {} has {} bytes; it needs 16", path.display(), bytes.len());
        Ok(Self { key: Sha256::digest(&bytes).into() })
    }

    /// Returns `KIND-` and a hash of the name.
    pub(crate) fn name(&self, kind: &str, name: &str) -> String {
        let hash = Sha256::new()
            .chain_update(self.key)
            .chain_update(kind)
            .chain_update([0])
            .chain_update(name)
            .finalize();
        let hex: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        format!("{kind}-{hex}")
    }

    /// Redacts the host, names of tasks, and the log.
    pub(crate) fn facts(&self, facts: &mut Facts) {
        let host = facts.host.clone().filter(|host| host.len() > 1);
        let mut names = Names { host, ..Names::default() };
        let crash = facts.crash.as_ref();
        let lines = facts.log.iter().map(|record| record.text.as_str());
        lines.chain(crash.iter().flat_map(|crash| crash.text.lines())).for_each(|line| names.collect(line));
        names.add(crash.and_then(|crash| crash.task.as_deref()));
        for record in &mut facts.log {
            // Programs write what they like.
            record.text =
                if record.facility == 0 { self.text(&record.text, &names) } else { REMOVED.to_owned() };
        }
        if let Some(crash) = &mut facts.crash {
            crash.text =
                crash.text.lines().map(|line| self.text(line, &names)).collect::<Vec<_>>().join("\n");
            crash.panic = crash.panic.as_ref().map(|text| self.text(text, &names));
            crash.task = crash.task.as_ref().map(|task| self.task(task));
            if crash.signature.frames.is_empty() {
                crash.title = self.text(&crash.title, &names);
            }
        }
        facts.host = facts.host.as_ref().map(|host| self.name("host", host));
    }

    /// Returns the name of a kernel thread as it is, and the hash of another.
    pub(crate) fn task(&self, name: &str) -> String {
        if is_kernel_thread(name) { name.to_owned() } else { self.name("comm", name) }
    }

    fn text(&self, line: &str, names: &Names) -> String {
        let mut line = line.to_owned();
        if let Some(end) = REST_OF_LINE.iter().find_map(|start| Some(line.find(start)? + start.len())) {
            line.truncate(end);
            return line + REMOVED;
        }
        for name in &names.tasks {
            line = replace_word(&line, name, &self.name("comm", name));
        }
        if let Some(host) = &names.host {
            line = replace_word(&line, host, &self.name("host", host));
        }
        let mut out = String::with_capacity(line.len());
        for part in line.split_inclusive(|c: char| c.is_whitespace() || "[](){}<>,;=\"'|".contains(c)) {
            let core = part.trim_end_matches(|c: char| c.is_whitespace() || "[](){}<>,;=\"'|.:!".contains(c));
            match kind_of(core) {
                Some(kind) => out.push_str(&self.name(kind, core)),
                None => out.push_str(core),
            }
            out.push_str(part.strip_prefix(core).unwrap_or_default());
        }
        out
    }
}

/// Names that a log mentions.
#[derive(Debug, Default)]
struct Names {
    host: Option<String>,
    tasks: BTreeSet<String>,
}

impl Names {
    /// Finds names of tasks where the kernel prints them.
    fn collect(&mut self, line: &str) {
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
        let pairs = [blocked, lockup, killed, invoked, chosen].map(|pair| pair.map(|(name, _)| name));
        pairs.into_iter().chain([header, listed, fault]).for_each(|name| self.add(name));
    }

    fn add(&mut self, name: Option<&str>) {
        let name = name.map(|name| name.trim()).filter(|name| !name.is_empty() && !is_kernel_thread(name));
        self.tasks.extend(name.map(str::to_owned));
    }
}

fn is_kernel_thread(name: &str) -> bool {
    KERNEL_THREADS.iter().any(|start| name.starts_with(start))
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

/// What a word identifies, if anything.
fn kind_of(word: &str) -> Option<&'static str> {
    let hex =
        |text: &str, digits: usize| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let groups = |separator: char, sizes: &[usize]| {
        word.split(separator).count() == sizes.len()
            && word.split(separator).zip(sizes).all(|(group, digits)| hex(group, *digits))
    };
    if groups(':', &[2; 6]) || groups('-', &[2; 6]) || groups(':', &[2; 20]) {
        return Some("mac");
    }
    if groups('-', &[8, 4, 4, 4, 12]) {
        return Some("uuid");
    }
    let address = word.split(['/', '%']).next().unwrap_or(word);
    let has_digit = address.bytes().any(|byte| byte.is_ascii_hexdigit());
    if has_digit && (address.parse::<IpAddr>().is_ok() || word.parse::<SocketAddr>().is_ok()) {
        return Some("ip");
    }
    if word.len() > 2 && (word.starts_with('/') || word.starts_with("//")) {
        return Some("path");
    }
    let (user, host) = word.split_once('@')?;
    (!user.is_empty() && !host.is_empty()).then_some("address")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redaction() -> Redaction {
        Redaction { key: [7; 32] }
    }

    fn text(line: &str) -> String {
        let mut names = Names { host: Some("db-7".into()), ..Names::default() };
        names.collect(line);
        redaction().text(line, &names)
    }

    #[test]
    fn what_identifies_a_site_is_hashed() {
        for (line, secret) in [
            ("CPU: 1 PID: 7 Comm: billing svc Not tainted 6.12", "billing"),
            ("INFO: task pay:roll:77 blocked for more than 120 seconds.", "pay:roll"),
            ("watchdog: BUG: soft lockup - CPU#0 stuck for 23s! [trader:99]", "trader"),
            ("Out of memory: Killed process 77 (ledger) total-vm:1kB", "ledger"),
            ("ledger invoked oom-killer: gfp_mask=0x1", "ledger"),
            ("[    123]     0   123    10   20    30    40   50   60      0 ledger", "ledger"),
            ("ledger[123]: segfault at 0 ip 00007f sp 00007f error 4", "ledger"),
            ("e1000 0000:00:03.0 eth0: (PCI:33MHz:32-bit) 52:54:00:12:34:56", "52:54:00"),
            ("nfs: server 10.1.2.3 not responding", "10.1.2.3"),
            ("nfs: server [fe80::5054:ff:fe12:3456]:2049 OK", "fe80::"),
            ("SRC=10.1.2.3:80 DST=2001:db8::1", "db8"),
            ("EXT4-fs (sda1): mounted /srv/customer", "customer"),
            ("Kernel command line: root=UUID=1 secret=1", "secret"),
            ("Linux version 6.12 (root@builder.example.org) (gcc 12)", "builder"),
            ("usb 1-1: SerialNumber: 123456", "123456"),
            ("netconsole: local host db-7 is up", "db-7"),
        ] {
            let redacted = text(line);
            assert!(!redacted.contains(secret), "{redacted}");
            assert_eq!(redacted, text(line));
        }
    }

    #[test]
    fn what_explains_the_crash_stays() {
        for line in [
            "RIP: 0010:demo_fill+0x5/0x40 [demo]",
            "pci 0000:00:1f.2: BAR 0 at 12:34:56",
            "CPU: 1 PID: 7 Comm: kworker/1:2 Not tainted 6.12.107 #1",
            "kernel BUG at fs/ext4/inode.c:123!",
            "core::panicking::panic_fmt",
            "? __pfx_kthread+0x10/0x10, a:b db-77 mydb-7x / //",
        ] {
            assert_eq!(text(line), line);
        }
    }

    #[test]
    fn another_key_gives_other_names() {
        let other = Redaction { key: [8; 32] };
        assert_ne!(other.name("host", "a"), redaction().name("host", "a"));
        assert_ne!(redaction().name("comm", "a"), redaction().name("host", "a"));
    }
}
