//! `/etc/default/kdump-tools`, as `/usr/sbin/kdump-config` reads it (kdump-tools 1.8.1 to 1.10.9).

use super::{Config, Stack, Target, words};
use crate::shell;

pub(super) fn parse(text: &str) -> Config {
    let stack = Stack::KdumpTools;
    let set = shell::assignments(text.as_bytes()).0;
    let or = |key: &str, default: &str| {
        set.get(key).filter(|value| !value.is_empty()).cloned().unwrap_or_else(|| default.to_owned())
    };
    let directory = or("KDUMP_COREDIR", "/var/crash");
    // FTP first, then SSH, then NFS, as savecore tries them.
    let target = match (set.get("FTP"), set.get("SSH"), set.get("NFS")) {
        (Some(server), ..) => Target::Other(format!("FTP server {server}")),
        (_, Some(host), _) => {
            Target::Ssh { host: host.clone(), key: or("SSH_KEY", "/root/.ssh/kdump_id_rsa").into() }
        }
        (.., Some(export)) => Target::Nfs(export.clone()),
        _ => Target::Directory(directory.clone().into()),
    };
    let mut collector = vec!["makedumpfile".to_owned()];
    collector.extend(words(&or("MAKEDUMP_ARGS", "-F -c -d 31")));
    let append = "reset_devices systemd.unit=kdump-tools-dump.service nr_cpus=1 irqpoll usbcore.nousb";
    Config {
        stack,
        enabled: or("USE_KDUMP", "0") != "0",
        target,
        collector,
        compressor: set.get("KDUMP_COMPRESSION").filter(|program| !program.is_empty()).cloned(),
        append: words(&or("KDUMP_CMDLINE_APPEND", append)),
        initramfs: vec![or("KDUMP_INITRD", "/var/lib/kdump/initrd.img").into()],
        // The default depends on the machine.
        load_command: set.get("KDUMP_CMDLINE_APPEND").map(|_| format!("{directory}/kexec_cmd").into()),
    }
}
