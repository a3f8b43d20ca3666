//! Faults of Fedora's kdump-utils.

use super::edits::Edits;
use super::{Fault, image};
use crate::machine::{Machine, archive};

/// Adds a line to the settings, which may not be there.
fn append(machine: &Machine, line: &str) {
    const FILE: &str = "/etc/sysconfig/kdump";
    if !machine.exists(FILE) {
        machine.write(FILE, "");
    }
    machine.append(FILE, line);
}

/// Has kdumpctl look for changes, which the guests of the lab do not.
fn set(machine: &Machine, line: &str) {
    machine.set(&format!("force_rebuild 0\nforce_no_rebuild 0\n{line}"));
}

pub(super) const FAULTS: &[Fault] = &[
    ("no-kernel", |m| m.remove(&format!("/boot/vmlinuz-{}", m.release()))),
    ("luks2-memory", |m| m.luks("CRYPT-LUKS2-1", "crypt UUID=cccc /etc/key luks\n")),
    ("no-kernel", |m| append(m, "KDUMP_KERNELVER=\"5.0-none\"")),
    ("broken-configuration", |m| append(m, "KDUMP_COMMANDLINE_APPEND=\"irqpoll")),
    ("broken-configuration", |m| append(m, "exit 1")),
    ("broken-configuration", |m| m.set("force_rebuild 2")),
    ("broken-configuration", |m| set(m, "kdump_post /nowhere")),
    ("broken-configuration", |m| set(m, "kdump_pre /etc/fstab")),
    ("broken-configuration", |m| m.set("failure_action shell\r")),
    ("broken-configuration", |m| m.set("dracut_args --mount \"a b xfs\" --mount \"c d xfs\"")),
    ("broken-configuration", |m| {
        append(m, "# Fedora");
        if !m.exists("/usr/bin/kdumpctl") {
            m.program("/usr/bin/kdumpctl", "#!/bin/bash\n");
        }
        m.remove("/etc/kdump.conf");
    }),
    ("no-collector", |m| {
        let empty = archive(&[("usr/bin/makedumpfile", 0o100_755, "")]);
        // As long as the name that it hides.
        let without = image(m, &["init"]).replace("pagehaul/makedumpfile", "pagehaul/makedumpfilx");
        m.damage(&m.initramfs(), empty + &without);
    }),
    ("broken-configuration", |m| m.edit(m.settings(), |text| text.replace('\n', "\r\n"))),
    ("broken-configuration", |m| m.set("corecollector makedumpfile -l -d 31")),
    ("broken-configuration", |m| m.set("failure_action frobnicate")),
    ("no-level", |m| m.set("core_collector makedumpfile -l -d x")),
    ("no-level", |m| m.set("core_collector makedumpfile -l -d 0x1f")),
    ("wrong-level", |m| m.set("core_collector makedumpfile -l -d 32")),
    ("no-target", |m| m.remove("/var/crash")),
    ("no-target", |m| m.set("raw /dev/sdz1\ncore_collector makedumpfile -F -l -d 31")),
    ("no-flattened", |m| {
        m.set("ssh kdump@host\ncore_collector makedumpfile -l -d 31");
        m.ssh_target();
    }),
    ("no-ssh-key", |m| {
        m.set("ssh kdump@host\ncore_collector makedumpfile -F -l -d 31");
        m.write("/root/.ssh/known_hosts", "host ssh-ed25519 AAAA");
    }),
    ("unknown-host", |m| {
        m.set("ssh kdump@host\ncore_collector makedumpfile -F -l -d 31");
        m.ssh_target();
        m.remove("/root/.ssh/known_hosts");
    }),
    ("no-mount-nfs", |m| {
        m.remove_any(&["/usr/sbin/mount.nfs"]);
        m.set("nfs host:/export");
    }),
    ("old-initramfs", |m| m.renew("/etc/kdump.conf")),
    ("old-collector", |m| m.renew("/usr/bin/makedumpfile")),
];
