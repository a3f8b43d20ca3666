//! The disks that the capture kernel needs.

use std::path::{Path, PathBuf};

use crate::mounts::{self, Mount};
use crate::root::Root;

/// Disks of disks, such as LVM on LUKS on RAID: more are not followed.
const DEEPEST: usize = 8;

/// A LUKS volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crypt {
    /// Its name in `/dev/mapper`.
    pub name: String,
    /// Whether it is LUKS2, whose Argon2id takes up to 1 GiB.
    pub is_luks2: bool,
    /// What unlocks it without a passphrase, by `/etc/crypttab`.
    pub unlocked_by: Option<String>,
}

/// A device of `/etc/fstab` or of a command line that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// As it is written.
    pub device: String,
    /// What mounts it.
    pub by: String,
}

/// The disks that the capture kernel needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Storage {
    /// What a file system is mounted from and as which type, where a local target is.
    pub mounted: Option<(PathBuf, String)>,
    /// Where it is mounted read-only: the file that says so.
    pub read_only: Option<&'static str>,
    /// The file system of the target, if `/etc/fstab` has it mounted by hand only.
    pub not_at_boot: Option<PathBuf>,
    /// Whether devices can be looked up.
    pub has_devices: bool,
    /// Devices that are mounted at boot, and that are not there.
    pub missing: Vec<Missing>,
    /// LUKS volumes under the root file system (kdump-tools) or the target (others).
    pub crypts: Vec<Crypt>,
    /// Keys of LUKS volumes that the kernel hands over to the capture kernel (Linux 6.16, `crash_dm_crypt_keys`).
    pub handed_keys: u64,
}

impl Storage {
    /// Reads what holds `directory`, if it is local, and the devices that `root=` and `/etc/fstab` name. `mounts_all` says whether
    /// the capture kernel mounts all of fstab, as Debian's does, or the target only.
    pub(crate) fn read(
        root: &Root,
        directory: Option<&Path>,
        mounts_all: bool,
        command_line: &[String],
    ) -> Self {
        let (mounted, configured) = (mounts::mounted(root), mounts::configured(root));
        let of = directory.and_then(|path| mounts::holding(&mounted, path));
        let is_read_only =
            |mount: Option<&Mount>| mount.is_some_and(|mount| mount.options.iter().any(|of| of == "ro"));
        let fstab = directory.and_then(|path| mounts::holding(&configured, path));
        // An entry above the mount says nothing about it.
        let fstab = fstab.filter(|fstab| of.is_none_or(|of| of.point == fstab.point));
        let read_only = match () {
            () if is_read_only(of) => Some("/proc/self/mountinfo"),
            () if is_read_only(fstab) => Some("/etc/fstab"),
            // systemd-remount-fs makes the root file system writable if fstab has it.
            () if mounts_all
                && of.is_some_and(|of| of.point == Path::new("/"))
                && !configured.iter().any(|of| of.point == Path::new("/"))
                && command_line
                    .iter()
                    .rev()
                    .find(|word| ["ro", "rw"].contains(&word.as_str()))
                    .is_some_and(|word| word == "ro") =>
            {
                Some("`ro` on the capture kernel's command line, as /etc/fstab does not have /")
            }
            () => None,
        };
        let has = |mount: &&Mount, option: &str| mount.options.iter().any(|of| of == option);
        let not_at_boot =
            fstab.filter(|of| mounts_all && has(of, "noauto") && !has(of, "x-systemd.automount"));
        let not_at_boot = not_at_boot.map(|of| of.point.clone());
        let has_devices = !root.names("/dev/disk").is_empty();
        let mut missing = Vec::new();
        if has_devices {
            let at_boot = |mount: &&Mount| {
                let is_left_out = |of: &String| {
                    ["noauto", "nofail", "_netdev", "x-systemd.automount"].contains(&of.as_str())
                };
                let is_needed = mounts_all || fstab.is_some_and(|of| of == *mount);
                is_needed && mount.kind != "swap" && !mount.options.iter().any(is_left_out)
            };
            missing.extend(configured.iter().filter(at_boot).filter(|of| is_missing(root, &of.device)).map(
                |of| Missing { device: of.device.clone(), by: format!("/etc/fstab, {}", of.point.display()) },
            ));
            let boots = command_line.iter().rev().find_map(|word| word.strip_prefix("root="));
            missing.extend(boots.filter(|device| is_missing(root, device)).map(|device| Missing {
                device: device.to_owned(),
                by: "root= of the capture kernel's command line".into(),
            }));
        }
        let needed = if mounts_all { Some(Path::new("/")) } else { directory };
        let mut crypts = Vec::new();
        if let Some(mount) = needed.and_then(|path| mounts::holding(&mounted, path)) {
            let crypttab = root.text("/etc/crypttab").unwrap_or_default();
            let device = PathBuf::from(format!("/sys/dev/block/{}", mount.number));
            layers(root, &device, DEEPEST, &crypttab, &mut crypts);
        }
        Self {
            mounted: of.map(|mount| (mount.point.clone(), mount.kind.clone())),
            read_only,
            not_at_boot,
            has_devices,
            missing,
            crypts,
            handed_keys: root.number("/sys/kernel/config/crash_dm_crypt_keys/count").unwrap_or(0),
        }
    }
}

/// Whether a device is named that is not there. Network file systems and the like name none.
fn is_missing(root: &Root, device: &str) -> bool {
    let (kind, id) = match device.split_once('=') {
        Some((kind @ ("UUID" | "LABEL" | "PARTUUID" | "PARTLABEL"), id)) => (kind, id.trim_matches('"')),
        _ => return device.starts_with("/dev/") && !root.exists(device) && root.link(device).is_none(),
    };
    let names = root.names(format!("/dev/disk/by-{}", kind.to_ascii_lowercase()));
    // `PARTUUID=ID/PARTNROFF=1` names a neighbour.
    if names.is_empty() || id.contains('/') {
        return false;
    }
    let link = escaped(id);
    !names.iter().any(|name| name.to_str().is_some_and(|name| name.eq_ignore_ascii_case(&link)))
}

/// A label as udev writes it in the name of a link.
fn escaped(id: &str) -> String {
    let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || !byte.is_ascii() || b"#+-.:=@_".contains(&byte);
    let bytes = id.bytes().flat_map(|byte| match is_kept(byte) {
        true => vec![byte],
        false => format!("\\x{byte:02x}").into_bytes(),
    });
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

/// Adds the LUKS volumes that a device is or is made of.
fn layers(root: &Root, device: &Path, deepest: usize, crypttab: &str, found: &mut Vec<Crypt>) {
    let Some(device) = root.canonical(device) else { return };
    let of = |file: &str| root.text(device.join(file)).unwrap_or_default().trim().to_owned();
    let (uuid, name) = (of("dm/uuid"), of("dm/name"));
    if uuid.starts_with("CRYPT-") && !found.iter().any(|of| of.name == name) {
        let is_luks2 = uuid.starts_with("CRYPT-LUKS2");
        found.push(Crypt { is_luks2, unlocked_by: unlocked_by(crypttab, &name), name });
    }
    for part in root.names(device.join("slaves")).into_iter().take_while(|_| deepest > 0) {
        layers(root, &Path::new("/sys/class/block").join(part), deepest - 1, crypttab, found);
    }
}

/// What unlocks a volume without a passphrase (`crypttab(5)`).
fn unlocked_by(crypttab: &str, name: &str) -> Option<String> {
    let line = crypttab.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    let mut fields = line.split_whitespace().skip(2);
    let key = fields.next().filter(|key| !["none", "-"].contains(key));
    let options = fields.next().unwrap_or_default();
    let tokens = ["tpm2-device=", "fido2-device=", "pkcs11-uri=", "keyscript="];
    let token = options.split(',').find(|option| tokens.iter().any(|token| option.starts_with(token)));
    key.or(token).map(str::to_owned)
}
