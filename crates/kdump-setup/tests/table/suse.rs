//! Faults of openSUSE's kdump.

use super::Fault;
use super::edits::Edits;

pub(super) const FAULTS: &[Fault] = &[
    ("boot-loader-pending", |m| m.append("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=quiet")),
    ("boot-loader-pending", |m| m.append("/etc/default/grub", "GRUB_CMDLINE_LINUX=\"crashkernel=1G\"")),
    ("no-kernel", |m| {
        m.remove_any(&["/var/lib/kdump/kernel", &format!("/boot/vmlinuz-{}", m.release())]);
    }),
    ("broken-configuration", |m| m.set("KDUMP_SAVEDIR='/var/crash")),
    ("copies-memory", |m| m.set("KDUMP_DUMPFORMAT=raw")),
    ("no-dump", |m| m.set("KDUMP_DUMPFORMAT=none")),
    ("broken-configuration", |m| m.set("KDUMP_DUMPLEVEL=x")),
    ("no-level", |m| m.set("KDUMP_DUMPLEVEL=32")),
    ("no-level", |m| m.set("KDUMP_DUMPLEVEL=-1")),
    // A shell waits in the capture kernel.
    ("no-level", |m| m.set("KDUMP_DUMPLEVEL=32\nKDUMP_CONTINUE_ON_ERROR=false")),
    ("no-level", |m| m.set("MAKEDUMPFILE_OPTIONS=\"-d x\"")),
    ("broken-configuration", |m| m.set("KDUMP_DUMPFORMAT=RAW")),
    ("no-target", |m| m.set("KDUMP_SAVEDIR=var/crash")),
    ("no-target", |m| m.set("KDUMP_SAVEDIR=http://x/y")),
    ("target-full", |m| m.set("KDUMP_FREE_DISK_SIZE=99999999999")),
    ("disabled", |m| m.set("KDUMP_FADUMP=true")),
    ("broken-configuration", |m| m.set("exit 0")),
    ("no-kernel", |m| m.set("KDUMP_KERNELVER=5.0-other")),
    ("unknown-host", |m| {
        m.set("KDUMP_SAVEDIR=ssh://kdump@host/crash\nKDUMP_SSH_IDENTITY=kdump_id_rsa");
        m.ssh_target();
        m.remove("/root/.ssh/known_hosts");
    }),
    ("no-ssh-key", |m| {
        m.set("KDUMP_SAVEDIR=ssh://kdump@host/crash");
        m.write("/root/.ssh/known_hosts", "host ssh-ed25519 AAAA");
    }),
    ("no-mount-nfs", |m| {
        m.remove_any(&["/usr/sbin/mount.nfs"]);
        m.set("KDUMP_SAVEDIR=nfs://host/export");
    }),
    ("old-initramfs", |m| m.renew("/etc/sysconfig/kdump")),
    ("old-collector", |m| m.renew("/usr/bin/makedumpfile")),
];
