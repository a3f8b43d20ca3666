//! Lines of `/etc/kdump.conf` for which kdumpctl ends (`parse_config`, `need_initrd_rebuild`, `check_files_modified`, kdump-utils 1.0.61).

use std::collections::HashSet;

use super::kdump_conf::{BLANKS, Line};
use crate::root::Root;

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

/// Values of these are words, or do not decide whether a dump is written: a CR at the end is a part of the last word only.
const KEEP_RETURN: [&str; 7] = [
    "core_collector",
    "dracut_args",
    "extra_modules",
    "sshkey",
    "auto_reset_crashkernel",
    "fence_kdump_args",
    "fence_kdump_nodes",
];
/// Programs that have to be there: all words of the values.
const PROGRAMS: [&str; 4] = ["kdump_post", "kdump_pre", "kdump_emergency", "extra_bins"];

/// The first line that kdumpctl does not take, and why.
pub(super) fn refused(lines: &[Line<'_>], root: &Root) -> Option<(usize, String)> {
    let mut seen = HashSet::new();
    let found = lines.iter().find_map(|line| Some((line.number, refused_option(line, &mut seen)?)));
    found.or_else(|| refused_rebuild(lines)).or_else(|| missing_program(lines, root))
}

/// Why an option is not one that kdumpctl takes, or not with this value.
fn refused_option<'a>(line: &Line<'a>, seen: &mut HashSet<&'a str>) -> Option<String> {
    let (name, value) = (line.name, line.value);
    let is_target = TARGETS.contains(&name);
    if !is_target && !OPTIONS.contains(&name) {
        return Some(format!("`{}` is not among the options of kdumpctl", name.trim_end()));
    }
    if value.is_empty() {
        return Some(format!("{name} has no value"));
    }
    let is_word = !value.contains(BLANKS) && name == "core_collector";
    if value.ends_with('\r') && (is_word || !KEEP_RETURN.contains(&name)) {
        return Some(format!("the line ends in CR and LF, and the CR is a part of the value of {name}"));
    }
    let is_mount = name == "dracut_args" && value.contains("--mount");
    if is_mount && let Some(reason) = refused_mount(value) {
        return Some(reason);
    }
    if (is_target || is_mount) && !seen.insert("target") {
        return Some(format!("{name} is a second target"));
    }
    let option = if name == "default" { "failure_action" } else { name };
    if !is_target && !seen.insert(option) {
        return Some(format!("{name} is given a second time"));
    }
    // check_ssh_config.
    if name == "ssh" && !value.contains('@') {
        return Some(format!("ssh is {value}, and not a user and a host such as user@host"));
    }
    let actions: &[&str] = match option {
        "failure_action" => &FAILURE_ACTIONS,
        "final_action" => &FINAL_ACTIONS,
        "force_rebuild" | "force_no_rebuild" => &["0", "1"],
        _ => return None,
    };
    (!actions.contains(&value)).then(|| format!("{name} is {value}, and not one of {}", actions.join(", ")))
}

/// Why kdumpctl does not take `--mount` in `dracut_args` for a target: there are several, or one without what `get_dracut_args_fstype`
/// and `get_dracut_args_target` look for.
fn refused_mount(value: &str) -> Option<String> {
    if value.matches("--mount").count() > 1 {
        return Some("dracut_args has --mount more than once".to_owned());
    }
    // What follows a blank and one character; without a blank in it, `cut` prints all of it.
    let mut rest = value.split_once("--mount ").map_or("", |(_, rest)| rest).chars();
    rest.next();
    let rest = rest.as_str();
    let field = |number| if rest.contains(' ') { rest.split(' ').nth(number) } else { Some(rest) };
    let is_target = [0, 2].into_iter().all(|number| field(number).is_some_and(|field| !field.is_empty()));
    (!is_target).then(|| "dracut_args has --mount without a device and a type of file system".to_owned())
}

/// `need_initrd_rebuild`.
fn refused_rebuild(lines: &[Line<'_>]) -> Option<(usize, String)> {
    let both = ["force_rebuild", "force_no_rebuild"];
    let mut set = lines.iter().filter(|line| both.contains(&line.name) && line.value == "1");
    let (_, second) = (set.next()?, set.next()?);
    Some((second.number, "force_rebuild and force_no_rebuild are both 1".to_owned()))
}

/// A program that `check_exist` or `check_executable` does not find.
fn missing_program(lines: &[Line<'_>], root: &Root) -> Option<(usize, String)> {
    if is_rebuild_forced(lines) {
        return None;
    }
    lines.iter().filter(|line| PROGRAMS.contains(&line.name)).find_map(|line| {
        let words = line.value.split(BLANKS).filter(|word| !word.is_empty() && !is_pattern(word));
        words
            .filter_map(|word| Some((word, fault(root, word)?)))
            .next()
            .map(|(word, fault)| (line.number, format!("{word} of {} {fault}", line.name)))
    })
}

/// The first line whose programs are not looked up.
pub(super) fn unchecked_programs(lines: &[Line<'_>]) -> Option<(usize, &'static str)> {
    let line = lines.iter().find(|line| {
        PROGRAMS.contains(&line.name)
            && (is_rebuild_forced(lines) || line.value.split(BLANKS).any(is_pattern))
    })?;
    let why = match is_rebuild_forced(lines) {
        true => {
            "whether its programs exist: with force_rebuild or force_no_rebuild kdumpctl does not check them"
        }
        false => "whether its programs exist: a shell expands the names",
    };
    Some((line.number, why))
}

/// Whether kdumpctl does not look for changes, and not at programs.
fn is_rebuild_forced(lines: &[Line<'_>]) -> bool {
    lines.iter().any(|line| ["force_rebuild", "force_no_rebuild"].contains(&line.name) && line.value == "1")
}

fn is_pattern(word: &str) -> bool {
    word.contains(['*', '?', '['])
}

/// What is wrong with a program. kdumpctl runs in `/`, to which a relative name belongs.
fn fault(root: &Root, word: &str) -> Option<&'static str> {
    match root.stat(word) {
        None => Some("does not exist"),
        Some(found) if found.st_mode & 0o111 == 0 => Some("is not executable"),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::kdump_conf::Reader;
    use super::*;

    fn refused(text: &str) -> Option<(usize, String)> {
        super::refused(&Reader::Shell.lines(text), &Root::absent())
    }

    #[test]
    fn what_kdumpctl_refuses_has_a_line() {
        for text in [
            "",
            "# a comment\n\npath /var/crash # another\ncore_collector makedumpfile -l\nnfs host:/export\n",
            "dracut_args --mount \"/dev/vda1 /kdumproot/ ext4 defaults\"\nfailure_action shell\nfinal_action halt\n",
            "default reboot\nssh a@b\nsshkey /root/key\n",
            "failure_action \"shell\"\npath \"/var/crash\"\ncore_collector \"makedumpfile -l -d 31\"\nforce_rebuild 0\n",
            "# comment\r\n\r\ncore_collector makedumpfile -l -d 31\r\nfailure_action shell # the default\r\n",
            "force_rebuild 1\nkdump_post /nowhere\n",
            "extra_bins /usr/lib/*/nowhere\n",
        ] {
            assert_eq!(refused(text), None, "{text}");
        }
        for (text, line, why) in [
            ("path /a\ncorecollector makedumpfile", 2, "`corecollector` is not among the options"),
            ("net a@b", 1, "`net` is not among"),
            ("path", 1, "path has no value"),
            ("raw /dev/vda\next4 /dev/vda1", 2, "ext4 is a second target"),
            ("nfs a:/b\ndracut_args --mount \"a b xfs\"", 2, "dracut_args is a second target"),
            ("path /a\n\npath /b", 3, "path is given a second time"),
            ("default halt\nfailure_action halt", 2, "failure_action is given a second time"),
            ("failure_action frobnicate", 1, "failure_action is frobnicate, and not one of reboot, halt"),
            ("final_action shell", 1, "final_action is shell"),
            ("failure_action 'shell'", 1, "failure_action is 'shell'"),
            ("failure_action\u{a0}shell", 1, "`failure_action\u{a0}shell` is not among"),
            ("path \"\"", 1, "path has no value"),
            ("path\r\n", 1, "`path` is not among"),
            (
                "\nfailure_action shell\r\n",
                2,
                "the line ends in CR and LF, and the CR is a part of the value of failure_",
            ),
            ("path /a\r\n", 1, "the line ends in CR"),
            ("core_collector makedumpfile\r\n", 1, "the line ends in CR"),
            ("force_rebuild 2", 1, "force_rebuild is 2"),
            ("force_no_rebuild yes", 1, "force_no_rebuild is yes, and not one of 0, 1"),
            ("force_rebuild 1\nforce_no_rebuild 1", 2, "force_rebuild and force_no_rebuild are both 1"),
            (
                "dracut_args --mount \"a b xfs\" --mount \"c d xfs\"",
                1,
                "dracut_args has --mount more than once",
            ),
            ("dracut_args --mount \"a b\"", 1, "dracut_args has --mount without"),
            ("dracut_args --mount=a", 1, "dracut_args has --mount without"),
            ("ssh host", 1, "ssh is host, and not"),
            ("kdump_pre /nowhere", 1, "/nowhere of kdump_pre does not exist"),
            ("extra_bins /nowhere \\", 1, "/nowhere of extra_bins does not exist"),
        ] {
            let (found, reason) = refused(text).unwrap();
            assert!(found == line && reason.starts_with(why), "{text}: {found} {reason}");
        }
    }
}
