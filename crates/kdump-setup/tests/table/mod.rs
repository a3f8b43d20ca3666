//! Faults of a kdump set-up, as edits of a machine's files: of the machines that tests write, and of copies of real guests' files.
#![allow(dead_code)] // each test file uses its own part

mod debian;
pub mod edits;
mod fedora;
mod suse;

use std::fs;

use pagehaul_kdump_setup::{Facts, Stack};

use crate::machine::{DRIVER, Machine, archive, cpio};
pub use edits::Edits;

/// The finding that a fault must lead to, and what is done to the machine.
pub type Fault = (&'static str, fn(&Machine));

/// All faults of a distribution.
pub fn faults(stack: Stack) -> Vec<Fault> {
    let own = match stack {
        Stack::KdumpTools => debian::FAULTS,
        Stack::KdumpUtils => fedora::FAULTS,
        Stack::Suse => suse::FAULTS,
    };
    COMMON.iter().chain(own).copied().collect()
}

/// Whether a fault means something to a machine: its kernel has what is wrong, and it does not have the fault already.
pub fn applies(id: &str, facts: &Facts, found: &[&str]) -> bool {
    // Linux 6.9 finds the boot CPU itself.
    let is_of_old = ["no-disable-cpu-apicid", "wrong-disable-cpu-apicid"].contains(&id);
    let mut numbers = facts.release.0.split('.').map(|number| number.parse().unwrap_or(0));
    let is_new = (numbers.next(), numbers.next()) >= (Some(6), Some(9));
    !(found.contains(&id) || is_of_old && is_new)
}

/// Faults of any distribution.
const COMMON: &[Fault] = &[
    ("next-boot-no-reservation", |m| {
        for file in m.boot_loader() {
            m.edit(&file, |text| edits::each_word(text, "crashkernel=", |_| String::new()));
        }
    }),
    ("reboot-pending", |m| m.cmdline("crashkernel=", "crashkernel=160M")),
    ("several-crashkernel", |m| m.reserve(|word| format!("{word} {word}"))),
    ("no-cma", |m| m.reserve(|word| format!("{word} crashkernel=1G,cma"))),
    ("no-kexec", |m| m.remove_any(&["/sys/kernel/kexec_crash_size", "/sys/kernel/kexec/crash_size"])),
    ("no-reservation", |m| m.kernel_says("crash_size", "0\n")),
    ("not-loaded", |m| m.kernel_says("crash_loaded", "0\n")),
    ("kexec-handover", |m| m.edit("/proc/cmdline", |text| format!("{} kho=on\n", text.trim()))),
    ("memmap-on-device", |m| m.write("/sys/bus/nd/devices/pfn0.1/mode", "pmem\n")),
    ("memmap-on-device", |m| m.write("/sys/bus/dax/devices/dax0.0/memmap_on_memory", "1\n")),
    ("rescue-target", |m| {
        m.link("/etc/systemd/system/default.target", "/usr/lib/systemd/system/rescue.target")
    }),
    ("rescue-target", |m| m.edit("/proc/cmdline", |text| format!("{} single\n", text.trim()))),
    ("unit-masked", |m| m.link(&format!("/etc/systemd/system/{}", m.load_unit()), "/dev/null")),
    ("unit-disabled", |m| m.disable(m.load_unit())),
    ("no-unit", |m| m.remove(&format!("/usr/lib/systemd/system/{}", m.load_unit()))),
    ("no-unit-program", |m| m.remove(&m.program_of(m.load_unit()))),
    ("no-unit-program", |m| m.mode(&m.program_of(m.load_unit()), 0o644)),
    ("no-kexec-program", |m| m.remove(&m.found("kexec"))),
    ("no-kexec-program", |m| m.mode(&m.found("kexec"), 0o644)),
    ("no-kexec-program", |m| m.damage(&m.found("kexec"), "")),
    ("no-vmcore", |m| {
        let off = "# CONFIG_PROC_VMCORE is not set";
        m.edit(&format!("/boot/config-{}", m.release()), |text| text.replace("CONFIG_PROC_VMCORE=y", off));
    }),
    ("no-vmcore", |m| {
        m.edit(&format!("/boot/config-{}", m.release()), |text| text.replace("CONFIG_CRASH_DUMP=y", ""));
    }),
    ("unsigned-kernel", |m| {
        m.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        fs::write(m.path(&m.kernel()), edits::pe(false)).unwrap();
    }),
    ("no-kernel", |m| m.damage(&m.kernel(), "")),
    ("no-kernel", |m| m.damage(&m.kernel(), vec![0; 4096])),
    ("no-kernel", |m| {
        let kernel = m.kernel();
        m.remove(&kernel);
        fs::create_dir(m.path(&kernel)).unwrap();
    }),
    ("no-target", |m| {
        m.remove("/var/crash");
        m.link("/var/crash", "/nowhere");
    }),
    ("other-kernel", |m| m.damage(&m.initramfs(), image_of(m, "5.0.0-other", &["init"]))),
    ("no-initramfs", |m| m.remove(&m.initramfs())),
    ("damaged-initramfs", |m| m.damage(&m.initramfs(), "")),
    ("damaged-initramfs", |m| {
        let whole = m.bytes(&m.initramfs());
        m.damage(&m.initramfs(), &whole[..whole.len() / 2]);
    }),
    ("damaged-initramfs", |m| m.damage(&m.initramfs(), "no archive")),
    // With what is missed besides in an empty one.
    ("no-init", |m| m.damage(&m.initramfs(), image(m, &["etc/hostname"]))),
    // A link to nowhere.
    ("no-init", |m| {
        let link = archive(&[("init", 0o120_777, "usr/lib/systemd/gone")]);
        m.damage(&m.initramfs(), link + &image(m, &[]));
    }),
    ("no-driver", |m| m.damage(&m.initramfs(), cpio(&["init", "usr/lib/pagehaul/makedumpfile"]))),
    ("no-initramfs-maker", |m| {
        let is_debian = m.exists("/etc/default/kdump-tools");
        m.remove(&m.found(if is_debian { "mkinitramfs" } else { "dracut" }));
    }),
    ("no-udev-rules", |m| {
        m.kernel_follows("0\n");
        m.remove(&m.udev_rules());
    }),
    ("no-udev-rules", |m| {
        m.kernel_follows("0\n");
        let rules = m.udev_rules();
        m.remove_any(&[&rules]);
        m.link(&format!("/etc/udev/rules.d/{}", rules.rsplit('/').next().unwrap()), "/dev/null");
    }),
    ("missing-device", |m| m.cmdline("root=", "root=UUID=bbbb")),
    ("missing-device", |m| m.cmdline("root=", "root=/dev/nowhere1")),
    ("target-read-only", |m| {
        m.append("/proc/self/mountinfo", "99 22 8:2 / /var/crash ro - ext4 /dev/sdb1 rw")
    }),
    ("target-read-only", |m| {
        m.append("/proc/self/mountinfo", "99 22 8:2 / /var/crash rw - ext4 /dev/sdb1 ro")
    }),
    ("target-read-only", |m| m.fstab_option("ro")),
    ("target-in-memory", |m| m.append("/proc/self/mountinfo", "99 22 0:99 / /var/crash rw - tmpfs tmpfs rw")),
    ("target-in-memory", |m| m.append("/proc/self/mountinfo", "99 22 0:99 / /var/crash rw - ramfs none rw")),
    ("target-not-mounted", |m| m.append("/etc/fstab", "/dev/sdz1 /var/crash ext4 nofail 0 2")),
    ("luks-passphrase", |m| m.luks("CRYPT-LUKS1-1", "crypt UUID=cccc none luks\n")),
    ("luks-passphrase", |m| m.luks("CRYPT-LUKS1-1", "")),
    ("tpm2-unlock", |m| m.luks("CRYPT-LUKS1-1", "crypt UUID=cccc - tpm2-device=auto\n")),
    ("no-collector", |m| m.remove("/usr/bin/makedumpfile")),
    ("broken-collector", |m| m.mode("/usr/bin/makedumpfile", 0o644)),
    ("broken-collector", |m| m.damage("/usr/bin/makedumpfile", "")),
    ("broken-collector", |m| {
        let whole = fs::read(std::env::current_exe().unwrap()).unwrap();
        m.damage("/usr/bin/makedumpfile", &whole[..whole.len() / 2]);
    }),
    ("no-panic-on-oops", |m| m.write("/proc/sys/kernel/panic_on_oops", "0\n")),
    ("no-panic-on-oops-at-boot", |m| {
        m.write("/usr/lib/sysctl.d/50-a.conf", "kernel.panic_on_oops = 1\n");
        m.write("/etc/sysctl.d/90-b.conf", "# why\nkernel/panic_on_oops=0\n");
    }),
    ("no-panic-on-hang", |m| {
        m.write("/proc/sys/kernel/hung_task_panic", "0\n");
        m.write("/proc/sys/kernel/softlockup_panic", "0\n");
    }),
    ("no-pstore", |m| m.write("/sys/module/pstore/parameters/backend", "(null)\n")),
    ("no-pstore", |m| {
        m.remove_any(&["/sys/module/pstore/parameters/backend"]);
        m.write("/sys/module/efi_pstore/parameters/pstore_disable", "Y\n");
    }),
    ("no-pstore-before-kdump", |m| {
        m.write("/sys/module/pstore/parameters/backend", "efi_pstore\n");
        m.write("/sys/module/kernel/parameters/crash_kexec_post_notifiers", "N\n");
    }),
    ("no-pstore-before-kdump", |m| {
        m.write("/sys/module/pstore/parameters/backend", "efi_pstore\n");
        m.remove_any(&["/sys/module/kernel/parameters/crash_kexec_post_notifiers"]);
    }),
];

/// An initramfs with these files, and all modules that the machine's kernel has loaded.
fn image(machine: &Machine, names: &[&str]) -> String {
    image_of(machine, &machine.release(), names)
}

/// The same with modules of a release.
fn image_of(machine: &Machine, release: &str, names: &[&str]) -> String {
    let loaded = machine.text("/proc/modules");
    let modules = loaded.lines().filter_map(|line| line.split(' ').next());
    let of = |name: &str| format!("usr/lib/modules/{release}/{name}");
    let driver = DRIVER.rsplit('/').next().unwrap();
    let modules: Vec<String> = modules.map(|name| of(&format!("{name}.ko"))).chain([of(driver)]).collect();
    let modules = modules.iter().map(String::as_str).chain(["usr/lib/pagehaul/makedumpfile"]);
    cpio(&names.iter().copied().chain(modules).collect::<Vec<_>>())
}
