//! A plan as lines of the distribution's files.

use std::io::ErrorKind;
use std::path::PathBuf;

use serde::Serialize;

use super::collector;
use super::cpus;
use super::edit::{self, Refused, Wanted, Wanted::Words};
use crate::config::{Config, Stack, SuseSettings};
use crate::facts::Facts;
use crate::root::Root;

/// What the lines are to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
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
    pub path: PathBuf,
    /// Lines that it gets.
    pub lines: Vec<String>,
    /// What they are for.
    pub why: &'static str,
    /// Its bytes today; `None` if it does not exist.
    #[serde(skip)]
    pub before: Option<Vec<u8>>,
    /// Its bytes then.
    #[serde(skip)]
    pub after: Vec<u8>,
}

/// A file that is not changed, because it is not understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ByHand {
    pub path: PathBuf,
    /// Why it is not changed.
    pub reason: String,
    /// The line to add by hand.
    pub line: String,
    /// What it is for.
    pub why: &'static str,
}

/// All that a plan changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// The files that differ from the plan.
    pub files: Vec<Change>,
    /// What is left to be changed by hand.
    pub by_hand: Vec<ByHand>,
    /// Commands that make the changes take effect, to be run afterwards.
    pub commands: Vec<String>,
}

const GRUB: &str = "/etc/default/grub";
const GRUB_KDUMP_TOOLS: &str = "/etc/default/grub.d/kdump-tools.cfg";
const SYSCTL: &str = "/etc/sysctl.d/60-pagehaul-kdump.conf";

/// All files that a plan may change.
pub(crate) const FILES: [&str; 6] = [
    GRUB,
    GRUB_KDUMP_TOOLS,
    SYSCTL,
    Stack::KdumpTools.file(),
    Stack::KdumpUtils.file(),
    // Fedora's settings of the capture kernel's command line have the same name.
    Stack::Suse.file(),
];

const RESERVE: &str = "memory for the capture kernel";
const COLLECT: &str = "pages and codec of the dump";
const OOPS: &str = "an oops is dumped, too";

/// Lists the changes that bring a distribution's files to the plan. None of them changes a file that is as planned.
pub fn changes(root: &Root, facts: &Facts, config: &Config, wanted: &Settings) -> Changes {
    let mut files = Files { root, changes: Vec::new(), by_hand: Vec::new() };
    let unclear = config.unclear_collector();
    let collector = match unclear {
        Some(_) => collector::default(config, wanted.codec, wanted.level),
        None => collector::planned(&config.collector, wanted.codec, wanted.level),
    };
    let crashkernel = &*wanted.crashkernel;
    match config.stack {
        Stack::KdumpTools => {
            files.reserve(GRUB_KDUMP_TOOLS, "GRUB_CMDLINE_LINUX_DEFAULT", crashkernel);
            let file = config.stack.file();
            files.assign(file, "kdump is started", "USE_KDUMP", Wanted::Value("1"));
            cpus::plan(&mut files, config, facts, wanted.cpus);
            if collector != config.collector {
                // Without the program. It begins with -F, or kdump-config adds it at the end.
                let mut options: Vec<&str> = collector.iter().skip(1).map(String::as_str).collect();
                options.retain(|word| *word != "-F");
                let options = format!("-F {}", options.join(" "));
                match unclear {
                    Some(reason) => {
                        files.leave(file, COLLECT, reason, format!("MAKEDUMP_ARGS=\"{options}\""))
                    }
                    None => files.assign(file, COLLECT, "MAKEDUMP_ARGS", Wanted::Value(&options)),
                }
            }
        }
        Stack::KdumpUtils => {
            files.reserve(GRUB, "GRUB_CMDLINE_LINUX", crashkernel);
            cpus::plan(&mut files, config, facts, wanted.cpus);
            let mut words = collector;
            // mkdumprd makes no initramfs without it.
            if config.streams() && !words.iter().any(|word| word == "-F") {
                words.insert(words.len().min(1), "-F".into());
            }
            let value = words.join(" ");
            let line = format!("core_collector {value}");
            match unclear {
                Some(reason) => files.leave(config.stack.file(), COLLECT, reason, line),
                // An edit refuses a file with CR and LF.
                None if words != config.collector || config.carriage_return.is_some() => {
                    files.edit(config.stack.file(), COLLECT, line, |text| {
                        edit::directive(text, "core_collector", &value)
                    });
                }
                None => {}
            }
        }
        Stack::Suse => {
            files.reserve(GRUB, "GRUB_CMDLINE_LINUX_DEFAULT", crashkernel);
            let file = config.stack.file();
            cpus::plan_suse(&mut files, config, wanted.cpus);
            let is_filtered = config.collector.first().is_some_and(|program| program == "makedumpfile");
            let suse = config.suse.as_ref();
            if let Some(reason) = unclear {
                let line = if suse.is_some_and(|suse| suse.transfer.is_some()) {
                    format!("{}=\"\"", Stack::SUSE_TRANSFER)
                } else if is_filtered {
                    format!("MAKEDUMPFILE_OPTIONS=\"{}\"", config.further_options().0.join(" "))
                } else {
                    let planned = wanted.codec.and_then(suse_format).unwrap_or("compressed");
                    format!("{}=\"{planned}\"", Stack::SUSE_FORMAT)
                };
                files.leave(file, COLLECT, reason, line);
            }
            // What the scripts take instead may be as planned already.
            let is_replaced = suse.is_some_and(SuseSettings::replaces_collector);
            if is_filtered && (is_replaced || collector != config.collector) {
                let level = wanted.level.to_string();
                files.assign(file, COLLECT, "KDUMP_DUMPLEVEL", Wanted::Value(&level));
                if let Some(format) = wanted.codec.and_then(suse_format) {
                    files.assign(file, COLLECT, Stack::SUSE_FORMAT, Wanted::Value(format));
                }
            }
        }
    }
    // kdump-config sets it itself when it loads the capture kernel; kdumpctl and openSUSE's scripts do not.
    if facts.panic_on_oops == Some(0) {
        let line = "kernel.panic_on_oops=1";
        files.edit(SYSCTL, OOPS, line.into(), |text| {
            let has_it = text.split(|byte| *byte == b'\n').any(|found| found == line.as_bytes());
            Ok(if has_it { text.to_vec() } else { [text, line.as_bytes(), b"\n"].concat() })
        });
    }
    let reserves = files.changes.iter().any(|change| change.why == RESERVE)
        || files.by_hand.iter().any(|left| left.why == RESERVE);
    let mut commands = Vec::new();
    if !files.changes.is_empty() || !files.by_hand.is_empty() {
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
    Changes { files: files.changes, by_hand: files.by_hand, commands }
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
pub(super) struct Files<'a> {
    root: &'a Root,
    changes: Vec<Change>,
    by_hand: Vec<ByHand>,
}

impl Files<'_> {
    /// Puts `crashkernel=` into a variable of the boot loader's settings.
    fn reserve(&mut self, path: &str, key: &str, crashkernel: &[String]) {
        let absent = format!("${key} {}", crashkernel.join(" "));
        let wanted = Words { old: &["crashkernel="], new: crashkernel, absent: &absent };
        self.assign(path, RESERVE, key, wanted);
    }

    pub(super) fn assign(&mut self, path: &str, why: &'static str, key: &str, wanted: Wanted<'_>) {
        let value = match wanted {
            Wanted::Value(value) => value,
            Words { absent, .. } => absent,
        };
        self.edit(path, why, format!("{key}=\"{value}\""), |text| edit::assign(text, key, wanted));
    }

    /// Leaves a line to be added by hand.
    fn leave(&mut self, path: &str, why: &'static str, reason: String, line: String) {
        self.by_hand.push(ByHand { path: path.into(), reason, line, why });
    }

    pub(super) fn edit(
        &mut self,
        path: &str,
        why: &'static str,
        line: String,
        edit: impl Fn(&[u8]) -> Result<Vec<u8>, Refused>,
    ) {
        let planned = self.changes.iter().position(|change| change.path.as_os_str() == path);
        let before = match planned.and_then(|at| self.changes.get(at)) {
            Some(change) => Ok(Some(change.after.clone())),
            None => match self.root.read(path) {
                Ok(text) => Ok(Some(text)),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error.to_string()),
            },
        };
        let edited = before.and_then(|before| {
            let after = edit(before.as_deref().unwrap_or_default()).map_err(|refused| refused.to_string())?;
            Ok((before, after))
        });
        let (before, after) = match edited {
            Ok(edited) => edited,
            Err(reason) => return self.leave(path, why, reason, line),
        };
        if let Some(change) = planned.and_then(|at| self.changes.get_mut(at)) {
            change.lines = edit::new_lines(change.before.as_deref().unwrap_or_default(), &after);
            change.after = after;
        } else if before.as_deref().unwrap_or_default() != after {
            let lines = edit::new_lines(before.as_deref().unwrap_or_default(), &after);
            self.changes.push(Change { path: path.into(), lines, why, before, after });
        }
    }
}
