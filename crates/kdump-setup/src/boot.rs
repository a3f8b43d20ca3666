//! What the boot loader starts next.

use std::path::{Path, PathBuf};

use crate::root::Root;
use crate::shell;

/// Kernels of the next boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextBoot {
    /// Where they are configured.
    pub file: PathBuf,
    /// The `crashkernel=` parameters of each, without those of rescue entries. The default is the first, if `is_known`.
    pub entries: Vec<Vec<String>>,
    /// Whether the first entry is the default.
    pub is_known: bool,
}

impl NextBoot {
    /// Reads the boot loader's configuration. `None` if none is found, or may be read.
    pub(crate) fn read(root: &Root) -> Option<Self> {
        Self::of_entries(root).or_else(|| Self::of_grub(root))
    }

    /// Whether it is in GRUB's generated file, and not in entries of the Boot Loader Specification.
    pub(crate) fn is_grub(&self) -> bool {
        self.file.file_name().is_some_and(|name| name == "grub.cfg")
    }

    /// The default's parameters, as far as they are known.
    pub(crate) fn crashkernel(&self) -> Option<&[String]> {
        let first = self.entries.first()?;
        (self.is_known || self.entries.iter().all(|entry| entry == first)).then_some(first)
    }

    /// Entries of the Boot Loader Specification, as Fedora's GRUB and systemd-boot read them.
    fn of_entries(root: &Root) -> Option<Self> {
        let directories = ["/boot/loader/entries", "/boot/efi/loader/entries", "/efi/loader/entries"];
        let directory = directories.iter().find(|directory| !root.names(directory).is_empty())?;
        let environment = root.text("/boot/grub2/grubenv").unwrap_or_default();
        let variable = |name: &str| {
            environment
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
                .unwrap_or_default()
        };
        let mut names: Vec<String> = root
            .names(directory)
            .into_iter()
            .filter_map(|name| name.into_string().ok())
            .filter(|name| name.ends_with(".conf") && !name.contains("rescue"))
            .collect();
        names.sort();
        let saved = format!("{}.conf", variable("saved_entry"));
        let is_known = names.contains(&saved) || names.len() == 1;
        names.sort_by_key(|name| *name != saved);
        let entries: Vec<Vec<String>> = names
            .iter()
            .filter_map(|name| root.text(Path::new(directory).join(name)))
            .map(|text| {
                let options = text.lines().filter_map(|line| line.trim().strip_prefix("options"));
                let options = options.collect::<Vec<_>>().join(" ");
                crashkernel(&options.replace("$kernelopts", variable("kernelopts")))
            })
            .collect();
        (!entries.is_empty()).then(|| Self { file: directory.into(), entries, is_known })
    }

    fn of_grub(root: &Root) -> Option<Self> {
        let (file, text) = grub_config(root)?;
        let entries: Vec<Vec<String>> = text.lines().filter(|line| is_entry(line)).map(crashkernel).collect();
        let settings = root.read("/etc/default/grub").unwrap_or_default();
        let default = shell::assignments(&settings).0.remove("GRUB_DEFAULT");
        let is_known = default.is_none_or(|default| default == "0");
        (!entries.is_empty()).then(|| Self { file: file.into(), entries, is_known })
    }
}

/// GRUB's generated file, and what is in it.
pub(crate) fn grub_config(root: &Root) -> Option<(&'static str, String)> {
    ["/boot/grub/grub.cfg", "/boot/grub2/grub.cfg"]
        .into_iter()
        .find_map(|file| Some((file, root.text(file)?)))
}

/// Whether a line of `grub.cfg` loads a kernel, and not for a rescue.
pub(crate) fn is_entry(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next().is_some_and(|command| ["linux", "linux16", "linuxefi"].contains(&command))
        && !words.any(|word| matches!(word, "single" | "recovery" | "systemd.unit=rescue.target"))
}

pub(crate) fn crashkernel(line: &str) -> Vec<String> {
    let words = line.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
    words.filter(|word| word.starts_with("crashkernel=")).map(str::to_owned).collect()
}
