//! makedumpfile's options, as one record: repeated options count once, and the last one wins.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use pagehaul_codec::Codec;
use pagehaul_present::number::parse_bytes;

use crate::getopt::{self, Argument, OptionSpec, atoi};

/// What an option is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Codec(Codec),
    Elf,
    Flattened,
    Level,
    SizeLimit,
    Threads,
    MessageLevel,
    Debug,
    Overwrite,
    CheckParams,
    DumpDmesg,
    PartialDmesg,
    Rearrange,
    Split,
    Reassemble,
    MemUsage,
    DryRun,
    ShowStats,
    NonMmap,
    Symbols,
    Version,
    Help,
    /// Tunes what pagehaul does in another way.
    Tuning,
    /// Refused: the option and the reason.
    Refused(&'static str, &'static str),
}

const XEN: &str = "Xen is not supported";
const ERASURE: &str = "data cannot be erased from dumps; it is refused because an ignored erasure would leave secrets in the dump";

/// Every option of makedumpfile 1.7.9, short ones first.
const OPTIONS: [OptionSpec<Key>; 42] = [
    short('b', true, Key::Tuning),
    short('c', false, Key::Codec(Codec::Zlib)),
    short('D', false, Key::Debug),
    short('d', true, Key::Level),
    short('e', false, Key::Refused("-e", "struct pages of excluded pages stay in the dump")),
    short('E', false, Key::Elf),
    short('F', false, Key::Flattened),
    short('f', false, Key::Overwrite),
    short('g', true, Key::Refused("-g", "VMCOREINFO files are not written; the vmcore has what is needed")),
    short('h', false, Key::Help),
    short('i', true, Key::Symbols),
    short('l', false, Key::Codec(Codec::Lzo)),
    short('L', true, Key::SizeLimit),
    short('p', false, Key::Codec(Codec::Snappy)),
    short('R', false, Key::Rearrange),
    short('v', false, Key::Version),
    short('X', false, Key::Refused("-X", XEN)),
    short('x', true, Key::Symbols),
    short('z', false, Key::Codec(Codec::Zstd)),
    long("check-params", false, Key::CheckParams),
    long("config", true, Key::Refused("--config", ERASURE)),
    long("cyclic-buffer", true, Key::Tuning),
    long("diskset", true, Key::Refused("--diskset", "sadump is not supported")),
    long("dry-run", false, Key::DryRun),
    long("dump-dmesg", false, Key::DumpDmesg),
    long("eppic", true, Key::Refused("--eppic", ERASURE)),
    long("extension", true, Key::Refused("--extension", "extensions are not supported")),
    long("help", false, Key::Help),
    long("mem-usage", false, Key::MemUsage),
    long("message-level", true, Key::MessageLevel),
    long("non-mmap", false, Key::NonMmap),
    long("num-threads", true, Key::Threads),
    long("partial-dmesg", false, Key::PartialDmesg),
    long("reassemble", false, Key::Reassemble),
    long("show-stats", false, Key::ShowStats),
    long("split", false, Key::Split),
    long("splitblock-size", true, Key::Tuning),
    long("vtop", true, Key::Refused("--vtop", "addresses are not translated; use `pagehaul read`")),
    long("work-dir", true, Key::Tuning),
    long("xen-syms", true, Key::Refused("--xen-syms", XEN)),
    long("xen-vmcoreinfo", true, Key::Refused("--xen-vmcoreinfo", XEN)),
    long("xen_phys_start", true, Key::Refused("--xen_phys_start", XEN)),
];

const fn short(letter: char, takes_value: bool, key: Key) -> OptionSpec<Key> {
    OptionSpec { key, short: Some(letter), long: None, takes_value }
}

const fn long(name: &'static str, takes_value: bool, key: Key) -> OptionSpec<Key> {
    OptionSpec { key, short: None, long: Some(name), takes_value }
}

/// A command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `None`: pages are stored uncompressed.
    pub(crate) codec: Option<Codec>,
    pub(crate) elf: bool,
    pub(crate) flattened: bool,
    /// The dump level, and those to try after it when the disk is full.
    pub(crate) levels: Vec<i64>,
    pub(crate) size_limit: Option<u64>,
    pub(crate) threads: Option<i64>,
    pub(crate) message_level: i64,
    pub(crate) overwrite: bool,
    pub(crate) check_params: bool,
    pub(crate) dump_dmesg: bool,
    pub(crate) partial_dmesg: bool,
    pub(crate) rearrange: bool,
    pub(crate) split: bool,
    pub(crate) reassemble: bool,
    pub(crate) mem_usage: bool,
    pub(crate) dry_run: bool,
    pub(crate) no_mmap: bool,
    /// -x or -i is there, which pagehaul does not need.
    pub(crate) symbols: bool,
    pub(crate) version: bool,
    pub(crate) help: bool,
    /// Why the command line cannot be what it says, in one sentence.
    pub(crate) error: Option<String>,
    pub(crate) operands: Vec<OsString>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            codec: None,
            elf: false,
            flattened: false,
            levels: vec![0],
            size_limit: None,
            threads: None,
            message_level: 7,
            overwrite: false,
            check_params: false,
            dump_dmesg: false,
            partial_dmesg: false,
            rearrange: false,
            split: false,
            reassemble: false,
            mem_usage: false,
            dry_run: false,
            no_mmap: false,
            symbols: false,
            version: false,
            help: false,
            error: None,
            operands: Vec::new(),
        }
    }
}

impl Options {
    /// Reads a command line, without the program's name.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Self {
        let (found, error) = getopt::parse(arguments, &OPTIONS);
        let mut options = Self::default();
        for argument in found {
            match argument {
                Argument::Option(key, value) => options.set(key, &value),
                Argument::Operand(operand) => options.operands.push(operand),
            }
        }
        options.error = options.error.or(error);
        options
    }

    fn set(&mut self, key: Key, value: &OsStr) {
        match key {
            Key::Codec(codec) => self.codec = Some(codec),
            Key::Elf => self.elf = true,
            Key::Flattened => self.flattened = true,
            Key::Level => self.levels = levels(value),
            Key::SizeLimit => match size(value) {
                Some(limit) => self.size_limit = Some(limit),
                None => self.refuse(format!("-L {}: expected a size such as 500M, 5G", value.display())),
            },
            Key::Threads => self.threads = Some(atoi(value)),
            Key::MessageLevel => self.message_level = atoi(value),
            Key::Debug => self.message_level |= 8,
            Key::ShowStats => self.message_level |= 16,
            Key::Overwrite => self.overwrite = true,
            Key::CheckParams => self.check_params = true,
            Key::DumpDmesg => self.dump_dmesg = true,
            Key::PartialDmesg => (self.dump_dmesg, self.partial_dmesg) = (true, true),
            Key::Rearrange => self.rearrange = true,
            Key::Split => self.split = true,
            Key::Reassemble => self.reassemble = true,
            Key::MemUsage => self.mem_usage = true,
            Key::DryRun => self.dry_run = true,
            Key::NonMmap => self.no_mmap = true,
            Key::Symbols => self.symbols = true,
            Key::Version => self.version = true,
            Key::Help => self.help = true,
            Key::Tuning => {}
            Key::Refused(option, why) => self.refuse(format!("{option} is refused: {why}")),
        }
    }

    fn refuse(&mut self, why: String) {
        self.error.get_or_insert(why);
    }
}

/// The levels in `31` or `11,31`.
fn levels(value: &OsStr) -> Vec<i64> {
    let parts = value.as_bytes().split(|&byte| byte == b',').filter(|part| !part.is_empty());
    let levels: Vec<_> = parts.map(|part| atoi(OsStr::from_bytes(part))).collect();
    if levels.is_empty() { vec![0] } else { levels }
}

fn size(value: &OsStr) -> Option<u64> {
    parse_bytes(value.to_str()?).ok().filter(|&size| size > 0)
}
