//! The configuration of a distribution's kdump.

mod cpu_limit;
mod debian;
mod fedora;
mod kdump_conf;
mod kdump_kernel;
mod kdump_target;
mod kdumpctl;
mod options;
mod suse;
mod suse_options;

use std::path::PathBuf;

use serde::Serialize;

use crate::release::Release;
use crate::root::Root;
pub use cpu_limit::CpuLimit;
pub(crate) use cpu_limit::{END, LIMITS, is_of};
pub use suse::SuseSettings;

/// Whose scripts run kdump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stack {
    /// Debian's and Ubuntu's kdump-tools.
    KdumpTools,
    /// Fedora's and Red Hat's kdump-utils.
    KdumpUtils,
    /// openSUSE's and SUSE's kdump.
    Suse,
}

impl Stack {
    pub fn name(self) -> &'static str {
        match self {
            Self::KdumpTools => "kdump-tools (Debian, Ubuntu)",
            Self::KdumpUtils => "kdump-utils (Fedora, RHEL)",
            Self::Suse => "kdump (openSUSE, SLES)",
        }
    }

    /// Its configuration file.
    pub const fn file(self) -> &'static str {
        match self {
            Self::KdumpTools => "/etc/default/kdump-tools",
            Self::KdumpUtils => "/etc/kdump.conf",
            Self::Suse => "/etc/sysconfig/kdump",
        }
    }

    /// The setting with the options of the program that writes the dump.
    pub(crate) fn options(self) -> &'static str {
        match self {
            Self::KdumpTools => "MAKEDUMP_ARGS",
            Self::KdumpUtils => "core_collector",
            Self::Suse => "MAKEDUMPFILE_OPTIONS",
        }
    }

    /// openSUSE's setting of the capture kernel's CPUs.
    pub(crate) const SUSE_CPUS: &'static str = "KDUMP_CPUS";
    /// Codec of the dump, whether it is ELF, or copied, or none.
    pub(crate) const SUSE_FORMAT: &'static str = "KDUMP_DUMPFORMAT";

    /// A command that is in place of all that openSUSE's scripts do.
    pub(crate) const SUSE_TRANSFER: &'static str = "KDUMP_TRANSFER";
    /// openSUSE's setting of the dump level, which comes before its [`options`](Self::options).
    pub(crate) const SUSE_LEVEL: &'static str = "KDUMP_DUMPLEVEL";

    /// The file with the settings of the capture kernel's command line.
    pub(crate) const fn command_line_file(self) -> &'static str {
        match self {
            Self::KdumpTools => "/etc/default/kdump-tools",
            Self::KdumpUtils | Self::Suse => "/etc/sysconfig/kdump",
        }
    }

    /// The setting with the whole command line of the capture kernel.
    pub(crate) fn line_setting(self) -> &'static str {
        match self {
            Self::KdumpTools => "KDUMP_CMDLINE",
            Self::KdumpUtils | Self::Suse => "KDUMP_COMMANDLINE",
        }
    }

    /// The setting with what is appended to that command line.
    pub(crate) fn append_setting(self) -> &'static str {
        match self {
            Self::KdumpTools => "KDUMP_CMDLINE_APPEND",
            Self::KdumpUtils | Self::Suse => "KDUMP_COMMANDLINE_APPEND",
        }
    }

    /// Its value without a setting.
    pub(crate) fn default_append(self) -> &'static str {
        match self {
            Self::KdumpTools => {
                "reset_devices systemd.unit=kdump-tools-dump.service nr_cpus=1 irqpoll usbcore.nousb"
            }
            Self::KdumpUtils => "irqpoll nr_cpus=1 reset_devices",
            Self::Suse => "",
        }
    }

    /// The command that makes the initramfs anew and loads it.
    pub fn reload(self) -> &'static str {
        match self {
            Self::KdumpTools => "kdump-config unload; kdump-config load",
            Self::KdumpUtils => "kdumpctl rebuild && kdumpctl restart",
            Self::Suse => "mkdumprd -f && systemctl restart kdump",
        }
    }
}

/// Where the dump is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A directory of a local or mounted file system.
    Directory(PathBuf),
    /// `host:/export`.
    Nfs(String),
    /// `user@host`, with this private key.
    Ssh {
        /// `user@host`.
        host: String,
        /// The private key.
        key: PathBuf,
    },
    /// A disk or partition without a file system.
    Raw(PathBuf),
    /// Something else, as it is written in the configuration.
    Other(String),
}

/// What a distribution's configuration says, in common terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Whose configuration it is.
    pub stack: Stack,
    /// Whether it is switched on.
    pub enabled: bool,
    /// Where the dump is to go.
    pub target: Target,
    /// The program that writes the dump, and its options.
    pub collector: Vec<String>,
    /// A program that the dump is piped through.
    pub compressor: Option<String>,
    /// Parameters that the capture kernel's command line gets.
    pub append: Vec<String>,
    /// How many of them, from the first, are not of the setting with what is appended.
    pub own: usize,
    /// The capture kernel's initramfs.
    pub initramfs: Vec<PathBuf>,
    /// Where the capture kernel may be; the first is taken if none exists.
    pub kernels: Vec<PathBuf>,
    /// The whole command line of the capture kernel, if it is configured.
    pub command_line: Option<Vec<String>>,
    /// Whether `append` is configured, and not the scripts' default.
    pub is_append_set: bool,
    /// The command that runs when no dump was written.
    pub fail_command: Option<Vec<String>>,
    /// What is wrong with a file, so that the scripts do not read it.
    pub fault: Option<String>,
    /// The line of /etc/kdump.conf for which kdumpctl ends, and why.
    pub refused: Option<String>,
    /// The line of /etc/kdump.conf that ends in CR and LF, if one does.
    pub carriage_return: Option<usize>,
    /// Whether the scripts make a missing initramfs before they load it.
    pub remakes_initramfs: bool,
    /// What of a file is not understood, though the scripts may.
    pub not_understood: Option<String>,
    /// The file in which the scripts keep the command that loaded the capture kernel, if `append` is configured.
    pub load_command: Option<PathBuf>,
    /// What only openSUSE's scripts have.
    pub suse: Option<SuseSettings>,
}

impl Config {
    /// Reads the configuration of the distribution's kdump that is installed, if any.
    pub fn read(root: &Root, release: &Release) -> Option<Self> {
        let stacks = [Stack::KdumpTools, Stack::KdumpUtils, Stack::Suse];
        let stack = stacks.into_iter().find(|stack| root.exists(stack.file()))?;
        // Both have /etc/sysconfig/kdump. Without /etc/kdump.conf `check_files_modified` of kdumpctl ends with an error.
        if stack == Stack::Suse && is_fedora(root) {
            let mut config = Self::of(Stack::KdumpUtils, root, release);
            config.refused = Some(format!("{} does not exist", Stack::KdumpUtils.file()));
            return Some(config);
        }
        Some(Self::of(stack, root, release))
    }

    /// Reads the configuration of one distribution's kdump, with its defaults where files are missing.
    pub fn of(stack: Stack, root: &Root, release: &Release) -> Self {
        let text = match root.read(stack.file()) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let (text, unread) = text.map_or_else(|error| (Vec::new(), Some(error)), |text| (text, None));
        let mut config = match stack {
            Stack::KdumpTools => debian::parse(&text, root, release),
            Stack::KdumpUtils => fedora::parse(&String::from_utf8_lossy(&text), root, release),
            Stack::Suse => suse::parse(&text, root, release),
        };
        if let Some(error) = unread {
            config.not_understood = Some(format!("{} cannot be read: {error}", stack.file()));
        }
        config
    }

    /// The program that writes the dump and its arguments, as the scripts call it or check it when they make the initramfs.
    pub fn command_line(&self) -> Vec<String> {
        let mut words = self.collector.clone();
        let is_file = match self.stack {
            // It appends -F unless that comes first.
            Stack::KdumpTools => {
                words.extend(
                    words.get(1).is_none_or(|first| !first.starts_with("-F")).then(|| "-F".to_owned()),
                );
                false
            }
            Stack::KdumpUtils => {
                let streams = matches!(self.target, Target::Ssh { .. } | Target::Raw(_));
                // mkdumprd does not check a program by its path, and kdump.sh adds -F.
                let adds = streams && words.first().is_some_and(|program| program.ends_with("/makedumpfile"));
                words.extend((adds && !words.iter().any(|word| word == "-F")).then(|| "-F".to_owned()));
                !streams
            }
            Stack::Suse => false,
        };
        words.push("vmcore".into());
        words.extend(is_file.then(|| "dumpfile".to_owned()));
        words
    }
}

/// Whether kdumpctl is installed, which openSUSE's kdump does not have, and not openSUSE's kdumptool.
fn is_fedora(root: &Root) -> bool {
    let is_there =
        |name: &str| ["/usr/bin", "/usr/sbin"].iter().any(|of| root.exists(format!("{of}/{name}")));
    is_there("kdumpctl") && !is_there("kdumptool")
}

/// Sorts a syntax error into what is wrong with a file and what is not understood of it.
fn faults(file: &str, error: Option<crate::shell::SyntaxError>) -> (Option<String>, Option<String>) {
    match error {
        Some(error) if error.is_fault => (Some(format!("{file}, {error}")), None),
        Some(error) => (None, Some(format!("{file}, {error}"))),
        None => (None, None),
    }
}

/// Why a file ends the scripts that source it, if it certainly does.
fn ends(file: &str, text: &[u8]) -> Option<String> {
    crate::shell::exit(text)
        .map(|line| format!("{file}, line {line}: `exit` ends the scripts that source it"))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
