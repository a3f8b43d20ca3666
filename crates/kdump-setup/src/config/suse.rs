//! `/etc/sysconfig/kdump`, as mkdumprd and kdump-save read it (openSUSE kdump 2.1.9).

use std::path::PathBuf;

use super::suse_options::{Ignored, Options, is_computed};
use super::{Config, Stack, Target, debian, ends, faults, words};
use crate::release::Release;
use crate::root::Root;
use crate::{shell, ssh};

const EARLY: &str = "/etc/systemd/system/multi-user.target.wants/kdump-early.service";

/// What only openSUSE's scripts have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuseSettings {
    /// Values that they ignore.
    pub(crate) ignored: Vec<Ignored>,
    /// Settings that a shell computes.
    pub(crate) computed: Vec<&'static str>,
    /// `KDUMP_SAVEDIR`, if no protocol is known for it.
    pub(crate) wrong_directory: Option<String>,
    /// `KDUMP_DUMPLEVEL`, if it is none of makedumpfile's.
    pub(crate) wrong_level: Option<String>,
    /// `KDUMP_DUMPFORMAT`, if it is unknown.
    pub(crate) wrong_format: Option<String>,
    /// A command that is in place of all that kdump-save does.
    pub(crate) transfer: Option<String>,
    /// Whether kdump-save goes on after an error, and does not start a shell.
    pub(crate) continues: bool,
    /// Whether the firmware is to write the dump (fadump), and whether the kernel has that; `None` if its files are not there.
    pub(crate) firmware_dump: Option<Option<bool>>,
    /// The dump is deleted if less than these bytes remain free.
    pub(crate) kept_free: u64,
    /// Whether older dumps are deleted before.
    pub(crate) deletes_older: bool,
    /// `KDUMP_KERNELVER`, if there is no such kernel.
    pub(crate) missing_kernel: Option<String>,
    /// Whether kdump-early.service loads what is there at boot, before mkdumprd runs.
    pub(crate) loads_early: bool,
    /// Whether the key of the target's host is configured, or none is asked for.
    pub(crate) has_host_key: bool,
}

impl SuseSettings {
    /// Whether another level or format is taken than the file has.
    pub(crate) fn replaces_collector(&self) -> bool {
        let mut ignored = self.ignored.iter();
        ignored.any(|ignored| ignored.setting == Stack::SUSE_LEVEL) || self.wrong_format.is_some()
    }
}

pub(super) fn parse(text: &[u8], root: &Root, release: &Release) -> Config {
    let stack = Stack::Suse;
    let (set, error) = shell::assignments(text);
    let (fault, not_understood) = faults(stack.file(), error);
    let options = Options::new(&set);
    let written = options.text("KDUMP_SAVEDIR");
    let (target, is_wrong) = match () {
        () if !is_computed(written) => target(written, &options, root),
        // What is above the part that is computed is known.
        () if written.starts_with('/') || written.to_ascii_lowercase().starts_with("file:///") => {
            target(&debian::expanded(written, &set, root), &options, root)
        }
        () => (Target::Other("a KDUMP_SAVEDIR that is computed".into()), false),
    };
    let directory = match &target {
        Target::Directory(directory) => Some(directory),
        _ => None,
    };
    // main of kdump-save: such a level is 0.
    let is_wrong_level = options.number("KDUMP_DUMPLEVEL").is_some_and(|level| !(0..=31).contains(&level));
    let level = options.text("KDUMP_DUMPLEVEL");
    let filtered = |codec| {
        let (level, further) =
            (if is_wrong_level { "0" } else { level }, options.text("MAKEDUMPFILE_OPTIONS"));
        words(&format!("makedumpfile -F {codec} -d {level} {further}"))
    };
    // By its own words, in their case. The default is in place of what is computed.
    let format = options.text(Stack::SUSE_FORMAT);
    let mut wrong_format = None;
    let collector = match format {
        "none" => Vec::new(),
        "raw" => words("cat /proc/vmcore"),
        "ELF" => filtered("-E"),
        "lzo" => filtered("-l"),
        "snappy" => filtered("-p"),
        "zstd" => filtered("-z"),
        "compressed" => filtered("-c"),
        computed if is_computed(computed) => filtered("-c"),
        other => {
            wrong_format = Some(other.to_owned());
            filtered("-z")
        }
    };
    let set_line = Some(options.text("KDUMP_COMMANDLINE")).filter(|line| !line.is_empty());
    let command_line = set_line.map(words);
    let mut append = Vec::new();
    // A whole command line is in place of these, too.
    if command_line.is_none() {
        append = words(
            "sysrq=yes reset_devices acpi_no_memhotplug cgroup_disable=memory nokaslr numa=off irqpoll",
        );
        let cpus = options.text(Stack::SUSE_CPUS);
        append.extend((cpus.parse() != Ok(0)).then(|| format!("nr_cpus={cpus}")));
    }
    let own = append.len();
    append.extend(words(options.text("KDUMP_COMMANDLINE_APPEND")));
    let firmware_dump = options.is_true("KDUMP_FADUMP").then(|| {
        // fadump_enabled of load.sh. Only powerpc has the file.
        let has_files = root.exists("/sys/kernel");
        has_files.then(|| root.number("/sys/kernel/fadump/enabled") == Some(1))
    });
    let mut computed = options.computed.clone();
    computed.extend(is_computed(format).then_some(Stack::SUSE_FORMAT));
    let suse = SuseSettings {
        wrong_directory: is_wrong.then(|| without_password(written)),
        wrong_level: is_wrong_level.then(|| level.to_owned()),
        wrong_format,
        transfer: Some(options.text(Stack::SUSE_TRANSFER).to_owned()).filter(|command| !command.is_empty()),
        continues: options.text("KDUMP_CONTINUE_ON_ERROR") != "false",
        firmware_dump,
        kept_free: {
            let size = options.number("KDUMP_FREE_DISK_SIZE").filter(|_| directory.is_some());
            size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0).saturating_mul(1 << 20)
        },
        deletes_older: directory.is_some_and(|directory| {
            let kept = options.number("KDUMP_KEEP_OLD_DUMPS").unwrap_or(0);
            let dumps = root.names(directory).into_iter().filter_map(|name| name.into_string().ok());
            let dumps = dumps.filter(|name| is_dump(name)).count();
            kept < 0 && dumps > 0 || kept > 0 && usize::try_from(kept).is_ok_and(|kept| dumps > kept)
        }),
        missing_kernel: {
            let version = options.text("KDUMP_KERNELVER");
            let paths = kernels(version);
            let is_missing = !paths.is_empty() && !paths.iter().any(|path| root.exists(path));
            is_missing.then(|| version.to_owned())
        },
        loads_early: root.link(EARLY).is_some() || root.exists(EARLY),
        has_host_key: !options.text("KDUMP_HOST_KEY").is_empty(),
        computed,
        ignored: options.ignored.clone(),
    };
    Config {
        stack,
        enabled: true,
        target,
        collector,
        compressor: None,
        // The link to what was loaded last, which mkdumprd makes.
        kernels: vec!["/var/lib/kdump/kernel".into(), format!("/boot/vmlinuz-{release}").into()],
        command_line,
        is_append_set: false,
        fail_command: None,
        fault,
        refused: ends(stack.file(), text),
        carriage_return: None,
        not_understood,
        append,
        remakes_initramfs: false,
        own,
        initramfs: vec!["/var/lib/kdump/initrd".into()],
        load_command: None,
        suse: Some(suse),
    }
}

/// The target of a `KDUMP_SAVEDIR`, and whether it is none (`kdump_read_config_main` of kdump-read-config.sh, `main` of kdump-save).
fn target(written: &str, options: &Options, root: &Root) -> (Target, bool) {
    // `${KDUMP_SAVEDIR#*://}`, whatever is before it.
    let rest = written.split_once("://").map_or(written, |(_, rest)| rest);
    let lower = written.to_ascii_lowercase();
    let protocol = if written.starts_with('/') {
        "file"
    } else {
        lower.split_once("://").map_or("", |(protocol, _)| protocol)
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, rest));
    let other = || Target::Other(without_password(written));
    let target = match protocol {
        // mkdumprd makes it absolute by the directory that it is started in.
        "file" if !rest.starts_with('/') => {
            Target::Other(format!("{written}, which is relative to where mkdumprd is started"))
        }
        "file" => Target::Directory(rest.into()),
        "nfs" => Target::Nfs(format!("{host}:/{path}")),
        "ssh" | "sftp" | "scp" => match has_password(host) {
            // Without a key.
            true => other(),
            false => Target::Ssh { host: host.to_owned(), key: key(options, root) },
        },
        "ftp" | "smb" | "cifs" => other(),
        _ => return (other(), true),
    };
    (target, false)
}

fn has_password(host: &str) -> bool {
    host.split_once('@').and_then(|(user, _)| user.split_once(':')).is_some_and(|(_, word)| !word.is_empty())
}

/// A URL as it may be shown.
fn without_password(url: &str) -> String {
    let (protocol, rest) = url.split_once("://").map_or(("", url), |(protocol, rest)| (protocol, rest));
    let (login, host) = rest.rsplit_once('@').map_or((None, rest), |(login, host)| (Some(login), host));
    let user = login.map(|login| login.split(':').next().unwrap_or_default());
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    let mark = if url.contains("://") { "://" } else { "" };
    format!("{protocol}{mark}{user}{host}")
}

/// The first key that ssh takes of those that `kdump_init_ssh` of module-setup.sh copies, or else the first of them.
fn key(options: &Options, root: &Root) -> PathBuf {
    let identities = match options.text("KDUMP_SSH_IDENTITY") {
        "" => "id_rsa id_dsa id_ecdsa id_ed25519",
        identities => identities,
    };
    // They are relative to this.
    let directory = PathBuf::from("/root/.ssh");
    let keys: Vec<PathBuf> = identities.split_whitespace().map(|name| directory.join(name)).collect();
    let copied: Vec<&PathBuf> = keys.iter().filter(|key| root.exists(key)).collect();
    let usable = copied.iter().copied().find(|key| ssh::fault(root, key).is_none());
    usable.or(copied.first().copied()).or(keys.first()).cloned().unwrap_or_default()
}

/// The kernel that `KDUMP_KERNELVER` names, where mkdumprd looks for it. Without it, mkdumprd asks the boot loader's pbl for one.
fn kernels(configured: &str) -> Vec<PathBuf> {
    if configured.is_empty() || is_computed(configured) {
        return Vec::new();
    }
    if configured.starts_with('/') {
        return vec![configured.into()];
    }
    let names = ["vmlinuz", "image", "Image", "vmlinux"];
    let paths =
        |name| [format!("/usr/lib/modules/{configured}/{name}"), format!("/boot/{name}-{configured}")];
    names.into_iter().flat_map(paths).map(PathBuf::from).collect()
}

/// Whether a directory has the name of a dump, such as `2026-11-28-04-01` (`ls` in `main` of kdump-save).
fn is_dump(name: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = name.split(['-', ':']).collect();
    matches!(parts.as_slice(), [year, rest @ ..] if year.len() == 4 && digits(year)
        && rest.len() == 4 && rest.iter().all(|part| part.len() == 2 && digits(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("ftp://me:secret@host/crash", "ftp://me@host/crash"),
            ("ftp://me:se@cret@host/crash", "ftp://me@host/crash"),
            ("cifs://host/share", "cifs://host/share"),
            ("http://me:secret@x/y", "http://me@x/y"),
            ("var/crash", "var/crash"),
        ] {
            assert_eq!(without_password(url), shown);
        }
        assert!(has_password("me:secret@host") && !has_password("me@host") && !has_password("host:22"));
    }

    #[test]
    fn dumps_are_known_by_their_names() {
        assert!(is_dump("2026-11-28-04:01") && is_dump("2026-11-28-04-01"));
        assert!(!is_dump("2026-11-28") && !is_dump("web1-2026-11-28-04-01") && !is_dump("2026-1-128-04-01"));
    }
}
