//! `/etc/default/kdump-tools`, as `/usr/sbin/kdump-config` reads it (kdump-tools 1.8.1 to 1.10.9).

use std::collections::HashMap;

use super::{Config, Stack, Target, ends, faults, words};
use crate::release::Release;
use crate::root::Root;
use crate::shell;

pub(super) fn parse(text: &[u8], root: &Root, release: &Release) -> Config {
    let stack = Stack::KdumpTools;
    let (set, error) = shell::assignments(text);
    let (fault, not_understood) = faults(stack.file(), error);
    let or = |key: &str, default: &str| {
        set.get(key).filter(|value| !value.is_empty()).cloned().unwrap_or_else(|| default.to_owned())
    };
    let directory = expanded(&or("KDUMP_COREDIR", "/var/crash"), &set, root);
    // FTP first, then SSH, then NFS, as savecore tries them.
    let given = |key: &str| set.get(key).filter(|value| !value.is_empty());
    let target = match (given("FTP"), given("SSH"), given("NFS")) {
        (Some(server), ..) => Target::Other(format!("FTP server {server}")),
        (_, Some(host), _) => {
            Target::Ssh { host: host.clone(), key: or("SSH_KEY", "/root/.ssh/kdump_id_rsa").into() }
        }
        (.., Some(export)) => Target::Nfs(export.clone()),
        _ => Target::Directory(directory.clone().into()),
    };
    let mut collector = vec!["makedumpfile".to_owned()];
    collector.extend(words(&or("MAKEDUMP_ARGS", "-F -c -d 31")));
    Config {
        stack,
        enabled: is_enabled(&or("USE_KDUMP", "0")),
        target,
        collector,
        // As it is without the setting.
        compressor: given("KDUMP_COMPRESSION").filter(|program| *program != "none").cloned(),
        kernels: given("KDUMP_KERNEL").map_or_else(
            || vec![format!("/boot/vmlinuz-{release}").into(), format!("/boot/vmlinux-{release}").into()],
            |kernel| vec![kernel.into()],
        ),
        command_line: given("KDUMP_CMDLINE").map(|line| words(line)),
        is_append_set: given("KDUMP_CMDLINE_APPEND").is_some(),
        fail_command: given("KDUMP_FAIL_CMD").map(|command| words(command)),
        fault,
        refused: ends(stack.file(), text),
        carriage_return: None,
        not_understood,
        append: words(&or("KDUMP_CMDLINE_APPEND", stack.default_append())),
        remakes_initramfs: false,
        own: 0,
        initramfs: vec![or("KDUMP_INITRD", "/var/lib/kdump/initrd.img").into()],
        // The default depends on the machine.
        load_command: set.get("KDUMP_CMDLINE_APPEND").map(|_| format!("{directory}/kexec_cmd").into()),
        suse: None,
    }
}

/// `[ "$USE_KDUMP" -ne 0 ] || exit 0` of /etc/init.d/kdump-tools, which ends it for a word such as `yes`, too. A value that a shell
/// computes is not known, and passes.
fn is_enabled(value: &str) -> bool {
    value.contains(['$', '`']) || value.trim().parse::<i64>().is_ok_and(|number| number != 0)
}

/// A directory with what a shell puts in place of variables of the file and of `$(hostname)`. What is computed otherwise ends it:
/// the directory above it is known.
pub(super) fn expanded(directory: &str, set: &HashMap<String, String>, root: &Root) -> String {
    let host = root.text("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut out = directory.replace("$(hostname)", host.trim()).replace("`hostname`", host.trim());
    for (name, value) in set {
        out = out.replace(&format!("${{{name}}}"), value);
    }
    match out.find(['$', '`']) {
        Some(at) => out[..at]
            .rsplit_once('/')
            .map_or("/", |(above, _)| if above.is_empty() { "/" } else { above })
            .to_owned(),
        None => out,
    }
}
