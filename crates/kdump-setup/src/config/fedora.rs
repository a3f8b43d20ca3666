//! `/etc/kdump.conf` and `/etc/sysconfig/kdump`, as kdumpctl and kdump.sh read them (kdump-utils 1.0.61).

use super::{Config, Stack, Target, faults, kdumpctl, words};
use crate::mounts;
use crate::release::Release;
use crate::root::Root;
use crate::shell;

pub(super) fn parse(text: &str, root: &Root, release: &Release) -> Config {
    let stack = Stack::KdumpUtils;
    let mut path = "/var/crash".to_owned();
    let mut key = "/root/.ssh/kdump_id_rsa".to_owned();
    let mut collector = None;
    let mut target = None;
    for line in text.lines() {
        let (name, value) = kdumpctl::option(line);
        match name {
            "path" => path = value.to_owned(),
            "sshkey" => key = value.to_owned(),
            // kdump.sh ignores an empty one.
            "core_collector" if !value.is_empty() => collector = Some(words(value)),
            "ssh" | "nfs" | "raw" | "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "minix" | "virtiofs" => {
                target = Some((name.to_owned(), value.to_owned()));
            }
            _ => {}
        }
    }
    let target = match target {
        None => Target::Directory(path.into()),
        Some((kind, value)) => match kind.as_str() {
            "ssh" => Target::Ssh { host: value, key: key.into() },
            "nfs" => Target::Nfs(value),
            "raw" => Target::Raw(value.into()),
            _ => match mounts::configured(root).into_iter().find(|mount| mount.device == value) {
                Some(mount) => Target::Directory(mount.point.join(path.trim_start_matches('/'))),
                None => Target::Other(format!("{kind} file system {value}")),
            },
        },
    };
    let collector = collector.unwrap_or_else(|| {
        let streams = matches!(target, Target::Ssh { .. } | Target::Raw(_));
        // mkdumprd does not check the default, and kdump.sh appends -F.
        words(if streams {
            "makedumpfile -l --message-level 7 -d 31 -F"
        } else {
            "makedumpfile -l --message-level 7 -d 31"
        })
    });
    let (set, error) = shell::assignments(&root.read(stack.command_line_file()).unwrap_or_default());
    let (fault, not_understood) = faults(stack.command_line_file(), error);
    let append = set.get("KDUMP_COMMANDLINE_APPEND").map_or(stack.default_append(), String::as_str);
    Config {
        stack,
        enabled: true,
        target,
        collector,
        compressor: None,
        kernels: vec![format!("/boot/vmlinuz-{release}").into()],
        command_line: set.get("KDUMP_COMMANDLINE").filter(|line| !line.is_empty()).map(|line| words(line)),
        is_append_set: false,
        fail_command: None,
        fault,
        refused: kdumpctl::refused(text).map(|(line, why)| format!("{}, line {line}: {why}", stack.file())),
        carriage_return: text.split('\n').position(|line| line.ends_with('\r')).map(|line| line + 1),
        not_understood,
        append: words(append),
        own: 0,
        initramfs: vec![
            format!("/boot/initramfs-{release}kdump.img").into(),
            format!("/var/lib/kdump/initramfs-{release}kdump.img").into(),
        ],
        load_command: None,
    }
}
