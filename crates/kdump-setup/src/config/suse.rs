//! `/etc/sysconfig/kdump`, as mkdumprd and kdump-save read it (openSUSE kdump 2.1.9).

use super::{Config, Stack, Target, faults, words};
use crate::release::Release;
use crate::shell;

pub(super) fn parse(text: &[u8], release: &Release) -> Config {
    let stack = Stack::Suse;
    let (set, error) = shell::assignments(text);
    let (fault, not_understood) = faults(stack.file(), error);
    let or = |key: &str, default: &str| set.get(key).cloned().unwrap_or_else(|| default.to_owned());
    let url = or("KDUMP_SAVEDIR", "/var/crash");
    let target = match url.split_once("://") {
        None => Target::Directory(url.into()),
        Some(("file", path)) => Target::Directory(path.into()),
        Some(("nfs", export)) => match export.split_once('/') {
            Some((host, path)) => Target::Nfs(format!("{host}:/{path}")),
            None => Target::Other(url.clone()),
        },
        Some(("ssh" | "sftp", rest)) => Target::Ssh {
            host: rest.split('/').next().unwrap_or_default().to_owned(),
            key: set.get("KDUMP_SSH_IDENTITY").map_or("/root/.ssh/id_rsa", String::as_str).into(),
        },
        Some(_) => Target::Other(url.clone()),
    };
    let filtered = |codec| {
        let options = or("MAKEDUMPFILE_OPTIONS", "");
        words(&format!("makedumpfile -F {codec} -d {} {options}", or("KDUMP_DUMPLEVEL", "31")))
    };
    let collector = match or("KDUMP_DUMPFORMAT", "compressed").to_ascii_lowercase().as_str() {
        "none" => Vec::new(),
        "raw" => words("cat /proc/vmcore"),
        "elf" => filtered("-E"),
        "lzo" => filtered("-l"),
        "snappy" => filtered("-p"),
        "zstd" => filtered("-z"),
        _ => filtered("-c"),
    };
    let command_line = set.get("KDUMP_COMMANDLINE").filter(|line| !line.is_empty()).map(|line| words(line));
    let mut append = Vec::new();
    // A whole command line is in place of these, too.
    if command_line.is_none() {
        append = words(
            "sysrq=yes reset_devices acpi_no_memhotplug cgroup_disable=memory nokaslr numa=off irqpoll",
        );
        match or(Stack::SUSE_CPUS, "32").as_str() {
            // Empty is the default as well.
            "" => append.push("nr_cpus=32".into()),
            "0" => {}
            cpus => append.push(format!("nr_cpus={cpus}")),
        }
    }
    let own = append.len();
    append.extend(words(&or("KDUMP_COMMANDLINE_APPEND", "")));
    Config {
        stack,
        enabled: true,
        target,
        collector,
        compressor: None,
        kernels: vec!["/var/lib/kdump/kernel".into(), format!("/boot/vmlinuz-{release}").into()],
        command_line,
        is_append_set: false,
        fail_command: None,
        fault,
        refused: None,
        carriage_return: None,
        not_understood,
        append,
        remakes_initramfs: false,
        own,
        initramfs: vec!["/var/lib/kdump/initrd".into()],
        load_command: None,
    }
}
