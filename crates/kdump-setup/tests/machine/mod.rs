//! A machine's files, for tests.
#![allow(dead_code)] // each test file uses its own part

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use pagehaul_kdump_setup::{Expected, Facts, Root, check};
use tempfile::TempDir;

pub const RELEASE: &str = "6.1.0-50-amd64";

/// The module of its disks' file systems.
pub const DRIVER: &str = "usr/lib/modules/6.1.0-50-amd64/kernel/fs/ext4/ext4.ko";

/// A machine with a set-up that has no faults.
pub struct Machine(TempDir);

impl Machine {
    pub fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write("/proc/cmdline", "root=/dev/sda1 crashkernel=512M-:192M quiet");
        machine.write(
            "/proc/meminfo",
            "MemTotal: 8000000 kB\nMemFree: 7000000 kB\nBuffers: 0 kB\nCached: 900000 kB\n",
        );
        machine.write("/proc/cpuinfo", "processor\t: 0\napicid\t\t: 0\n\nprocessor\t: 1\napicid\t\t: 2\n");
        machine.write(
            "/proc/self/mountinfo",
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 8:2 / /var rw - ext4 /dev/sdb1 rw\n",
        );
        machine.write("/proc/modules", "ext4 1 0 - Live 0x0\n");
        machine.write("/proc/sys/kernel/osrelease", RELEASE);
        for name in ["panic_on_oops", "hung_task_panic", "softlockup_panic"] {
            machine.write(&format!("/proc/sys/kernel/{name}"), "1\n");
        }
        machine.write("/sys/module/pstore/parameters/backend", "efi_pstore\n");
        machine.write("/sys/module/kernel/parameters/crash_kexec_post_notifiers", "Y\n");
        machine.write("/proc/sys/kernel/kexec_load_disabled", "0\n");
        machine.write("/sys/kernel/kexec_crash_size", "201326592\n");
        machine.write("/sys/kernel/kexec_crash_loaded", "1\n");
        machine.write("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
        machine.write("/sys/devices/system/cpu/online", "0-7\n");
        machine.write("/etc/fstab", "/dev/sda1 / ext4 defaults 0 1\n/dev/sdb1 /var ext4 defaults 0 2\n");
        machine.write("/proc/sys/kernel/hostname", "web1\n");
        machine.program("/usr/bin/pagehaul", "#!/bin/sh\n# the word pagehaul is in the binary");
        machine.link("/usr/bin/makedumpfile", "pagehaul");
        for program in
            ["/usr/sbin/kexec", "/usr/sbin/mkinitramfs", "/usr/bin/dracut", "/usr/bin/ssh", "/usr/bin/gzip"]
        {
            machine.program(program, "#!/bin/sh\n");
        }
        for device in ["sda1", "sdb1", "disk/by-uuid/aaaa"] {
            machine.write(&format!("/dev/{device}"), "");
        }
        let options = "CONFIG_CRASH_DUMP=y\nCONFIG_PROC_VMCORE=y\n";
        machine.write(&format!("/boot/config-{RELEASE}"), options);
        machine.write("/usr/lib/systemd/system/multi-user.target", "[Unit]\n");
        machine.write("/usr/lib/systemd/system/rescue.target", "[Unit]\n");
        machine.link("/usr/lib/systemd/system/default.target", "multi-user.target");
        fs::create_dir_all(machine.path("/var/crash")).unwrap();
        machine
    }

    pub fn debian() -> Self {
        let machine = Self::new();
        machine.unit("kdump-tools.service", Some("basic.target.wants"));
        machine.unit("kdump-tools-dump.service", None);
        machine.write("/usr/lib/udev/rules.d/50-kdump-tools.rules", "# rules\n");
        machine.write(&format!("/boot/vmlinuz-{RELEASE}"), "\x7fELF kernel");
        let line = "\tlinux\t/boot/vmlinuz root=UUID=aaaa ro quiet crashkernel=512M-:192M\n";
        let rescue = "\tlinux\t/boot/vmlinuz root=UUID=aaaa ro single\n";
        let entries = format!("menuentry 'Debian' {{\n{line}}}\nmenuentry 'r' {{\n{rescue}}}\n");
        machine.write("/boot/grub/grub.cfg", &generated(&entries));
        machine.write("/etc/default/grub", include_str!("../files/debian-grub"));
        machine.write(
            "/etc/default/grub.d/kdump-tools.cfg",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=512M-:192M\"\n",
        );
        machine.write("/etc/default/kdump-tools", "USE_KDUMP=1\nKDUMP_COREDIR=\"/var/crash\"\n");
        machine.age("/etc/default/kdump-tools");
        machine
            .write(&format!("/var/lib/kdump/initrd.img-{RELEASE}"), &cpio(&["init", "usr/bin/sh", DRIVER]));
        machine.link("/var/lib/kdump/initrd.img", &format!("/var/lib/kdump/initrd.img-{RELEASE}"));
        machine
    }

    pub fn fedora() -> Self {
        let machine = Self::new();
        machine.write("/proc/cmdline", "root=/dev/sda1 crashkernel=256M");
        machine.write("/sys/kernel/kexec_crash_size", "268435456\n");
        machine.write(
            "/etc/kdump.conf",
            "path /var/crash\ncore_collector makedumpfile -l --message-level 7 -d 31\n",
        );
        machine.age("/etc/kdump.conf");
        machine.age("/usr/bin/pagehaul");
        machine.write(
            &format!("/boot/initramfs-{RELEASE}kdump.img"),
            &cpio(&["init", "squashfs-root.img", DRIVER]),
        );
        machine.write(&format!("/boot/vmlinuz-{RELEASE}"), "\x7fELF kernel");
        machine.unit("kdump.service", Some("multi-user.target.wants"));
        machine.write("/usr/lib/udev/rules.d/98-kexec.rules", "# rules\n");
        for name in [RELEASE, "0-rescue"] {
            let words = if name == RELEASE { " crashkernel=256M" } else { "" };
            let text = format!("title Fedora\nlinux /vmlinuz\noptions root=UUID=aaaa ro{words}\n");
            machine.write(&format!("/boot/loader/entries/id-{name}.conf"), &text);
        }
        machine
    }

    pub fn suse() -> Self {
        let machine = Self::new();
        machine.write("/sys/kernel/kexec_crash_size", "536870912\n");
        machine.write("/etc/sysconfig/kdump", "KDUMP_SAVEDIR=\"file:///var/crash\"\nKDUMP_CPUS=\"8\"\n");
        machine.age("/etc/sysconfig/kdump");
        machine.age("/usr/bin/pagehaul");
        machine
            .write("/var/lib/kdump/initrd", &cpio(&["init", "kdump/root", "usr/bin/makedumpfile", DRIVER]));
        machine.write("/var/lib/kdump/kernel", "\x7fELF kernel");
        machine.unit("kdump.service", Some("multi-user.target.wants"));
        machine.write("/usr/lib/udev/rules.d/70-kdump.rules", "# rules\n");
        machine.write(
            "/boot/grub2/grub.cfg",
            &generated("  linux /boot/vmlinuz root=UUID=aaaa crashkernel=512M-:192M quiet\n"),
        );
        machine.write("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"crashkernel=512M-:192M quiet\"\n");
        machine
    }

    pub fn path(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    /// A copy of a directory with a machine's files.
    pub fn copy_of(tree: &Path) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        let copied = Command::new("cp").arg("-a").arg(tree.join(".")).arg(machine.0.path()).status();
        assert!(copied.unwrap().success(), "{}", tree.display());
        machine
    }

    /// Where a path leads to on the machine: a link in its last part may be absolute.
    pub fn resolved(&self, path: &str) -> String {
        let mut path = path.to_owned();
        for _ in 0..8 {
            let Ok(link) = fs::read_link(self.path(&path)) else { break };
            path = Path::new(&path).parent().unwrap().join(link).to_str().unwrap().to_owned();
        }
        path
    }

    pub fn exists(&self, path: &str) -> bool {
        self.path(&self.resolved(path)).exists()
    }

    pub fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(&self.resolved(path))).unwrap()
    }

    pub fn bytes(&self, path: &str) -> Vec<u8> {
        fs::read(self.path(&self.resolved(path))).unwrap()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(&self.resolved(path));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Gives a file other contents, and nothing else.
    pub fn damage(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(&self.resolved(path));
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, bytes).unwrap();
        fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
    }

    pub fn edit(&self, path: &str, change: impl Fn(&str) -> String) {
        self.damage(path, change(&self.text(path)));
    }

    /// Adds a line at the end.
    pub fn append(&self, path: &str, line: &str) {
        self.edit(path, |text| format!("{}\n{line}\n", text.trim_end_matches('\n')));
    }

    pub fn program(&self, path: &str, text: &str) {
        self.write(path, text);
        self.mode(path, 0o755);
    }

    pub fn mode(&self, path: &str, mode: u32) {
        let path = self.path(&self.resolved(path));
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A unit, started by a target.
    fn unit(&self, name: &str, wants: Option<&str>) {
        let file = format!("/usr/lib/systemd/system/{name}");
        let program = format!("/usr/lib/kdump/{}", name.trim_end_matches(".service"));
        self.program(&program, "#!/bin/sh\n");
        self.write(&file, &format!("[Service]\nExecStart=-{program} start\n"));
        if let Some(wants) = wants {
            fs::create_dir_all(self.path(&format!("/etc/systemd/system/{wants}"))).unwrap();
            self.link(&format!("/etc/systemd/system/{wants}/{name}"), &file);
        }
    }

    pub fn link(&self, path: &str, target: &str) {
        let link = self.path(path);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&link);
        symlink(target, link).unwrap();
    }

    pub fn remove(&self, path: &str) {
        fs::remove_file(self.path(path)).or_else(|_| fs::remove_dir_all(self.path(path))).unwrap();
    }

    /// Removes what some machines have.
    pub fn remove_any(&self, paths: &[&str]) {
        paths
            .iter()
            .filter(|path| fs::symlink_metadata(self.path(path)).is_ok())
            .for_each(|path| self.remove(path));
    }

    /// Makes a file an hour older than those written now.
    pub fn age(&self, path: &str) {
        self.date(path, SystemTime::now() - Duration::from_secs(3600));
    }

    /// Makes a file an hour newer than those written now.
    pub fn renew(&self, path: &str) {
        self.date(path, SystemTime::now() + Duration::from_secs(3600));
    }

    fn date(&self, path: &str, time: SystemTime) {
        let path = self.path(&self.resolved(path));
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    pub fn facts(&self) -> Facts {
        Facts::read(&Root::open(self.0.path()).unwrap())
    }

    pub fn findings(&self, expected: Expected) -> Vec<&'static str> {
        check(&self.facts(), &expected).iter().map(|finding| finding.id).collect()
    }
}

/// A `grub.cfg` with entries as `grub-mkconfig` makes it.
fn generated(entries: &str) -> String {
    format!("### BEGIN /etc/grub.d/10_linux ###\n{entries}### END /etc/grub.d/10_linux ###\n")
}

/// An archive of empty files, as the kernel unpacks it.
pub fn cpio(names: &[&str]) -> String {
    archive(&names.iter().map(|name| (*name, 0, "")).collect::<Vec<_>>())
}

/// An archive of files: name, mode (0 if it does not matter), bytes.
pub fn archive(files: &[(&str, u32, &str)]) -> String {
    let mut out = String::new();
    let pad = |out: &mut String| *out += &"\0".repeat(out.len().next_multiple_of(4) - out.len());
    for (name, mode, bytes) in files.iter().chain(&[("TRAILER!!!", 0, "")]) {
        out += "070701";
        for field in 0..13 {
            let value = match field {
                1 => *mode as usize,
                6 => bytes.len(),
                11 => name.len() + 1,
                _ => 0,
            };
            out += &format!("{value:08x}");
        }
        out += name;
        out += "\0";
        pad(&mut out);
        out += bytes;
        pad(&mut out);
    }
    out
}
