//! `/etc/kdump.conf` and `/etc/sysconfig/kdump`, as kdumpctl and kdump.sh read them (kdump-utils 1.0.61).

use super::kdump_conf::{BLANKS, Line, Reader};
use super::{Config, Stack, Target, ends, faults, kdump_kernel, kdump_target, kdumpctl, words};
use crate::mounts;
use crate::release::Release;
use crate::root::Root;
use crate::shell;

pub(super) fn parse(text: &str, root: &Root, release: &Release) -> Config {
    let stack = Stack::KdumpUtils;
    let reader = Reader::installed(root);
    let lines = reader.lines(text);
    let mut path = "/var/crash".to_owned();
    let mut key = "/root/.ssh/kdump_id_rsa".to_owned();
    let mut collector = None;
    let mut target = None;
    for line in &lines {
        // A CR that is a part of the value has a finding.
        let value = line.value.trim_end_matches('\r');
        match line.name {
            "path" => path = value.to_owned(),
            "sshkey" => key = value.to_owned(),
            // kdump.sh ignores an empty one.
            "core_collector" if !value.is_empty() => {
                let words = value.split(BLANKS).filter(|word| !word.is_empty());
                collector = Some(words.map(str::to_owned).collect());
            }
            // Without a value it has a finding.
            "ssh" | "nfs" | "raw" | "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "minix" | "virtiofs"
                if !value.is_empty() =>
            {
                target = Some((line.number, line.name, value.to_owned()));
            }
            _ => {}
        }
    }
    let wrong_type = target
        .as_ref()
        .and_then(|(number, kind, value)| Some((*number, kdump_target::wrong_type(kind, value, root)?)));
    let target = match target {
        None => Target::Directory(path.into()),
        Some((_, kind, value)) => match kind {
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
    let settings = root.read(stack.command_line_file()).unwrap_or_default();
    let (set, error) = shell::assignments(&settings);
    let (fault, not_understood) = faults(stack.command_line_file(), error);
    let kernel = kdump_kernel::Files::of(&set, root, release);
    let computed = kernel.computed.map(|name| format!("{}: {name} is computed", stack.command_line_file()));
    let append = set.get("KDUMP_COMMANDLINE_APPEND").map_or(stack.default_append(), String::as_str);
    let refused = kdumpctl::refused(&lines, root).or(wrong_type);
    Config {
        stack,
        enabled: true,
        target,
        collector,
        compressor: None,
        kernels: kernel.kernels,
        command_line: set.get("KDUMP_COMMANDLINE").filter(|line| !line.is_empty()).map(|line| words(line)),
        is_append_set: false,
        fail_command: None,
        fault,
        refused: refused
            .map(|(line, why)| format!("{}, line {line}: {why}", stack.file()))
            .or_else(|| ends(stack.command_line_file(), &settings)),
        carriage_return: lines.iter().find(|line| line.has_return).map(|line| line.number),
        not_understood: not_understood.or(computed).or_else(|| unclear(reader, &lines)),
        append: words(append),
        // need_initrd_rebuild.
        remakes_initramfs: !lines.iter().any(|line| line.name == "force_no_rebuild" && line.value == "1"),
        own: 0,
        initramfs: kernel.initramfs,
        load_command: None,
        suse: None,
    }
}

/// A line that may mean two things.
fn unclear(reader: Reader, lines: &[Line<'_>]) -> Option<String> {
    let file = Stack::KdumpUtils.file();
    let quoted = lines.iter().find(|line| line.is_quoted && reader == Reader::Unknown).map(|line| {
        let why =
            "whether the scripts remove the quotation marks, as those of kdump-utils 1.0.60 and newer do";
        (line.number, why)
    });
    let (line, why) = quoted.or_else(|| kdumpctl::unchecked_programs(lines))?;
    Some(format!("{file}, line {line}: {why}"))
}
