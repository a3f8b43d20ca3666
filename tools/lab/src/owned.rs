//! Guests whose memory has known owners: processes, cgroups, files, and keys of all kinds.

use crate::workload::Step;
use crate::{Config, Crash};
use anyhow::{Context, Result};
use std::fs;

/// Time limit of a script. Argon2 takes some seconds of a CPU that QEMU translates.
const TIME_LIMIT: u64 = 180;

/// A guest that gives pages with patterns to processes, cgroups and files, on XFS and in swap too, and crashes.
pub fn with_patterns(kernel: &str) -> Config {
    Config {
        kernel: kernel.into(),
        cpus: 1,
        fill: 20,
        scenario: Some("patterns".into()),
        prepare: vec![step("owners", include_str!("../scenarios/owners.sh"))],
        packages: ["mount", "xfsprogs"].map(str::to_owned).into(),
        // The first whose cryptsetup leaves a volume key in a keyring.
        suite: "trixie",
        ..Config::default()
    }
}

/// The same guest with keys, and a LUKS disk that cryptsetup made. What it printed of the disk is in `out/luks.stdout`.
pub fn with_keys(kernel: &str) -> Config {
    let mut config = with_patterns(kernel);
    config.scenario = Some("keys".into());
    config.prepare.push(step("luks", include_str!("../scenarios/luks.sh")));
    config.packages.extend(["cryptsetup-bin", "dmsetup", "e2fsprogs"].map(str::to_owned));
    config
}

/// The LUKS disk of a guest [with keys](with_keys), as cryptsetup describes it.
#[derive(Debug)]
pub struct Luks {
    /// Name of the device that is decrypted.
    pub device: String,
    /// Its table, which names the key in a keyring.
    pub table: String,
    /// The volume key.
    pub key: Vec<u8>,
}

impl Luks {
    /// Reads what the guest's script printed.
    pub fn of(crash: &Crash) -> Result<Luks> {
        let path = crash.directory().join("out/luks.stdout");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let (head, key) =
            text.split_once("volume-key").with_context(|| format!("{}: no key", path.display()))?;
        let line = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.strip_prefix(name));
            let line = lines.next().with_context(|| format!("{}: no {name}", path.display()));
            line.map(|line| line.trim().to_owned())
        };
        // Pairs of digits, on several lines.
        let bytes = key.split_whitespace().map(|pair| u8::from_str_radix(pair, 16));
        let key = bytes.collect::<Result<_, _>>().with_context(|| format!("{}: the key", path.display()))?;
        Ok(Luks { device: line("device")?, table: line("table")?, key })
    }
}

fn step(name: &str, script: &str) -> Step {
    Step { name: name.into(), script: script.into(), time_limit: TIME_LIMIT }
}
