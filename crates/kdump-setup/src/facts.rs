//! What a machine's files say about its kdump set-up.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::FileType;
use serde::Serialize;

use crate::boot::NextBoot;
use crate::config::{Config, Stack, Target};
use crate::crashkernel;
use crate::drivers;
use crate::grub::GrubSettings;
use crate::initramfs::Initramfs;
use crate::kernel_file;
use crate::live_pages::PageUse;
use crate::mounts;
use crate::pstore::Pstore;
use crate::release::Release;
use crate::root::{self, Root, file_type};
use crate::signature;
use crate::ssh;
use crate::storage::Storage;
use crate::units::Units;

/// Where scripts look for programs: Debian's kdump-config sets this PATH.
const PATH: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// How far the kernel refuses to be changed by root (`security/lockdown`, Linux 5.4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lockdown {
    /// Not at all.
    #[default]
    None,
    /// Unsigned kernels cannot be loaded.
    Integrity,
    /// Nor can kernel memory be read.
    Confidentiality,
}

/// A file that the capture kernel boots with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub path: PathBuf,
    /// When it was made; `None` if it does not exist.
    pub modified: Option<SystemTime>,
    /// The file that a symbolic link leads to: its name has the kernel's release.
    pub target: Option<PathBuf>,
}

impl Image {
    /// The file itself, not a link to it.
    pub(crate) fn file(&self) -> PathBuf {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        self.target.as_ref().map_or_else(|| self.path.clone(), |target| directory.join(target))
    }
}

/// The program that writes the dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// Where the scripts find it.
    pub path: PathBuf,
    /// Whether it is pagehaul.
    pub is_pagehaul: bool,
    /// When it was installed.
    pub modified: Option<SystemTime>,
    /// Why it does not run, as far as its file shows.
    pub fault: Option<String>,
    /// A configured option that it does not have, where mkdumprd has it check them.
    pub refused_option: Option<String>,
}

/// What decides which kernels may be loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Firmware {
    /// Whether UEFI started the machine.
    pub is_efi: bool,
    /// Whether it checks signatures; `None` if its variable cannot be read.
    pub secure_boot: Option<bool>,
}

/// What memory is used for, in bytes, by `/proc/meminfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Whether the file says it; all else is 0 if not.
    pub is_known: bool,
    pub kernel: u64,
    /// Anonymous memory of processes.
    pub user: u64,
    /// Page cache. Shmem counts as such, and level 31 excludes it too.
    pub cache: u64,
    pub free: u64,
}

impl MemoryUse {
    const UNKNOWN: Self = Self { is_known: false, kernel: 0, user: 0, cache: 0, free: 0 };

    /// `None` if the size of memory or what is free is not there, or the parts are more than all of it.
    fn read(text: &str) -> Option<Self> {
        let bytes = |name: &str| kib(text, name)?.checked_mul(1 << 10);
        let (total, free) = (bytes("MemTotal")?, bytes("MemFree")?);
        let others = ["AnonPages", "Cached", "Buffers", "SwapCached"];
        let [user, cached, buffers, swap] = others.map(|name| bytes(name).unwrap_or(0));
        let cache = cached.checked_add(buffers)?.checked_add(swap)?;
        let kernel = total.checked_sub(free.checked_add(user)?.checked_add(cache)?)?;
        Some(Self { is_known: true, kernel, user, cache, free })
    }

    /// What a dump of `level` has, before compression.
    pub(crate) fn kept(&self, level: u8) -> u64 {
        let parts = [
            (PageUse::Kernel, self.kernel),
            (PageUse::User, self.user),
            (PageUse::Cache, self.cache),
            (PageUse::Free, self.free),
        ];
        parts.iter().filter(|(used_for, _)| used_for.is_kept(level)).map(|(_, bytes)| bytes).sum()
    }
}

/// What is known of a machine's set-up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Facts {
    /// The running kernel.
    pub release: Release,
    pub command_line: Vec<String>,
    /// RAM in bytes, with what is reserved.
    pub memory: u64,
    /// What it is used for.
    pub memory_use: MemoryUse,
    /// Online CPUs.
    pub cpus: u32,
    /// APIC ID of processor 0.
    pub boot_apic_id: Option<u32>,
    /// Whether this kernel can reserve memory with `crashkernel=SIZE,cma`, as far as CONFIG_CMA tells.
    pub has_cma: bool,
    /// Whether the kernel keeps memory for a kexec handover (`kho=on`, Linux 6.16).
    pub has_handover: bool,
    /// What decides which kernels may be loaded.
    pub firmware: Firmware,
    /// What the boot loader starts next.
    pub next_boot: Option<NextBoot>,
    /// What GRUB's settings ask for, and what was made from them. Not with entries of the Boot Loader Specification, as on Fedora.
    pub grub: Option<GrubSettings>,
    /// systemd's units.
    pub units: Option<Units>,
    /// The capture kernel's file.
    pub kernel: Option<Image>,
    /// Whether it is signed; `None` if its format does not say.
    pub kernel_is_signed: Option<bool>,
    /// What its configuration lacks for a dump; `None` if its configuration cannot be read.
    pub kernel_lacks: Option<Vec<&'static str>>,
    /// Why the file of the kernel to load is not a whole kernel.
    pub kernel_fault: Option<String>,
    /// Whether that file begins as kernels do; others may be kernels, too.
    pub kernel_is_known: bool,
    /// Whether the program that loads it exists.
    pub has_kexec: bool,
    /// Why that program does not run, as far as its file shows.
    pub kexec_fault: Option<String>,
    /// Whether the kernel adapts the loaded image itself when CPUs and memory come and go (Linux 6.6): CPUs, memory.
    pub crash_hotplug: [bool; 2],
    /// Whether udev's rules load the capture kernel again then.
    pub has_udev_rules: bool,
    /// What sets `kernel.panic_on_oops` to 0 at boot.
    pub panic_on_oops_file: Option<PathBuf>,
    /// Devices that hold the struct pages of their own memory, which a dump then lacks.
    pub memmap_devices: Vec<String>,
    /// The disks that the capture kernel needs.
    pub storage: Storage,
    /// What the installed scripts reserve by default, as a value of `crashkernel=`.
    pub default_reservation: &'static str,
    /// Bytes reserved for the capture kernel; `None` if the kernel does not say, so it lacks CONFIG_KEXEC_CORE.
    pub reserved: Option<u64>,
    /// Whether a capture kernel is loaded.
    pub loaded: bool,
    /// Whether loading is restricted.
    pub lockdown: Lockdown,
    /// What is left of a crash whose dump fails.
    pub pstore: Pstore,
    /// `kernel.panic_on_oops`.
    pub panic_on_oops: Option<u64>,
    /// `kernel.hung_task_panic` and `kernel.softlockup_panic`.
    pub panic_on_hang: [Option<u64>; 2],
    /// `/proc/sys/kernel/kexec_load_disabled`.
    pub load_disabled: bool,
    /// The distribution's configuration.
    pub config: Option<Config>,
    /// When its file was changed.
    pub config_modified: Option<SystemTime>,
    /// The capture kernel's initramfs.
    pub initramfs: Option<Image>,
    /// The files in it.
    pub contents: Option<Initramfs>,
    /// Whether the program that makes it exists.
    pub has_initramfs_maker: bool,
    /// The program that writes the dump.
    pub collector: Option<Collector>,
    /// Whether the program of the configured command for failures exists.
    pub has_fail_command: bool,
    /// Why pagehaul refuses the configured options. [`read`](Self::read) leaves it to the caller, who parses makedumpfile's command
    /// line ([`Config::command_line`]).
    pub refused: Option<String>,
    /// How many keys dumps are encrypted to, or why the file of them ([`RECIPIENTS`](Self::RECIPIENTS)) cannot be used; none if there is
    /// no such file. Left to the caller, too.
    pub recipients: Option<Result<usize, String>>,
    /// The configured dump level. Left to the caller, too.
    pub level: Option<u8>,
    /// Bytes per second that a local target takes. Left to the caller, who measures it.
    pub target_rate: Option<u64>,
    /// Whether the capture kernel's initramfs has makedumpfile; `None` if it need not, or if its files cannot be listed.
    pub image_has_collector: Option<bool>,
    /// Whether the capture kernel's initramfs has pagehaul; `None` if it need not, or if its files cannot be listed.
    pub image_has_pagehaul: Option<bool>,
    /// The command that loaded the capture kernel, if the scripts keep it.
    pub load_command: Option<String>,
    /// Whether the directory of a local target, or a raw disk, exists.
    pub target_exists: bool,
    /// Why the directory of a local target cannot be one: something else is in its place.
    pub target_fault: Option<&'static str>,
    /// Whether the program that mounts NFS exists.
    pub has_mount_nfs: bool,
    /// The file system of /etc/fstab that holds a local target, if it is not mounted.
    pub target_unmounted: Option<PathBuf>,
    /// Bytes free at a local target, or at the first directory above it that exists.
    pub target_free: Option<u64>,
    /// Bytes that `df` calls available there: without what is kept for root.
    pub target_available: Option<u64>,
    /// Whether that file system can hold no more files.
    pub target_has_no_inodes: bool,
    /// Whether the private key of an ssh target exists.
    pub has_key: bool,
    /// Why ssh does not use it.
    pub key_fault: Option<String>,
    /// Whether the ssh client exists.
    pub has_ssh: bool,
    /// Whether the key of an ssh target's host is known.
    pub host_is_known: bool,
    /// Modules that the capture kernel's initramfs lacks, though the disk that it has to mount needs them.
    pub missing_drivers: Vec<String>,
    /// Whether the program that the dump is piped through exists, and is one that the scripts use.
    pub has_compressor: bool,
}

impl Facts {
    /// The file of keys that dumps are encrypted to.
    pub const RECIPIENTS: &'static str = "/etc/pagehaul/recipients";

    /// Reads the files below `root`. What cannot be read counts as absent: without root, the reserved memory is known, but not
    /// everything else.
    pub fn read(root: &Root) -> Self {
        let release = Release(root.text("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned());
        let config = Config::read(root, &release);
        let memory_info = root.text("/proc/meminfo").unwrap_or_default();
        let kib = |name: &str| kib(&memory_info, name).and_then(|kib| kib.checked_mul(1 << 10)).unwrap_or(0);
        let reserved = ["/sys/kernel/kexec/crash_size", "/sys/kernel/kexec_crash_size"]
            .iter()
            .find_map(|path| root.number(path));
        let loaded = ["/sys/kernel/kexec/crash_loaded", "/sys/kernel/kexec_crash_loaded"];
        let directory = match config.as_ref().map(|config| &config.target) {
            Some(Target::Directory(path)) => Some(path.clone()),
            _ => None,
        };
        let ssh = match config.as_ref().map(|config| &config.target) {
            Some(Target::Ssh { host, key }) => Some((host.clone(), key.clone())),
            _ => None,
        };
        let sysctl = |name: &str| root.number(format!("/proc/sys/kernel/{name}"));
        let initramfs = config.as_ref().map(|config| image(root, &config.initramfs));
        let contents = initramfs.as_ref().filter(|image| image.modified.is_some());
        let contents = contents.map(|image| Initramfs::read(root, &image.path));
        let command_line: Vec<String> =
            root.text("/proc/cmdline").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        let next_boot = NextBoot::read(root);
        let load_command = config.as_ref().and_then(|config| root.text(config.load_command.as_ref()?));
        let capture_line = config.as_ref().and_then(|config| config.command_line.clone());
        let capture_line = capture_line.unwrap_or_else(|| command_line.clone());
        Self {
            has_handover: command_line
                .iter()
                .any(|word| ["kho=on", "kho=1", "kho=y"].contains(&word.as_str())),
            firmware: firmware(root),
            grub: match config.as_ref().map(|config| config.stack) {
                Some(Stack::KdumpTools) => GrubSettings::read(root, true),
                Some(Stack::Suse) => GrubSettings::read(root, false),
                Some(Stack::KdumpUtils) | None => None,
            }
            .filter(|_| next_boot.as_ref().is_some_and(NextBoot::is_grub)),
            next_boot,
            units: config.as_ref().and_then(|config| Units::read(root, config.stack)),
            kernel: config.as_ref().map(|config| image(root, &config.kernels)),
            kernel_is_signed: config.as_ref().and_then(|config| {
                let mut head = Vec::new();
                let file = root.file(&image(root, &config.kernels).path).ok()?;
                file.take(signature::HEAD).read_to_end(&mut head).ok()?;
                signature::is_signed(&head)
            }),
            kernel_fault: config.as_ref().and_then(|config| {
                let path = image(root, &config.kernels).path;
                if root.stat(&path).is_some_and(|found| file_type(&found) != FileType::RegularFile) {
                    return Some("it is not a regular file".to_owned());
                }
                kernel_file::fault(&root.file(&path).ok()?)
            }),
            kernel_is_known: config
                .as_ref()
                .and_then(|config| root.file(image(root, &config.kernels).path).ok())
                .is_some_and(|file| kernel_file::is_known(&file)),
            kernel_lacks: kernel_lacks(root, &release),
            has_kexec: find(root, "kexec").is_some(),
            kexec_fault: find(root, "kexec").and_then(|path| program(root, &path).fault),
            crash_hotplug: ["cpu", "memory"]
                .map(|of| root.number(format!("/sys/devices/system/{of}/crash_hotplug")) == Some(1)),
            has_udev_rules: config.as_ref().is_some_and(|config| has_udev_rules(root, config.stack)),
            panic_on_oops_file: panic_on_oops_file(root),
            memmap_devices: memmap_devices(root),
            storage: Storage::read(
                root,
                directory.as_deref(),
                config.as_ref().is_some_and(|config| config.stack == Stack::KdumpTools),
                &capture_line,
            ),
            has_initramfs_maker: match config.as_ref().map(|config| config.stack) {
                Some(Stack::KdumpTools) => find(root, "mkinitramfs").is_some(),
                Some(Stack::KdumpUtils | Stack::Suse) => find(root, "dracut").is_some(),
                None => true,
            },
            has_fail_command: config
                .as_ref()
                .and_then(|config| config.fail_command.as_ref()?.first())
                .is_none_or(|program| find(root, program).is_some()),
            key_fault: ssh.as_ref().and_then(|(_, key)| ssh::fault(root, key)),
            has_ssh: find(root, "ssh").is_some(),
            pstore: Pstore::read(root, &command_line),
            command_line,
            // Unknown is 0, whatever is reserved.
            memory: match kib("MemTotal") {
                0 => 0,
                total => total.saturating_add(reserved.unwrap_or(0)),
            },
            memory_use: MemoryUse::read(&memory_info).unwrap_or(MemoryUse::UNKNOWN),
            cpus: online(&root.text("/sys/devices/system/cpu/online").unwrap_or_default()),
            boot_apic_id: boot_apic_id(&root.text("/proc/cpuinfo").unwrap_or_default()),
            has_cma: root
                .text(format!("/boot/config-{release}"))
                .is_some_and(|text| text.lines().any(|line| line == "CONFIG_CMA=y")),
            reserved,
            default_reservation: crashkernel::installed_default(
                root,
                config.as_ref().map(|config| config.stack),
            ),
            loaded: loaded.iter().any(|path| root.number(path) == Some(1)),
            lockdown: lockdown(&root.text("/sys/kernel/security/lockdown").unwrap_or_default()),

            panic_on_oops: sysctl("panic_on_oops"),
            panic_on_hang: [sysctl("hung_task_panic"), sysctl("softlockup_panic")],
            load_disabled: sysctl("kexec_load_disabled") == Some(1),
            config_modified: config.as_ref().and_then(|config| root.modified(config.stack.file())),
            collector: config.as_ref().and_then(|config| collector(root, config)),
            target_exists: match config.as_ref().map(|config| &config.target) {
                Some(Target::Directory(path) | Target::Raw(path)) => root.exists(path),
                _ => false,
            },
            target_fault: directory.as_ref().and_then(|path| match root.stat(path) {
                Some(found) if file_type(&found) != FileType::Directory => Some("is not a directory"),
                None if root.link(path).is_some() => Some("is a link that leads nowhere"),
                _ => None,
            }),
            has_mount_nfs: find(root, "mount.nfs").is_some(),
            target_unmounted: directory.as_ref().and_then(|path| {
                let wanted = mounts::configured(root);
                let wanted = &mounts::holding(&wanted, path)?.point;
                let mounted = mounts::mounted(root);
                (!mounted.iter().any(|mount| mount.point == *wanted)).then(|| wanted.clone())
            }),
            target_free: directory.as_ref().and_then(|path| {
                let system = path.ancestors().find_map(|path| root.file_system(path))?;
                free_for_root(&system)
            }),
            target_available: directory.as_ref().and_then(|path| {
                let system = path.ancestors().find_map(|path| root.file_system(path))?;
                system.f_bavail.checked_mul(system.f_frsize)
            }),
            target_has_no_inodes: directory.as_ref().is_some_and(|path| {
                // File systems that make inodes as they need them have a total of 0.
                let system = path.ancestors().find_map(|path| root.file_system(path));
                system.is_some_and(|system| system.f_files > 0 && system.f_ffree == 0)
            }),
            has_key: ssh.as_ref().is_some_and(|(_, key)| root.exists(key)),
            host_is_known: ssh.as_ref().is_some_and(|(host, _)| is_known(root, host, config.as_ref())),
            missing_drivers: config
                .as_ref()
                .zip(contents.as_ref())
                .map(|(config, files)| missing_drivers(root, config, directory.as_deref(), files))
                .unwrap_or_default(),
            image_has_collector: contents
                .as_ref()
                .filter(|_| config.as_ref().is_some_and(Config::runs_in_image))
                .and_then(|files| files.any(|name| name.ends_with("/makedumpfile"))),
            image_has_pagehaul: contents
                .as_ref()
                .filter(|_| root.exists(DRACUT_MODULE))
                .and_then(|files| files.any(|name| name.ends_with(IN_IMAGE))),
            contents,
            initramfs,
            load_command,
            refused: None,
            recipients: None,
            level: None,
            target_rate: None,
            has_compressor: config.as_ref().and_then(|config| config.compressor.as_ref()).is_none_or(
                |program| {
                    // kdump-config ignores all others, and those that are not installed.
                    ["bzip2", "gzip", "lz4", "xz"].contains(&program.as_str())
                        && find(root, program).is_some()
                },
            ),
            release,
            config,
        }
    }
}

/// The bytes that a file system can still hold: root, who writes the dump, may use what is kept from others (`f_bavail` is without).
fn free_for_root(system: &rustix::fs::StatVfs) -> Option<u64> {
    system.f_bfree.checked_mul(system.f_frsize)
}

/// A line of `/proc/meminfo`.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The number of CPUs in a list such as `0-3,8`.
fn online(list: &str) -> u32 {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.trim().split(',').filter_map(count).fold(0, u32::saturating_add)
}

fn boot_apic_id(text: &str) -> Option<u32> {
    let first = text.split("\n\n").next()?;
    first.lines().find_map(|line| line.strip_prefix("apicid")?.split_once(':')?.1.trim().parse().ok())
}

/// The selected one is in brackets.
fn lockdown(text: &str) -> Lockdown {
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen) {
        Some("integrity") => Lockdown::Integrity,
        Some("confidentiality") => Lockdown::Confidentiality,
        _ => Lockdown::None,
    }
}

/// The first of the paths that exists, or else the first.
fn image(root: &Root, paths: &[PathBuf]) -> Image {
    let path = paths.iter().find(|path| root.exists(path)).or(paths.first()).cloned().unwrap_or_default();
    Image { modified: root.modified(&path), target: root.link(&path), path }
}

fn find(root: &Root, program: &str) -> Option<PathBuf> {
    if program.starts_with('/') {
        return Some(program.into()).filter(|path: &PathBuf| root.exists(path));
    }
    PATH.iter().map(|directory| PathBuf::from(directory).join(program)).find(|path| root.exists(path))
}

fn collector(root: &Root, config: &Config) -> Option<Collector> {
    let path = find(root, config.collector.first()?)?;
    let replaced = config.stack != Stack::KdumpTools && root.exists(DRACUT_MODULE);
    let program = program(root, &path);
    Some(Collector {
        is_pagehaul: replaced || program.is_pagehaul,
        modified: root.modified(&path),
        refused_option: config.refused_option(&program.bytes),
        fault: program.fault,
        path,
    })
}

/// The dracut module of pagehaul-kdump, which puts pagehaul in makedumpfile's place in the initramfs only.
const DRACUT_MODULE: &str = "/usr/lib/dracut/modules.d/99pagehaul-kdump/module-setup.sh";

/// What it puts there.
const IN_IMAGE: &str = "usr/lib/pagehaul/makedumpfile";

struct Program {
    is_pagehaul: bool,
    fault: Option<String>,
    bytes: Vec<u8>,
}

/// What a program's file shows. makedumpfile's own binary does not have the word pagehaul; scripts that call it do.
fn program(root: &Root, path: &Path) -> Program {
    /// More than any build of either takes.
    const MAX_BYTES: u64 = 64 << 20;
    let mut bytes = Vec::new();
    if let Err(error) = root.file(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes)) {
        let fault = Some(format!("it cannot be read: {error}"));
        return Program { is_pagehaul: false, fault, bytes };
    }
    let is_executable = root.stat(path).is_some_and(|found| found.st_mode & 0o111 != 0);
    let fault = match () {
        () if !is_executable => Some("it is not executable"),
        () if bytes.is_empty() => Some("it is empty"),
        () if is_cut(&bytes) => Some("its file is cut"),
        () => None,
    };
    let is_pagehaul = memchr::memmem::find(&bytes, b"pagehaul").is_some();
    Program { is_pagehaul, fault: fault.map(str::to_owned), bytes }
}

/// Whether a 64-bit little-endian ELF file ends before what its program or section headers name.
fn is_cut(bytes: &[u8]) -> bool {
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return b"\x7fELF\x02\x01".starts_with(bytes);
    }
    let number = |at: usize, length: usize| -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    };
    let end = || -> Option<u64> {
        // e_phoff, e_shoff; e_phentsize, e_phnum; e_shentsize, e_shnum.
        let [programs, sections] = [number(0x20, 8)?, number(0x28, 8)?];
        let (size, count) = (number(0x36, 2)?, number(0x38, 2)?);
        let mut end = sections.checked_add(number(0x3a, 2)?.checked_mul(number(0x3c, 2)?)?)?;
        for header in 0..count {
            let at = usize::try_from(programs.checked_add(header.checked_mul(size)?)?).ok()?;
            // p_offset, p_filesz.
            end = end.max(number(at.checked_add(8)?, 8)?.checked_add(number(at.checked_add(32)?, 8)?)?);
        }
        Some(end)
    };
    end().is_none_or(|end| end > bytes.len() as u64)
}

/// What the configuration of a kernel lacks to offer the memory of a crashed one (`fs/proc/vmcore.c`).
fn kernel_lacks(root: &Root, release: &Release) -> Option<Vec<&'static str>> {
    let text = root.text(format!("/boot/config-{release}"))?;
    let is_set = |name: &&str| text.lines().any(|line| line.strip_prefix(*name) == Some("=y"));
    Some(["CONFIG_CRASH_DUMP", "CONFIG_PROC_VMCORE"].into_iter().filter(|name| !is_set(name)).collect())
}

/// Reads the variable SecureBoot of UEFI, after its four bytes of attributes.
fn firmware(root: &Root) -> Firmware {
    let variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    Firmware {
        is_efi: root.exists("/sys/firmware/efi"),
        secure_boot: root.read(variable).ok().and_then(|bytes| bytes.get(4).map(|byte| *byte == 1)),
    }
}

/// Whether the distribution's udev rules are there, and not replaced by a link to /dev/null.
fn has_udev_rules(root: &Root, stack: Stack) -> bool {
    let name = match stack {
        Stack::KdumpTools => "50-kdump-tools.rules",
        Stack::KdumpUtils => "98-kexec.rules",
        Stack::Suse => "70-kdump.rules",
    };
    let directories =
        ["/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d"];
    let paths = directories.iter().map(|of| Path::new(of).join(name));
    let first = paths.into_iter().find(|path| root.link(path).is_some() || root.exists(path));
    let found = first.and_then(|path| root.stat(path));
    found.is_some_and(|found| root::file_type(&found) == rustix::fs::FileType::RegularFile)
}

/// The file that sets `kernel.panic_on_oops` to 0 at boot, by the order of `sysctl.d(5)`: of files with the same name that of the
/// most important directory counts, and the last of all names decides.
fn panic_on_oops_file(root: &Root) -> Option<PathBuf> {
    let mut files = std::collections::BTreeMap::new();
    let directories =
        ["/usr/lib/sysctl.d", "/lib/sysctl.d", "/usr/local/lib/sysctl.d", "/run/sysctl.d", "/etc/sysctl.d"];
    for directory in directories {
        let names = root.names(directory).into_iter();
        let names = names.filter(|name| name.as_encoded_bytes().ends_with(b".conf"));
        files.extend(names.map(|name| (name.clone(), Path::new(directory).join(name))));
    }
    let mut last = None;
    for path in files.into_values().chain([PathBuf::from("/etc/sysctl.conf")]) {
        for line in root.text(&path).unwrap_or_default().lines() {
            let Some((name, value)) = line.trim().trim_start_matches('-').split_once('=') else { continue };
            if name.trim().replace('/', ".") == "kernel.panic_on_oops" {
                last = Some((path.clone(), value.trim() == "0"));
            }
        }
    }
    last.filter(|(_, is_off)| *is_off).map(|(path, _)| path)
}

/// Devices whose memory holds its own struct pages: persistent memory (`mode` of a pfn or dax device), and memory of dax devices
/// that was added with them (`memmap_on_memory`, Linux 6.8).
fn memmap_devices(root: &Root) -> Vec<String> {
    let with = |directory: &str, file: &str, value: &str| -> Vec<String> {
        let names = root.names(directory).into_iter().filter_map(|name| name.into_string().ok());
        let text = |name: &String| root.text(Path::new(directory).join(name).join(file));
        names.filter(|name| text(name).is_some_and(|text| text.trim() == value)).collect()
    };
    [with("/sys/bus/nd/devices", "mode", "pmem"), with("/sys/bus/dax/devices", "memmap_on_memory", "1")]
        .concat()
}

/// Whether a `known_hosts` file of root or the machine has the host. Hashed names cannot be compared, and count.
fn is_known(root: &Root, host: &str, config: Option<&Config>) -> bool {
    let suse = config.and_then(|config| config.suse.as_ref());
    if suse.is_some_and(|suse| suse.has_host_key) {
        return true;
    }
    let name = host.rsplit('@').next().unwrap_or(host);
    let files = ["/root/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts"];
    // `ssh-keygen -F` of openSUSE's module-setup.sh (`kdump_init_ssh`) reads root's own.
    let files = if suse.is_some() { &files[..1] } else { &files };
    files.iter().filter_map(|path| root.text(path)).any(|text| {
        text.lines()
            .filter_map(|line| line.split_whitespace().next())
            .any(|names| names.starts_with("|1|") || names.split(',').any(|known| host_of(known) == name))
    })
}

/// Debian's capture kernel mounts the root file system from its initramfs, which mounts the rest; the others mount the target.
fn missing_drivers(root: &Root, config: &Config, directory: Option<&Path>, files: &Initramfs) -> Vec<String> {
    let mounted = match config.stack {
        Stack::KdumpTools => Some(Path::new("/")),
        Stack::KdumpUtils | Stack::Suse => directory,
    };
    let needed = mounted.map(|path| drivers::needed(root, path)).unwrap_or_default();
    match files {
        Initramfs::Files(names) => drivers::lacking(&needed, names),
        _ => Vec::new(),
    }
}

/// The host in a name of `known_hosts`: those on another port than 22 are `[host]:port`.
fn host_of(name: &str) -> &str {
    name.strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or(name)
}

impl Facts {
    /// Whose kdump is installed.
    pub fn stack(&self) -> Option<Stack> {
        self.config.as_ref().map(|config| config.stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_kept_for_root_hold_a_dump() {
        let system = |bfree, frsize| {
            let mut system = rustix::fs::statvfs("/").unwrap();
            (system.f_bfree, system.f_bavail, system.f_bsize, system.f_frsize) = (bfree, 0, 1, frsize);
            system
        };
        assert_eq!(free_for_root(&system(1000, 4096)), Some(4_096_000));
        assert_eq!(free_for_root(&system(0, 4096)), Some(0));
        assert_eq!(free_for_root(&system(u64::MAX, 4096)), None);
    }

    #[test]
    fn small_files_are_parsed() {
        assert_eq!(online("0-3,8\n"), 5);
        assert_eq!(online(""), 0);
        assert_eq!(online("3-0,x,4294967295,0-4294967295"), 1);
        assert_eq!(lockdown("none [integrity] confidentiality\n"), Lockdown::Integrity);
        assert_eq!(lockdown("[none] integrity"), Lockdown::None);
        assert_eq!(kib("MemTotal:  1024 kB\nMemFree: 7 kB\n", "MemFree"), Some(7));
        assert_eq!(boot_apic_id("processor\t: 0\napicid\t\t: 16\n\nprocessor: 1\napicid\t: 2\n"), Some(16));
    }
}
