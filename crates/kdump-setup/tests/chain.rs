//! Each fault of a link is found, alone; set-ups of three distributions without faults are proved, as far as files can.

mod machine;

use std::fs;

use machine::{Machine, RELEASE, cpio};
use pagehaul_kdump_setup::{Chain, Expected, Link, Severity, State, examine};

fn chain(machine: &Machine) -> Chain {
    examine(&machine.facts(), &Expected::default())
}

fn ids(machine: &Machine) -> Vec<&'static str> {
    chain(machine).findings.iter().map(|finding| finding.id).collect()
}

/// Debian with GRUB, systemd, merged /usr and its packages' defaults; the others as their installers leave them.
fn healthy() -> Vec<(&'static str, Machine)> {
    let with = |machine: Machine, change: fn(&Machine)| {
        change(&machine);
        machine
    };
    let defaults = with(Machine::debian(), |m| {
        for name in ["hung_task_panic", "softlockup_panic"] {
            m.write(&format!("/proc/sys/kernel/{name}"), "0\n");
        }
        // Without pagehaul.
        m.remove("/usr/bin/makedumpfile");
        m.program("/usr/bin/makedumpfile", "#!/bin/sh\n");
        configure(m, "USE_KDUMP=1\nKDUMP_COREDIR=\"/var/crash/$(hostname)\"\n");
    });
    let ssh = with(Machine::debian(), |m| {
        configure(m, "USE_KDUMP=1\nSSH=\"kdump@host\"\n");
        ssh_target(m);
    });
    let handed = with(Machine::fedora(), |m| {
        luks(m, "CRYPT-LUKS2-1", "");
        m.write("/sys/kernel/config/crash_dm_crypt_keys/count", "1\n");
        m.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        fs::write(m.path(&format!("/boot/vmlinuz-{RELEASE}")), pe(true)).unwrap();
    });
    // Mounted by systemd when something looks at it.
    let automount = with(Machine::debian(), |m| {
        let options = "noauto,x-systemd.automount";
        m.write("/etc/fstab", &format!("/dev/sda1 / ext4 defaults\n/dev/sdb1 /var ext4 {options} 0 2\n"));
    });
    vec![
        ("debian", Machine::debian()),
        ("debian, defaults of its packages", defaults),
        ("debian to ssh", ssh),
        ("fedora", Machine::fedora()),
        ("fedora, LUKS with handed keys, lockdown", handed),
        ("suse", Machine::suse()),
        ("debian, automount", automount),
    ]
}

fn configure(machine: &Machine, text: &str) {
    machine.write("/etc/default/kdump-tools", text);
    machine.age("/etc/default/kdump-tools");
}

fn ssh_target(machine: &Machine) {
    key(machine, "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\n");
    machine.write("/root/.ssh/known_hosts", "host ssh-ed25519 AAAA");
}

fn key(machine: &Machine, text: &str) {
    machine.write("/root/.ssh/kdump_id_rsa", text);
    machine.mode("/root/.ssh/kdump_id_rsa", 0o600);
}

/// Puts the file systems on a LUKS volume.
fn luks(machine: &Machine, uuid: &str, crypttab: &str) {
    machine.write("/sys/devices/virtual/block/dm-0/dm/uuid", &format!("{uuid}-crypt\n"));
    machine.write("/sys/devices/virtual/block/dm-0/dm/name", "crypt\n");
    for number in ["8:1", "8:2"] {
        fs::create_dir_all(machine.path("/sys/dev/block")).unwrap();
        machine.link(&format!("/sys/dev/block/{number}"), "../../devices/virtual/block/dm-0");
    }
    machine.write("/etc/crypttab", crypttab);
}

#[test]
fn healthy_set_ups_have_neither_problems_nor_warnings() {
    for (name, machine) in healthy() {
        let chain = chain(&machine);
        let serious = chain.findings.iter().filter(|finding| finding.severity != Severity::Advice);
        assert_eq!(serious.count(), 0, "{name}: {:?}", chain.findings);
        for proof in &chain.proofs {
            assert_ne!(proof.state, State::Broken, "{name}: {proof:?}");
            assert!(!proof.evidence.is_empty() || !proof.not_checked.is_empty(), "{name}: {proof:?}");
        }
    }
    // Nothing of this one is left to a crash but what is on the network, which it does not use.
    let proofs = chain(&Machine::debian()).proofs;
    let open: Vec<_> = proofs.iter().filter(|proof| proof.state != State::Proved).collect();
    assert!(open.is_empty(), "{open:?}");
    assert_eq!(proofs.iter().map(|proof| proof.link).collect::<Vec<_>>(), Link::ALL);
}

/// What is done to a machine, and the finding that it must lead to.
type Fault = (&'static str, fn(&Machine));

const DEBIAN: &[Fault] = &[
    ("unit-masked", |m| m.link("/etc/systemd/system/kdump-tools.service", "/dev/null")),
    ("unit-masked", |m| m.link("/etc/systemd/system/kdump-tools-dump.service", "/dev/null")),
    ("unit-masked", |m| m.write("/etc/systemd/system/kdump-tools-dump.service", "")),
    ("unit-disabled", |m| m.remove("/etc/systemd/system/basic.target.wants/kdump-tools.service")),
    ("no-unit", |m| m.remove("/usr/lib/systemd/system/kdump-tools-dump.service")),
    ("rescue-target", |m| {
        m.link("/etc/systemd/system/default.target", "/usr/lib/systemd/system/rescue.target")
    }),
    ("rescue-target", |m| m.write("/proc/cmdline", "root=UUID=aaaa crashkernel=512M-:192M single")),
    ("no-kexec-program", |m| m.remove("/usr/sbin/kexec")),
    ("broken-collector", |m| m.mode("/usr/bin/pagehaul", 0o644)),
    ("broken-collector", |m| m.write("/usr/bin/pagehaul", "")),
    ("broken-collector", |m| {
        let whole = fs::read(std::env::current_exe().unwrap()).unwrap();
        fs::write(m.path("/usr/bin/pagehaul"), &whole[..whole.len() / 2]).unwrap();
    }),
    ("target-read-only", |m| {
        m.write(
            "/proc/self/mountinfo",
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 8:2 / /var ro - ext4 /dev/sdb1 rw\n",
        );
    }),
    ("target-read-only", |m| {
        m.write("/etc/fstab", "/dev/sda1 / ext4 defaults\n/dev/sdb1 /var ext4 ro 0 2\n")
    }),
    ("target-in-memory", |m| {
        m.write(
            "/proc/self/mountinfo",
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:9 / /var rw - tmpfs tmpfs rw\n",
        );
    }),
    ("missing-device", |m| m.write("/proc/cmdline", "root=UUID=bbbb crashkernel=512M-:192M")),
    ("missing-device", |m| {
        m.write(
            "/etc/fstab",
            "/dev/sda1 / ext4 defaults\n/dev/sdb1 /var ext4 defaults\nUUID=bbbb /home xfs defaults\n",
        );
    }),
    ("next-boot-no-reservation", |m| m.write("/boot/grub/grub.cfg", "linux /boot/vmlinuz root=UUID=aaaa\n")),
    ("reboot-pending", |m| m.write("/boot/grub/grub.cfg", "linux /boot/vmlinuz crashkernel=256M\n")),
    ("no-root-parameter", |m| configure(m, "USE_KDUMP=1\nKDUMP_CMDLINE=\"quiet\"\n")),
    ("wrong-dump-unit", |m| {
        configure(
            m,
            "USE_KDUMP=1\nKDUMP_CMDLINE_APPEND=\"nr_cpus=1 reset_devices systemd.unit=rescue.target\"\n",
        )
    }),
    ("no-dump-unit", |m| configure(m, "USE_KDUMP=1\nKDUMP_CMDLINE_APPEND=\"nr_cpus=1 reset_devices\"\n")),
    ("broken-configuration", |m| configure(m, "USE_KDUMP=1\nKDUMP_NUM_DUMPS=\"3\nSSH_KEY=/x\n")),
    ("damaged-initramfs", |m| m.write(&format!("/var/lib/kdump/initrd.img-{RELEASE}"), "")),
    ("damaged-initramfs", |m| {
        let whole = cpio(&["init", "usr/bin/sh"]);
        m.write(&format!("/var/lib/kdump/initrd.img-{RELEASE}"), &whole[..whole.len() - 60]);
    }),
    ("no-init", |m| m.write(&format!("/var/lib/kdump/initrd.img-{RELEASE}"), &cpio(&["etc/hostname"]))),
    ("no-kernel", |m| configure(m, "USE_KDUMP=1\nKDUMP_KERNEL=/var/lib/kdump/vmlinuz\n")),
    ("no-kernel", |m| {
        configure(m, "USE_KDUMP=1\nKDUMP_KERNEL=/var/lib/kdump/vmlinuz\n");
        m.link("/var/lib/kdump/vmlinuz", "/boot/vmlinuz-6.0");
    }),
    ("no-udev-rules", |m| m.remove("/usr/lib/udev/rules.d/50-kdump-tools.rules")),
    ("no-udev-rules", |m| {
        fs::create_dir_all(m.path("/etc/udev/rules.d")).unwrap();
        m.link("/etc/udev/rules.d/50-kdump-tools.rules", "/dev/null");
    }),
    ("needless-reload", |m| {
        for of in ["cpu", "memory"] {
            m.write(&format!("/sys/devices/system/{of}/crash_hotplug"), "1\n");
        }
    }),
    ("no-panic-on-oops-at-boot", |m| {
        m.write("/usr/lib/sysctl.d/50-a.conf", "kernel.panic_on_oops = 1\n");
        m.write("/etc/sysctl.d/90-b.conf", "# why\nkernel/panic_on_oops=0\n");
    }),
    ("no-level", |m| configure(m, "USE_KDUMP=1\nMAKEDUMP_ARGS=\"-F -c -d x\"\n")),
    ("ssh-key-unusable", |m| {
        configure(m, "USE_KDUMP=1\nSSH=kdump@host\n");
        ssh_target(m);
        key(m, "");
    }),
    ("ssh-key-unusable", |m| {
        configure(m, "USE_KDUMP=1\nSSH=kdump@host\n");
        ssh_target(m);
        key(m, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMII\n-----END ENCRYPTED PRIVATE KEY-----\n");
    }),
    ("ssh-key-unusable", |m| {
        configure(m, "USE_KDUMP=1\nSSH=kdump@host\n");
        ssh_target(m);
        m.mode("/root/.ssh/kdump_id_rsa", 0o644);
    }),
    ("no-ssh-client", |m| {
        configure(m, "USE_KDUMP=1\nSSH=kdump@host\n");
        ssh_target(m);
        m.remove("/usr/bin/ssh");
    }),
    ("no-fail-command", |m| configure(m, "USE_KDUMP=1\nKDUMP_FAIL_CMD=\"rebooot -f\"\n")),
    ("luks-passphrase", |m| luks(m, "CRYPT-LUKS1-1", "crypt UUID=cccc none luks\n")),
    ("tpm2-unlock", |m| luks(m, "CRYPT-LUKS1-1", "crypt UUID=cccc - tpm2-device=auto\n")),
    ("luks2-memory", |m| luks(m, "CRYPT-LUKS2-1", "crypt UUID=cccc /etc/key luks\n")),
    ("kexec-handover", |m| m.write("/proc/cmdline", "root=UUID=aaaa crashkernel=512M-:192M kho=on")),
    ("memmap-on-device", |m| m.write("/sys/bus/nd/devices/pfn0.1/mode", "pmem\n")),
    ("memmap-on-device", |m| m.write("/sys/bus/dax/devices/dax0.0/memmap_on_memory", "1\n")),
    ("no-cma", |m| {
        m.write("/proc/cmdline", "root=UUID=aaaa crashkernel=512M-:192M crashkernel=1G,cma");
        m.write("/boot/grub/grub.cfg", "linux /vmlinuz crashkernel=512M-:192M crashkernel=1G,cma\n");
    }),
    ("no-initramfs-maker", |m| m.remove("/usr/sbin/mkinitramfs")),
    ("no-kexec-program", |m| m.mode("/usr/sbin/kexec", 0o644)),
    ("no-unit-program", |m| m.remove("/usr/lib/kdump/kdump-tools")),
    ("no-unit-program", |m| m.mode("/usr/lib/kdump/kdump-tools-dump", 0o644)),
    ("no-vmcore", |m| {
        m.write(&format!("/boot/config-{RELEASE}"), "CONFIG_CRASH_DUMP=y\n# CONFIG_PROC_VMCORE is not set\n");
    }),
    ("unsigned-kernel", |m| {
        m.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        fs::write(m.path(&format!("/boot/vmlinuz-{RELEASE}")), pe(false)).unwrap();
    }),
    ("target-not-at-boot", |m| {
        m.write("/etc/fstab", "/dev/sda1 / ext4 defaults\n/dev/sdb1 /var ext4 noauto 0 2\n");
    }),
    ("target-read-only", |m| {
        m.write("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
        m.write("/proc/cmdline", "root=UUID=aaaa ro crashkernel=512M-:192M");
        m.write("/etc/fstab", "# nothing\n");
    }),
];

/// The head of a kernel for UEFI.
fn pe(is_signed: bool) -> Vec<u8> {
    let mut head = vec![0; 4096];
    head[..2].copy_from_slice(b"MZ");
    head[0x3c] = 0x40;
    head[0x40..0x44].copy_from_slice(b"PE\0\0");
    head[0x58..0x5a].copy_from_slice(&0x20b_u16.to_le_bytes());
    head[0x58 + 108] = 16;
    head[0x58 + 112 + 36] = u8::from(is_signed) * 8;
    head
}

const FEDORA: &[Fault] = &[
    ("no-unit-program", |m| m.remove("/usr/lib/kdump/kdump")),
    ("unsigned-kernel", |m| {
        m.write("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
        fs::write(m.path(&format!("/boot/vmlinuz-{RELEASE}")), pe(false)).unwrap();
    }),
    ("unit-masked", |m| m.link("/etc/systemd/system/kdump.service", "/dev/null")),
    ("unit-disabled", |m| m.remove("/etc/systemd/system/multi-user.target.wants/kdump.service")),
    ("next-boot-no-reservation", |m| {
        m.write(&format!("/boot/loader/entries/id-{RELEASE}.conf"), "options root=UUID=aaaa ro\n");
    }),
    ("no-kernel", |m| m.remove(&format!("/boot/vmlinuz-{RELEASE}"))),
    ("damaged-initramfs", |m| m.write(&format!("/boot/initramfs-{RELEASE}kdump.img"), "")),
    ("broken-configuration", |m| m.write("/etc/sysconfig/kdump", "KDUMP_COMMANDLINE_APPEND=\"irqpoll\n")),
    ("no-udev-rules", |m| m.remove("/usr/lib/udev/rules.d/98-kexec.rules")),
    ("no-target", |m| m.remove("/var/crash")),
];

const SUSE: &[Fault] = &[
    ("no-kexec-program", |m| m.write("/usr/sbin/kexec", "")),
    ("no-vmcore", |m| m.write(&format!("/boot/config-{RELEASE}"), "CONFIG_PROC_VMCORE=y\n")),
    ("unit-disabled", |m| m.remove("/etc/systemd/system/multi-user.target.wants/kdump.service")),
    ("no-kernel", |m| m.remove("/var/lib/kdump/kernel")),
    ("damaged-initramfs", |m| m.write("/var/lib/kdump/initrd", "cut")),
    ("next-boot-no-reservation", |m| m.write("/boot/grub2/grub.cfg", "linux /boot/vmlinuz quiet\n")),
    ("broken-configuration", |m| {
        m.write("/etc/sysconfig/kdump", "KDUMP_SAVEDIR='/var/crash\n");
        m.age("/etc/sysconfig/kdump");
    }),
];

#[test]
fn each_fault_is_found_alone() {
    let debian = DEBIAN.iter().map(|fault| (Machine::debian(), fault));
    let fedora = FEDORA.iter().map(|fault| (Machine::fedora(), fault));
    let suse = SUSE.iter().map(|fault| (Machine::suse(), fault));
    for (number, (machine, (id, inject))) in debian.chain(fedora).chain(suse).enumerate() {
        inject(&machine);
        assert_eq!(ids(&machine), [*id], "fault {number}");
        let chain = chain(&machine);
        let finding = &chain.findings[0];
        let proof = chain.proofs.iter().find(|proof| proof.link == finding.link).unwrap();
        assert_eq!(proof.state == State::Broken, finding.severity == Severity::Problem, "{id}: {proof:?}");
    }
}

#[test]
fn what_cannot_be_read_is_not_checked_and_said_so() {
    let machine = Machine::debian();
    for path in ["/boot/grub/grub.cfg", "/proc/self/mountinfo", "/usr/lib/systemd", "/etc/systemd", "/dev"] {
        machine.remove(path);
    }
    configure(&machine, "USE_KDUMP=1\ncase x in esac\n");
    let chain = chain(&machine);
    for link in [Link::CommandLine, Link::Units, Link::Mounts] {
        let proof = chain.proofs.iter().find(|proof| proof.link == link).unwrap();
        assert_eq!(proof.state, State::NotChecked, "{proof:?}");
    }
    let text = format!("{:?}", chain.proofs);
    assert!(text.contains("line 2: `case`"), "{text}");
}

#[test]
fn labels_are_compared_as_udev_writes_them() {
    let machine = Machine::debian();
    let fstab =
        "/dev/sda1 / ext4 defaults\n/dev/sdb1 /var ext4 defaults\nLABEL=my\\040disk /srv xfs defaults\n";
    machine.write("/etc/fstab", &format!("{fstab}UUID=AAAA /data ext4 defaults\nUUID=b /x ext4 nofail\n"));
    machine.write("/dev/disk/by-label/my\\x20disk", "");
    assert_eq!(ids(&machine), [""; 0]);
    machine.remove("/dev/disk/by-label/my\\x20disk");
    machine.write("/dev/disk/by-label/other", "");
    assert_eq!(ids(&machine), ["missing-device"]);
}

#[test]
fn user_memory_in_cma_is_named_where_the_level_keeps_it() {
    let machine = Machine::fedora();
    machine.write("/proc/cmdline", "root=/dev/sda1 crashkernel=256M crashkernel=1G,cma");
    let entry = format!("/boot/loader/entries/id-{RELEASE}.conf");
    machine.write(&entry, "options root=UUID=aaaa crashkernel=256M crashkernel=1G,cma\n");
    let mut facts = machine.facts();
    facts.release = pagehaul_kdump_setup::Release("6.17.0".into());
    facts.has_cma = true;
    for (level, expected) in [(31, ""), (17, "cma-loses-user-memory")] {
        facts.level = Some(level);
        let chain = examine(&facts, &Expected::default());
        let found: Vec<_> =
            chain.findings.iter().map(|finding| finding.id).filter(|id| *id != "other-kernel").collect();
        assert_eq!(found.join(" "), expected);
    }
}

#[test]
fn compression_that_kdump_tools_does_not_do_is_not_double() {
    let machine = Machine::debian();
    configure(&machine, "USE_KDUMP=1\nKDUMP_COMPRESSION=zstd\n");
    machine.program("/usr/bin/zstd", "#!/bin/sh\n");
    assert_eq!(ids(&machine), ["no-compressor"]);
}
