//! Names of other machines: they may look like names that the kernel gives devices by number (`node12`).

use crate::allowed::is_device;

/// Words before the name of a machine, and of nothing else that has a number.
const MACHINES: [&str; 14] = [
    "bootserver",
    "client",
    "gateway",
    "host",
    "hostname",
    "initiator",
    "nameserver",
    "neighbor",
    "neighbour",
    "peer",
    "portal",
    "remote",
    "rootserver",
    "server",
];
/// Words before the name of a machine or of a device.
const BOTH: [&str; 4] = ["from", "target", "to", "user"];
/// Names of disks, interfaces, processors and terminals, which a message needs to be understood.
const DEVICES: [&str; 17] = [
    "ata", "cpu", "dm-", "eno", "enp", "ens", "eth", "hd", "hvc", "lo", "mmcblk", "nvme", "sd", "tty", "vd",
    "wlan", "xvd",
];
/// What the kernel says of a server whose name precedes it: NFS, lockd.
const SAID_OF_SERVERS: [&str; 2] = ["not responding", "OK"];

/// What a word says of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lead {
    Machine,
    Both,
    Nothing,
}

impl Lead {
    /// Returns what a word says of the next one.
    pub(super) fn of(word: &str) -> Self {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_ascii_lowercase();
        let last = word.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        if MACHINES.contains(&last) {
            Self::Machine
        } else if BOTH.contains(&last) {
            Self::Both
        } else {
            Self::Nothing
        }
    }

    /// Whether the next word names a machine. `rest` follows it.
    pub(super) fn names(self, word: &str, rest: &str) -> bool {
        let rest = rest.trim_start();
        let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
        match self {
            Self::Nothing => false,
            Self::Machine if SAID_OF_SERVERS.iter().any(|said| rest.starts_with(said)) => {
                word != "is" && word.bytes().any(|byte| byte.is_ascii_alphanumeric())
            }
            // Numbers begin with a digit; a pointer has 16.
            Self::Machine => {
                let is_pointer = word.len() == 16 && word.starts_with("ffff");
                has_digit && word.starts_with(|c: char| c.is_ascii_alphabetic()) && !is_pointer
            }
            Self::Both => {
                let lower = word.to_ascii_lowercase();
                has_digit && is_device(word) && !DEVICES.iter().any(|start| lower.starts_with(start))
            }
        }
    }
}
