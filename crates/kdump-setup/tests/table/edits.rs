//! Edits that mean the same on any machine.

use crate::machine::Machine;

/// Edits of a machine's files, and where it has them.
pub trait Edits {
    fn release(&self) -> String;
    /// The configuration of its distribution's kdump.
    fn settings(&self) -> &'static str;
    /// Adds lines to it; in /etc/kdump.conf, in place of those with the same options.
    fn set(&self, line: &str);
    /// Sets the parameters that kdump-tools appends, and loads the capture kernel with them if it says what it loaded.
    fn set_append(&self, words: &str);
    /// Replaces the words of the kernel's command line that begin so.
    fn cmdline(&self, beginning: &str, word: &str);
    /// Replaces each `crashkernel=`, of this boot, the next one, and in the settings.
    fn reserve(&self, change: fn(&str) -> String);
    /// Generated files of the boot loader.
    fn boot_loader(&self) -> Vec<String>;
    /// Makes the files of a boot loader, for guests that start without one.
    fn add_boot_loader(&self);
    /// Sets `/sys/kernel/kexec_NAME`, and where newer kernels have it.
    fn kernel_says(&self, name: &str, value: &str);
    /// Whether the kernel follows CPUs and memory that come and go.
    fn kernel_follows(&self, value: &str);
    /// A program of the machine.
    fn found(&self, program: &str) -> String;
    fn kernel(&self) -> String;
    fn initramfs(&self) -> String;
    fn udev_rules(&self) -> String;
    /// The unit that loads the capture kernel.
    fn load_unit(&self) -> &'static str;
    /// What a unit starts.
    fn program_of(&self, unit: &str) -> String;
    /// Removes what starts a unit at boot.
    fn disable(&self, unit: &str);
    /// Adds an option to the line of fstab that holds the target.
    fn fstab_option(&self, option: &str);
    /// Puts the file systems on a LUKS volume.
    fn luks(&self, uuid: &str, crypttab: &str);
    /// A host that is known, and a key for it.
    fn ssh_target(&self);
    fn ssh_key(&self, text: &str);
}

pub const KEY: &str = "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\n";
const GRUB_SETTINGS: [&str; 2] = ["/etc/default/grub", "/etc/default/grub.d/kdump-tools.cfg"];

impl Edits for Machine {
    fn release(&self) -> String {
        self.text("/proc/sys/kernel/osrelease").trim().to_owned()
    }

    fn settings(&self) -> &'static str {
        let files = ["/etc/default/kdump-tools", "/etc/kdump.conf", "/etc/sysconfig/kdump"];
        files.into_iter().find(|file| self.exists(file)).unwrap()
    }

    fn set(&self, line: &str) {
        let file = self.settings();
        if file != "/etc/kdump.conf" {
            return self.append(file, line);
        }
        // An option is given once, and one target.
        let name = |line: &str| match line.split_whitespace().next().unwrap_or_default() {
            "raw" | "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "nfs" | "ssh" => "target".to_owned(),
            "dracut_args" if line.contains("--mount") => "target".to_owned(),
            name => name.to_owned(),
        };
        let set: Vec<String> = line.lines().map(name).collect();
        self.edit(file, |text| {
            let others = text.lines().filter(|line| !set.contains(&name(line)));
            others.chain(line.lines()).map(|line| format!("{line}\n")).collect()
        });
    }

    fn set_append(&self, words: &str) {
        self.set(&format!("KDUMP_CMDLINE_APPEND=\"{words}\""));
        if self.exists("/var/crash/kexec_cmd") {
            self.append("/var/crash/kexec_cmd", words);
        }
    }

    fn cmdline(&self, beginning: &str, word: &str) {
        self.edit("/proc/cmdline", |text| each_word(text, beginning, |_| word.to_owned()));
    }

    fn reserve(&self, change: fn(&str) -> String) {
        let settings = GRUB_SETTINGS.map(str::to_owned);
        for file in self.boot_loader().into_iter().chain(settings).chain(["/proc/cmdline".to_owned()]) {
            if self.exists(&file) {
                self.edit(&file, |text| each_word(text, "crashkernel=", change));
            }
        }
    }

    fn boot_loader(&self) -> Vec<String> {
        let entry = format!("/boot/loader/entries/id-{}.conf", self.release());
        let files = ["/boot/grub/grub.cfg".to_owned(), "/boot/grub2/grub.cfg".to_owned(), entry];
        files.into_iter().filter(|file| self.exists(file)).collect()
    }

    fn add_boot_loader(&self) {
        if !self.boot_loader().is_empty() {
            return;
        }
        let line = self.text("/proc/cmdline");
        let words: Vec<&str> =
            line.split_whitespace().filter(|word| word.starts_with("crashkernel=")).collect();
        let words = words.join(" ");
        let entry = format!(
            "### BEGIN /etc/grub.d/10_linux ###\n\tlinux\t/boot/vmlinuz root=/dev/vda ro quiet {words}\n\
             ### END /etc/grub.d/10_linux ###\n"
        );
        let settings = format!("GRUB_CMDLINE_LINUX_DEFAULT=\"quiet {words}\"\n");
        match self.settings() {
            "/etc/default/kdump-tools" => {
                self.write("/boot/grub/grub.cfg", &entry);
                self.write("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n");
                let settings =
                    format!("GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT {words}\"\n");
                self.write("/etc/default/grub.d/kdump-tools.cfg", &settings);
            }
            "/etc/kdump.conf" => {
                let text = format!("title Fedora\nlinux /vmlinuz\noptions root=/dev/vda ro {words}\n");
                self.write(&format!("/boot/loader/entries/id-{}.conf", self.release()), &text);
            }
            _ => {
                self.write("/boot/grub2/grub.cfg", &entry);
                self.remove_any(&["/etc/default/grub.d"]);
                self.write("/etc/default/grub", &settings);
            }
        }
    }

    fn kernel_says(&self, name: &str, value: &str) {
        for file in [format!("/sys/kernel/kexec_{name}"), format!("/sys/kernel/kexec/{name}")] {
            if self.exists(&file) {
                self.write(&file, value);
            }
        }
    }

    fn kernel_follows(&self, value: &str) {
        for of in ["cpu", "memory"] {
            self.write(&format!("/sys/devices/system/{of}/crash_hotplug"), value);
        }
    }

    fn found(&self, program: &str) -> String {
        let paths = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(|of| format!("{of}/{program}"));
        paths.into_iter().find(|path| self.exists(path)).unwrap()
    }

    fn kernel(&self) -> String {
        let paths = ["/var/lib/kdump/kernel".to_owned(), format!("/boot/vmlinuz-{}", self.release())];
        self.resolved(paths.iter().find(|path| self.exists(path)).unwrap())
    }

    fn initramfs(&self) -> String {
        let release = self.release();
        let paths = [
            format!("/var/lib/kdump/initrd.img-{release}"),
            format!("/boot/initramfs-{release}kdump.img"),
            format!("/var/lib/kdump/initramfs-{release}kdump.img"),
            "/var/lib/kdump/initrd".to_owned(),
        ];
        self.resolved(paths.iter().find(|path| self.exists(path)).unwrap())
    }

    fn udev_rules(&self) -> String {
        let names = ["50-kdump-tools.rules", "98-kexec.rules", "70-kdump.rules"];
        let directories = ["/run/udev/rules.d", "/usr/lib/udev/rules.d"];
        let mut paths = directories.iter().flat_map(|of| names.map(|name| format!("{of}/{name}")));
        paths.find(|path| self.exists(path)).unwrap()
    }

    fn load_unit(&self) -> &'static str {
        if self.exists("/etc/default/kdump-tools") { "kdump-tools.service" } else { "kdump.service" }
    }

    fn program_of(&self, unit: &str) -> String {
        let text = self.text(&format!("/usr/lib/systemd/system/{unit}"));
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        line.trim_start_matches('-').split(' ').next().unwrap().to_owned()
    }

    fn disable(&self, unit: &str) {
        for target in ["basic", "multi-user"] {
            self.remove_any(&[&format!("/etc/systemd/system/{target}.target.wants/{unit}")]);
        }
    }

    fn fstab_option(&self, option: &str) {
        let text = self.text("/etc/fstab");
        let points = ["/var/crash", "/var", "/"];
        let holds = |line: &&str| {
            line.split_whitespace().nth(1).and_then(|of| points.iter().position(|at| *at == of))
        };
        let line = text.lines().filter(|line| holds(line).is_some()).min_by_key(holds).unwrap().to_owned();
        let fields: Vec<&str> = line.split_whitespace().collect();
        let changed = format!("{} {} {} {},{option} 0 2", fields[0], fields[1], fields[2], fields[3]);
        self.edit("/etc/fstab", |text| text.replace(&line, &changed));
    }

    fn luks(&self, uuid: &str, crypttab: &str) {
        self.write("/sys/devices/virtual/block/dm-0/dm/uuid", &format!("{uuid}-crypt\n"));
        self.write("/sys/devices/virtual/block/dm-0/dm/name", "crypt\n");
        for line in self.text("/proc/self/mountinfo").lines() {
            let number = line.split(' ').nth(2).unwrap();
            self.link(&format!("/sys/dev/block/{number}"), "../../devices/virtual/block/dm-0");
        }
        self.write("/etc/crypttab", crypttab);
    }

    fn ssh_target(&self) {
        self.ssh_key(KEY);
        self.write("/root/.ssh/known_hosts", "host ssh-ed25519 AAAA");
    }

    fn ssh_key(&self, text: &str) {
        self.write("/root/.ssh/kdump_id_rsa", text);
        self.mode("/root/.ssh/kdump_id_rsa", 0o600);
    }
}

/// Replaces each word that begins so; words end at blanks and quotation marks.
pub fn each_word(text: &str, beginning: &str, change: impl Fn(&str) -> String) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(beginning) {
        let (before, word) = rest.split_at(at);
        let end = word.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(word.len());
        out += before;
        out += &change(&word[..end]);
        rest = &word[end..];
    }
    out + rest
}

/// The head of a kernel for UEFI.
pub fn pe(is_signed: bool) -> Vec<u8> {
    let mut head = vec![0; 4096];
    head[..2].copy_from_slice(b"MZ");
    head[0x3c] = 0x40;
    head[0x40..0x44].copy_from_slice(b"PE\0\0");
    head[0x58..0x5a].copy_from_slice(&0x20b_u16.to_le_bytes());
    head[0x58 + 108] = 16;
    head[0x58 + 112 + 36] = u8::from(is_signed) * 8;
    head
}
