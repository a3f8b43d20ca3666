//! Lines of `/etc/kdump.conf` for which kdumpctl ends (`parse_config`, kdump-utils 1.0.61).

use std::collections::HashSet;

/// A target of the dump; only one may be given.
const TARGETS: [&str; 10] =
    ["raw", "ext2", "ext3", "ext4", "minix", "btrfs", "xfs", "nfs", "ssh", "virtiofs"];
/// All other options.
const OPTIONS: [&str; 17] = [
    "dracut_args",
    "sshkey",
    "default",
    "path",
    "core_collector",
    "kdump_post",
    "kdump_pre",
    "kdump_emergency",
    "extra_bins",
    "extra_modules",
    "failure_action",
    "final_action",
    "force_rebuild",
    "force_no_rebuild",
    "fence_kdump_args",
    "fence_kdump_nodes",
    "auto_reset_crashkernel",
];
const FAILURE_ACTIONS: [&str; 5] = ["reboot", "halt", "poweroff", "shell", "dump_to_rootfs"];
const FINAL_ACTIONS: [&str; 3] = ["reboot", "halt", "poweroff"];

/// Name and value of a line.
pub(super) fn option(line: &str) -> (&str, &str) {
    let line = line.split('#').next().unwrap_or_default().trim();
    let (name, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (name, value.trim())
}

/// The first line that kdumpctl does not take, and why.
pub(super) fn refused(text: &str) -> Option<(usize, String)> {
    let mut seen = HashSet::new();
    text.lines()
        .map(option)
        .enumerate()
        .find_map(|(index, (name, value))| Some((index + 1, refused_option(name, value, &mut seen)?)))
}

fn refused_option<'a>(name: &'a str, value: &str, seen: &mut HashSet<&'a str>) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let is_target = TARGETS.contains(&name);
    if !is_target && !OPTIONS.contains(&name) {
        return Some(format!("`{name}` is not among the options of kdumpctl"));
    }
    if value.is_empty() {
        return Some(format!("{name} has no value"));
    }
    let is_mount = name == "dracut_args" && value.contains("--mount");
    if (is_target || is_mount) && !seen.insert("target") {
        return Some(format!("{name} is a second target"));
    }
    let option = if name == "default" { "failure_action" } else { name };
    if !is_target && !seen.insert(option) {
        return Some(format!("{name} is given a second time"));
    }
    let actions: &[&str] = match option {
        "failure_action" => &FAILURE_ACTIONS,
        "final_action" => &FINAL_ACTIONS,
        _ => return None,
    };
    (!actions.contains(&value)).then(|| format!("{name} is {value}, and not one of {}", actions.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kdumpctl_refuses_has_a_line() {
        for text in [
            "",
            "# a comment\n\npath /var/crash # another\ncore_collector makedumpfile -l\nnfs host:/export\n",
            "dracut_args --mount \"/dev/vda1 /kdumproot/ ext4 defaults\"\nfailure_action shell\nfinal_action halt\n",
            "default reboot\nssh a@b\nsshkey /root/key\n",
        ] {
            assert_eq!(refused(text), None, "{text}");
        }
        for (text, line, why) in [
            ("path /a\ncorecollector makedumpfile", 2, "`corecollector` is not among the options"),
            ("net a@b", 1, "`net` is not among"),
            ("path", 1, "path has no value"),
            ("raw /dev/vda\next4 /dev/vda1", 2, "ext4 is a second target"),
            ("nfs a:/b\ndracut_args --mount x", 2, "dracut_args is a second target"),
            ("path /a\n\npath /b", 3, "path is given a second time"),
            ("default halt\nfailure_action halt", 2, "failure_action is given a second time"),
            ("failure_action frobnicate", 1, "failure_action is frobnicate, and not one of reboot, halt"),
            ("final_action shell", 1, "final_action is shell"),
        ] {
            let (found, reason) = refused(text).unwrap();
            assert!(found == line && reason.starts_with(why), "{text}: {found} {reason}");
        }
    }
}
