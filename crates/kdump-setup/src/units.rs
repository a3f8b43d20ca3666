//! systemd's units that load the capture kernel, and that write the dump.

use std::path::{Path, PathBuf};

use crate::config::Stack;
use crate::root::Root;

/// Where units are, the most important first (`systemd.unit(5)`).
const DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// A unit of a distribution's kdump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    pub name: &'static str,
    /// Whether it must be started at boot.
    pub at_boot: bool,
    pub file: Option<PathBuf>,
    /// The link or empty file that masks it.
    pub masked: Option<PathBuf>,
    /// The link that starts it at boot.
    pub enabled: Option<PathBuf>,
    /// What it starts, if that is not there or not executable.
    pub broken_program: Option<PathBuf>,
}

/// What systemd does at boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Units {
    /// The units of the distribution's kdump.
    pub units: Vec<Unit>,
    /// The target of a boot without parameters.
    pub default_target: Option<String>,
}

impl Units {
    /// Reads the units of a distribution's kdump. `None` if no directory of units is there.
    pub(crate) fn read(root: &Root, stack: Stack) -> Option<Self> {
        if !DIRECTORIES.iter().any(|directory| root.exists(directory)) {
            return None;
        }
        let names: &[(&str, bool)] = match stack {
            // The second is what the capture kernel boots.
            Stack::KdumpTools => &[("kdump-tools.service", true), ("kdump-tools-dump.service", false)],
            Stack::KdumpUtils | Stack::Suse => &[("kdump.service", true)],
        };
        let units = names.iter().map(|(name, at_boot)| unit(root, name, *at_boot)).collect();
        let target = find(root, "default.target").and_then(|path| root.canonical(path));
        let default_target = target.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        Some(Self { units, default_target })
    }
}

fn unit(root: &Root, name: &'static str, at_boot: bool) -> Unit {
    let masked = ["/etc/systemd/system", "/run/systemd/system"]
        .iter()
        .map(|of| Path::new(of).join(name))
        .find(|path| {
            let is_empty = root.stat(path).is_some_and(|found| found.st_size == 0);
            root.link(path).is_some_and(|target| target == Path::new("/dev/null"))
                || (root.link(path).is_none() && is_empty)
        });
    let enabled = DIRECTORIES.iter().find_map(|directory| {
        let mut names = root.names(directory);
        names.sort();
        let starts = names.into_iter().filter(|of| {
            let of = of.to_string_lossy();
            of.ends_with(".wants") || of.ends_with(".requires")
        });
        starts
            .map(|of| Path::new(directory).join(of).join(name))
            .find(|path| root.link(path).is_some() || root.exists(path))
    });
    let file = find(root, name);
    let broken_program = file.as_ref().and_then(|file| broken_program(root, file));
    Unit { name, at_boot, file, masked, enabled, broken_program }
}

/// The program of the first `ExecStart=` of a unit's file (`systemd.service(5)`), if it cannot be run. Files that add to the unit are
/// not read: they replace it rarely.
fn broken_program(root: &Root, file: &Path) -> Option<PathBuf> {
    let text = root.text(file)?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("ExecStart="))?;
    let word = line.split_whitespace().next()?.trim_start_matches(['@', '-', ':', '+', '!', '|']);
    let path = Path::new(word).is_absolute().then(|| PathBuf::from(word))?;
    let is_executable = root.stat(&path).is_some_and(|found| found.st_mode & 0o111 != 0);
    (!is_executable).then_some(path)
}

fn find(root: &Root, name: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(|path| root.exists(path))
}
