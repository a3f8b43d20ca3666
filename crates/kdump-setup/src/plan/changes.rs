//! A plan as lines of the distribution's files.

use std::path::PathBuf;

use serde::Serialize;

use super::{collector, edit};
use crate::config::{Config, Stack, Target};
use crate::facts::Facts;
use crate::root::Root;

/// What the lines are to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// `crashkernel=` parameters.
    pub crashkernel: Vec<String>,
    /// CPUs of the capture kernel.
    pub cpus: u32,
    /// The dump level.
    pub level: u8,
    /// makedumpfile's option of the codec; the configured one stays without it.
    pub codec: Option<&'static str>,
}

/// A file to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The file.
    pub path: PathBuf,
    /// Lines that it gets.
    pub lines: Vec<String>,
    /// What they are for.
    pub why: &'static str,
    /// Its text today; `None` if it does not exist.
    #[serde(skip)]
    pub before: Option<String>,
    /// Its text then.
    #[serde(skip)]
    pub after: String,
}

/// All that a plan changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// The files that differ from the plan.
    pub files: Vec<Change>,
    /// Commands that make the changes take effect, to be run afterwards.
    pub commands: Vec<String>,
}

const RESERVE: &str = "memory for the capture kernel";
const CPUS: &str = "CPUs of the capture kernel";
const COLLECT: &str = "pages and codec of the dump";
const OOPS: &str = "an oops is dumped, too";

/// Lists the changes that bring a distribution's files to the plan. None of them changes a file that is as planned.
pub fn changes(root: &Root, facts: &Facts, config: &Config, wanted: &Wanted) -> Changes {
    let mut files = Files { root, changes: Vec::new() };
    let collector = collector::planned(&config.collector, wanted.codec, wanted.level);
    let append = append(config, facts, wanted);
    let crashkernel = &*wanted.crashkernel;
    match config.stack {
        Stack::KdumpTools => {
            files.edit("/etc/default/grub.d/kdump-tools.cfg", RESERVE, |text| {
                edit::parameters(text, "GRUB_CMDLINE_LINUX_DEFAULT", "crashkernel=", crashkernel)
            });
            let file = config.stack.file();
            files.edit(file, "kdump is started", |text| edit::assign(text, "USE_KDUMP", "1"));
            if append != config.append {
                files.edit(file, CPUS, |text| edit::assign(text, "KDUMP_CMDLINE_APPEND", &append.join(" ")));
            }
            if let Some(words) = collector.filter(|words| *words != config.collector) {
                // Without the program. It begins with -F, or kdump-config adds it at the end.
                let mut options: Vec<&str> = words[1..].iter().map(String::as_str).collect();
                options.retain(|word| *word != "-F");
                let options = format!("-F {}", options.join(" "));
                files.edit(file, COLLECT, |text| edit::assign(text, "MAKEDUMP_ARGS", &options));
            }
        }
        Stack::KdumpUtils => {
            files.edit("/etc/default/grub", RESERVE, |text| {
                edit::parameters(text, "GRUB_CMDLINE_LINUX", "crashkernel=", crashkernel)
            });
            if append != config.append {
                let line = append.join(" ");
                files.edit("/etc/sysconfig/kdump", CPUS, |text| {
                    edit::assign(text, "KDUMP_COMMANDLINE_APPEND", &line)
                });
            }
            if let Some(mut words) = collector {
                // mkdumprd makes no initramfs without it.
                let streams = matches!(config.target, Target::Ssh { .. } | Target::Raw(_));
                if streams && !words.iter().any(|word| word == "-F") {
                    words.insert(1, "-F".into());
                }
                if words != config.collector {
                    files.edit(config.stack.file(), COLLECT, |text| {
                        edit::directive(text, "core_collector", &words.join(" "))
                    });
                }
            }
        }
        Stack::Suse => {
            files.edit("/etc/default/grub", RESERVE, |text| {
                edit::parameters(text, "GRUB_CMDLINE_LINUX_DEFAULT", "crashkernel=", crashkernel)
            });
            let file = config.stack.file();
            if config.capture_cpus() != Some(wanted.cpus) {
                files.edit(file, CPUS, |text| edit::assign(text, "KDUMP_CPUS", &wanted.cpus.to_string()));
            }
            if collector.is_some_and(|words| words != config.collector) {
                files.edit(file, COLLECT, |text| {
                    edit::assign(text, "KDUMP_DUMPLEVEL", &wanted.level.to_string())
                });
                if let Some(format) = wanted.codec.and_then(suse_format) {
                    files.edit(file, COLLECT, |text| edit::assign(text, "KDUMP_DUMPFORMAT", format));
                }
            }
        }
    }
    // kdump-config sets it itself when it loads the capture kernel; kdumpctl and openSUSE's scripts do not.
    if facts.panic_on_oops == Some(0) {
        files.edit("/etc/sysctl.d/60-pagehaul-kdump.conf", OOPS, |text| {
            let line = "kernel.panic_on_oops=1";
            if text.lines().any(|found| found == line) { text.to_owned() } else { format!("{text}{line}\n") }
        });
    }
    let reserves = files.changes.iter().any(|change| change.why.contains(RESERVE));
    let mut commands = Vec::new();
    if !files.changes.is_empty() {
        if reserves {
            commands.extend(boot_loader(config.stack, crashkernel));
        }
        commands.extend(config.stack.reload().split("; ").map(str::to_owned));
        if facts.panic_on_oops == Some(0) {
            commands.push("sysctl --system".into());
        }
        if reserves {
            commands.push("reboot".into());
        }
    }
    Changes { files: files.changes, commands }
}

/// The parameters of the capture kernel with the planned number of CPUs.
fn append(config: &Config, facts: &Facts, wanted: &Wanted) -> Vec<String> {
    let cpus = format!("nr_cpus={}", wanted.cpus);
    let mut words: Vec<String> = Vec::new();
    for word in &config.append {
        match word.split_once('=') {
            Some(("nr_cpus", _)) if words.contains(&cpus) => {}
            Some(("nr_cpus", _)) => words.push(cpus.clone()),
            // Set below where it is needed.
            Some(("disable_cpu_apicid", _)) if config.stack == Stack::KdumpTools => {}
            _ => words.push(word.clone()),
        }
    }
    if !words.contains(&cpus) {
        words.push(cpus);
    }
    // Fedora's and openSUSE's scripts append it themselves; Linux 6.9 (5c5682b9f87a) has no use for it.
    let needs_id = config.stack == Stack::KdumpTools && wanted.cpus > 1 && !facts.release.is_at_least(6, 9);
    if let Some(id) = facts.boot_apic_id.filter(|_| needs_id) {
        words.push(format!("disable_cpu_apicid={id}"));
    }
    words
}

fn suse_format(codec: &'static str) -> Option<&'static str> {
    Some(match codec {
        "-c" => "compressed",
        "-l" => "lzo",
        "-p" => "snappy",
        "-z" => "zstd",
        _ => return None,
    })
}

/// Commands that bring `crashkernel=` to the boot loader.
fn boot_loader(stack: Stack, crashkernel: &[String]) -> Vec<String> {
    match stack {
        Stack::KdumpTools => vec!["update-grub".into()],
        // Entries of installed kernels do not follow /etc/default/grub.
        Stack::KdumpUtils => {
            vec![format!(
                "grubby --update-kernel=ALL --remove-args=crashkernel --args=\"{}\"",
                crashkernel.join(" ")
            )]
        }
        Stack::Suse => vec!["grub2-mkconfig -o /boot/grub2/grub.cfg".into()],
    }
}

/// Files that are edited, one change each.
struct Files<'a> {
    root: &'a Root,
    changes: Vec<Change>,
}

impl Files<'_> {
    fn edit(&mut self, path: &str, why: &'static str, edit: impl Fn(&str) -> String) {
        if let Some(change) = self.changes.iter_mut().find(|change| change.path.as_os_str() == path) {
            change.after = edit(&change.after);
            change.lines = edit::new_lines(change.before.as_deref().unwrap_or_default(), &change.after);
            return;
        }
        let before = self.root.text(path);
        let old = before.as_deref().unwrap_or_default();
        let after = edit(old);
        if old != after {
            let lines = edit::new_lines(old, &after);
            self.changes.push(Change { path: path.into(), lines, why, before, after });
        }
    }
}
