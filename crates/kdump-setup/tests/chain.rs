//! Each fault of a link is found, alone; set-ups of three distributions without faults are proved, as far as files can.

mod machine;
mod table;

use std::fs;

use machine::{Machine, RELEASE};
use pagehaul_kdump_setup::{Chain, Expected, Link, Severity, Stack, State, examine};
use table::edits::pe;
use table::{Edits, faults};

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
        m.ssh_target();
    });
    let handed = with(Machine::fedora(), |m| {
        m.luks("CRYPT-LUKS2-1", "");
        m.write("/sys/kernel/config/crash_dm_crypt_keys/count", "1\n");
        m.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        fs::write(m.path(&format!("/boot/vmlinuz-{RELEASE}")), pe(true)).unwrap();
    });
    // Mounted by systemd when something looks at it.
    let automount = with(Machine::debian(), |m| {
        let options = "noauto,x-systemd.automount";
        m.write("/etc/fstab", &format!("/dev/sda1 / ext4 defaults\n/dev/sdb1 /var ext4 {options} 0 2\n"));
    });
    // What is empty is the default.
    let empty = with(Machine::suse(), |m| {
        m.set(
            "KDUMP_DUMPLEVEL=\"\"\nKDUMP_DUMPFORMAT=\"\"\nKDUMP_FREE_DISK_SIZE=\"\"\nKDUMP_SSH_IDENTITY=\"\"",
        );
        m.set("KDUMP_SAVEDIR=scp://kdump@host/crash");
        m.ssh_target();
        fs::rename(m.path("/root/.ssh/kdump_id_rsa"), m.path("/root/.ssh/id_ed25519")).unwrap();
    });
    vec![
        ("debian", Machine::debian()),
        ("debian, defaults of its packages", defaults),
        ("debian to ssh", ssh),
        ("fedora", Machine::fedora()),
        ("fedora, LUKS with handed keys, lockdown", handed),
        ("suse", Machine::suse()),
        ("suse, empty values, to scp", empty),
        ("debian, automount", automount),
    ]
}

fn configure(machine: &Machine, text: &str) {
    machine.write("/etc/default/kdump-tools", text);
    machine.age("/etc/default/kdump-tools");
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

#[test]
fn each_fault_is_found_alone() {
    let machines: [(Stack, fn() -> Machine); 3] = [
        (Stack::KdumpTools, Machine::debian),
        (Stack::KdumpUtils, Machine::fedora),
        (Stack::Suse, Machine::suse),
    ];
    let mut count = 0;
    for (stack, machine) in machines {
        for (number, (id, inject)) in faults(stack).into_iter().enumerate() {
            let machine = machine();
            inject(&machine);
            let chain = chain(&machine);
            let found: Vec<_> = chain.findings.iter().map(|finding| finding.id).collect();
            assert_eq!(found, [id], "{stack:?}, fault {number}");
            let finding = &chain.findings[0];
            let proof = chain.proofs.iter().find(|proof| proof.link == finding.link).unwrap();
            assert_eq!(
                proof.state == State::Broken,
                finding.severity == Severity::Problem,
                "{stack:?}, {id}: {proof:?}"
            );
            count += 1;
        }
    }
    // The guide has this number (docs/guide/src/check.md).
    assert_eq!(count, 278);
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
    configure(&machine, "USE_KDUMP=1\nKDUMP_COMPRESSION=none\n");
    assert!(ids(&machine).is_empty());
    configure(&machine, "USE_KDUMP=1\nKDUMP_COMPRESSION=zstd\n");
    machine.program("/usr/bin/zstd", "#!/bin/sh\n");
    assert_eq!(ids(&machine), ["no-compressor"]);
}

#[test]
fn a_dump_that_makedumpfile_does_not_compress_is_not_compressed_twice() {
    let machine = Machine::debian();
    for (options, expected) in [
        ("-d 31", ""),
        ("-F -d 31 -E", ""),
        ("-F -dc", ""),
        ("-lF -d 31", "compressed-twice"),
        ("-F -z -d 31", "compressed-twice"),
    ] {
        configure(&machine, &format!("USE_KDUMP=1\nKDUMP_COMPRESSION=gzip\nMAKEDUMP_ARGS=\"{options}\"\n"));
        let found: Vec<_> = ids(&machine).into_iter().filter(|id| *id != "no-level").collect();
        assert_eq!(found.join(" "), expected, "{options}");
    }
}

#[test]
fn an_option_that_no_makedumpfile_has_is_found_on_debian() {
    let machine = Machine::debian();
    machine.remove("/usr/bin/makedumpfile");
    machine.program("/usr/bin/makedumpfile", "#!/bin/sh\n");
    configure(&machine, "USE_KDUMP=1\nMAKEDUMP_ARGS=\"-F -c --bogus -d 31\"\n");
    assert_eq!(ids(&machine), ["refused-option", "not-pagehaul"]);
    configure(&machine, "USE_KDUMP=1\nexit 0\n");
    assert_eq!(ids(&machine), ["broken-configuration", "not-pagehaul"]);
}

#[test]
fn memory_is_compared_with_the_default_of_the_installed_package() {
    let machine = Machine::debian();
    machine.write("/sys/kernel/kexec_crash_size", "134217728\n");
    assert_eq!(ids(&machine), ["small-reservation"]);
    machine.write(
        "/var/lib/dpkg/status",
        "Package: kdump-tools\nStatus: install ok installed\nVersion: 1:1.8.1\n\n",
    );
    assert_eq!(ids(&machine), [""; 0]);
}
