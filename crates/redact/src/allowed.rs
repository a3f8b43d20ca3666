//! Words that say nothing about a site: the kernel's own, numbers, symbols, places in sources, names that it gives devices.

use std::collections::HashSet;
use std::sync::LazyLock;

use crate::embedded::has_address;

/// Words of the kernel's printk formats (`scripts/kernel_words.py`), in lower case.
static WORDS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| include_str!("words.txt").lines().chain(MORE.iter().copied()).collect());
/// Words that the kernel puts together from parts: of crashes, taints, workqueues, lists of memory, and flags.
const MORE: [&str; 57] = [
    "addr",
    "addrconf",
    "bpf",
    "cfi",
    "clone",
    "conv",
    "cpu_out_of_spec",
    "comm",
    "crap",
    "current",
    "dma32",
    "eoe",
    "eoi",
    "ept",
    "firmware_workaround",
    "fixup",
    "forced_module",
    "forced_rmmod",
    "freezable",
    "hugetlb",
    "hung_task",
    "irq",
    "isolated",
    "kasan",
    "kaslr",
    "kblockd",
    "kcryptd",
    "kcsan",
    "kfence",
    "lowmem_reserve",
    "managed",
    "mapcount",
    "mems",
    "movable",
    "nmi",
    "nopti",
    "oot_module",
    "overridden_acpi_table",
    "not-present",
    "pagetables",
    "panic_on_oom",
    "preempt",
    "proprietary_module",
    "pti",
    "reported",
    "rpciod",
    "rsv",
    "sec_pagetables",
    "secs",
    "slab",
    "smp",
    "softirq",
    "softlockup",
    "supervisor",
    "tainted",
    "task",
    "unsigned_module",
];
/// Registers of x86_64, arm64 and riscv64, beside those with a number.
const REGISTERS: [&str; 41] = [
    "rip", "rsp", "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "eflags", "orig_rax", "cs", "ds", "es",
    "ss", "fs", "gs", "knlgs", "pkru", "pc", "lr", "sp", "pstate", "esr", "far", "ttbr0", "epc", "ra", "gp",
    "tp", "status", "badaddr", "cause", "ip", "tcr", "el", "daif", "pgd", "pmd", "pte", "pud",
];
/// Names that the kernel gives devices and interfaces by number.
const DEVICES: [&str; 33] = [
    "ata", "card", "cpu", "cpuidle", "dm-", "eno", "ens", "eth", "event", "host", "hvc", "i2c-", "input",
    "lo", "loop", "md", "mmcblk", "node", "nvme", "p", "pci", "pcie", "port", "ram", "rtc", "sr", "tty",
    "ttyama", "ttys", "usb", "vda", "wlan", "zram",
];
/// Directories of the kernel's sources (Linux 7.2), in which a message says where it comes from.
const SOURCES: [&str; 23] = [
    "arch", "block", "certs", "crypto", "drivers", "fs", "include", "init", "io_uring", "ipc", "kernel",
    "lib", "mm", "net", "rust", "samples", "scripts", "security", "sound", "tools", "usr", "virt", "library",
];
/// How flags begin that the kernel prints by name.
const FLAGS: [&str; 5] = ["GFP_", "__GFP_", "CONSTRAINT_", "MIGRATE_", "PG_"];
/// What follows a number without a space.
const UNITS: [&str; 27] = [
    "", "%", "b", "bit", "c", "g", "gb", "ghz", "gib", "hz", "k", "kb", "khz", "kib", "m", "mb", "mbps",
    "mhz", "mib", "ms", "ns", "s", "st", "nd", "rd", "th", "us",
];
/// Longer numbers may be serial numbers.
const LONGEST_NUMBER: usize = 7;
/// Longer hexadecimal numbers may be serial numbers, world wide names and parts of hardware addresses.
const LONGEST_HEX: usize = 8;
/// Shorter ones without `0x` are numbers of buses, vendors and devices.
const LONGEST_BARE_HEX: usize = 4;
/// Groups of digits that have more together, without leading zeros, may be numbers of cards, disks and ports: a time since the start has 13.
const MOST_DIGITS: usize = 13;
/// The same of groups with a dash: a date has 8, a telephone number has more.
const MOST_DASHED_DIGITS: usize = 8;
/// The same of hexadecimal ones: the address of a PCI device has 9, a world wide name 16.
const MOST_BARE_HEX: usize = 9;
/// Groups of a date and a time, or of the address of a PCI device, are fewer than those of a hardware address or a world wide name.
const MOST_GROUPS: usize = 5;

/// Digits of a register.
const REGISTER: usize = 16;

/// Where a word stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the kernel's text.
    Text,
    /// In quotes, or after `=`: the kernel's text does not end there.
    Value,
    /// In a line of registers, code or memory.
    Registers,
}

/// Whether a word, without the punctuation around it, says nothing about a site.
pub(super) fn is_allowed(word: &str, place: Place) -> bool {
    let word = word.trim_matches(|c: char| "#~*+-@&!?%<>^.:$/".contains(c));
    if word.is_empty() || is_number(word, place) || is_symbol(word) || is_source(word) || is_device(word) {
        return true;
    }
    if FLAGS.into_iter().any(|start| word.strip_prefix(start).is_some_and(is_constant)) {
        return true;
    }
    match place {
        // Constants of the kernel.
        Place::Value => word.contains('_') && is_constant(word) && is_known(word),
        Place::Text | Place::Registers => is_known(word) || is_register(word),
    }
}

/// Whether this is a line of registers, code or memory, whose words are hexadecimal numbers.
pub(super) fn is_registers(line: &str) -> bool {
    let line = line.trim_start();
    let first = line.split([':', ' ']).next().unwrap_or_default();
    let is_number = |word: &str| {
        word.split(|c: char| "<>():".contains(c))
            .all(|part| part.is_empty() || is_hex(part) || is_register(part))
    };
    let has_numbers = |line: &str| line.split_whitespace().all(is_number);
    // On some architectures, the address of a frame precedes its symbol.
    line.starts_with("Code: ")
        || line.contains("+0x")
        || line.starts_with("Stack:")
        || is_register(first) && has_numbers(line)
}

fn is_constant(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

fn is_known(word: &str) -> bool {
    WORDS.contains(word.to_ascii_lowercase().as_str())
}

fn is_register(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let numbered = |start: &str| {
        word.strip_prefix(start).is_some_and(|rest| {
            (1..=2).contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    REGISTERS.contains(&word.as_str()) || ["r", "x", "cr", "dr", "s", "a", "t", "v"].into_iter().any(numbered)
}

/// Numbers, times, sizes, versions, and addresses of buses.
fn is_number(word: &str, place: Place) -> bool {
    if let Some(digits) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return is_hex(digits)
            && (digits.len() <= LONGEST_HEX || place == Place::Registers || is_kernel_address(digits));
    }
    if is_hex(word) && (place == Place::Registers && word.len() == REGISTER || is_kernel_address(word)) {
        return true;
    }
    let end = word.rfind(|c: char| c.is_ascii_digit()).map_or(0, |at| at + 1);
    let (number, unit) = word.split_at(end);
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = number.split(['.', ',', ':', '/', 'x', '-', '+']);
    let most = if number.contains('-') { MOST_DASHED_DIGITS } else { MOST_DIGITS };
    let lengths = groups.clone().map(|group| group.trim_start_matches('0').len());
    let few = groups.clone().count() <= MOST_GROUPS && lengths.sum::<usize>() <= most || !unit.is_empty();
    if few && !number.is_empty() && UNITS.contains(&unit.to_ascii_lowercase().as_str()) {
        // A size has a unit; what has none may be a serial number.
        let short = |group: &str| group.trim_start_matches('0').len() <= LONGEST_NUMBER || !unit.is_empty();
        if groups.all(|group| digits(group) && short(group)) {
            return true;
        }
    }
    let longest = if place == Place::Registers { LONGEST_HEX } else { LONGEST_BARE_HEX };
    let most = if place == Place::Registers { usize::MAX } else { MOST_BARE_HEX };
    word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().filter(u8::is_ascii_hexdigit).count() <= most
        && word.split([':', '.', '-']).all(|group| is_hex(group) && group.len() <= longest)
}

/// Whether groups of digits are one number, each of whose groups would be allowed alone.
pub(super) fn is_one_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.-".contains(&byte))
        && word.bytes().filter(u8::is_ascii_hexdigit).count() > MOST_BARE_HEX
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_kernel_address(digits: &str) -> bool {
    digits.len() == 16 && digits.starts_with("ffff")
}

/// `symbol+0x10/0x20`.
fn is_symbol(word: &str) -> bool {
    let Some((name, offset)) = word.split_once("+0x") else { return false };
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.$".contains(&byte))
    };
    // In the first line of registers, a segment precedes it.
    is_name(name.rsplit(':').next().unwrap_or(name)) && offset.split("/0x").all(is_hex)
}

/// `fs/ext4/inode.c:123`, and paths of Rust's core library.
fn is_source(word: &str) -> bool {
    if word.starts_with("core::") || word.starts_with("alloc::") {
        return true;
    }
    let Some((path, line)) = word.rsplit_once(':') else { return false };
    let is_line = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
    let is_path = [".c", ".h", ".S", ".rs"].into_iter().any(|end| path.ends_with(end))
        && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-/.".contains(&byte));
    let mut parts = path.split('/');
    let first = parts.next().unwrap_or_default();
    is_line && is_path && !path.contains("..") && (first == path || SOURCES.contains(&first))
}

/// `sda1`, `nvme0n1p2`, `eth0`, `enp3s0`.
pub(super) fn is_device(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let digits = |text: &str| text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let disk = |start: &str| {
        word.strip_prefix(start).is_some_and(|rest| {
            let letters = rest.bytes().take_while(u8::is_ascii_lowercase).count();
            (1..=2).contains(&letters) && rest.get(letters..).is_some_and(digits)
        })
    };
    let numbered = |start: &str| {
        word.strip_prefix(start).is_some_and(|rest| {
            // Ports, namespaces and partitions of the device.
            let mut parts = rest.split(['n', 'p', '.', '#', '-']);
            !rest.is_empty() && parts.all(|part| !part.is_empty() && digits(part))
        })
    };
    // By slot: enp3s0f1.
    let slot = word
        .strip_prefix("enp")
        .is_some_and(|rest| rest.split(['s', 'f']).all(|part| !part.is_empty() && digits(part)));
    let is_device = word == "lo"
        || slot
        || ["sd", "vd", "hd", "xvd"].into_iter().any(disk)
        || DEVICES.into_iter().any(numbered);
    is_device && !has_address(&word)
}
