//! Faults of Fedora's kdump-utils.

use super::Fault;
use super::edits::Edits;

pub(super) const FAULTS: &[Fault] = &[
    ("no-kernel", |m| m.remove(&format!("/boot/vmlinuz-{}", m.release()))),
    ("luks2-memory", |m| m.luks("CRYPT-LUKS2-1", "crypt UUID=cccc /etc/key luks\n")),
    ("broken-configuration", |m| {
        if !m.exists("/etc/sysconfig/kdump") {
            m.write("/etc/sysconfig/kdump", "");
        }
        m.append("/etc/sysconfig/kdump", "KDUMP_COMMANDLINE_APPEND=\"irqpoll");
    }),
    ("broken-configuration", |m| m.edit(m.settings(), |text| text.replace('\n', "\r\n"))),
    ("broken-configuration", |m| m.set("corecollector makedumpfile -l -d 31")),
    ("broken-configuration", |m| m.set("failure_action frobnicate")),
    ("no-level", |m| m.set("core_collector makedumpfile -l -d x")),
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
