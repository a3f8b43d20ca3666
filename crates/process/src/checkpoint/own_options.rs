//! Options of CRIU that pagehaul sets itself. Among the arguments of users, they would reach for other processes, or move
//! images, log and pidfile away from where pagehaul expects them.

use crate::error::ProcessError;

/// Of all actions, without the dashes. CRIU reads any beginning of a name that only one option has, and an option's "no-" form.
const ALWAYS: [&str; 7] = ["tree", "pid", "pidfile", "images-dir", "log-file", "verbosity", "stream"];
const ALWAYS_SHORT: &str = "tDov";
/// Of `criu dump`.
const DUMP: [&str; 3] = ["action-script", "leave-running", "leave-stopped"];
const DUMP_SHORT: &str = "Rs";
/// Of `criu restore`.
const RESTORE: [&str; 2] = ["restore-detached", "daemon"];
const RESTORE_SHORT: &str = "d";
/// Short options after which the rest of an argument is a value.
const WITH_VALUE: &str = "tDorJWLMvx";

/// What CRIU is run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Dump,
    Restore,
}

/// Refuses arguments of users that are options of pagehaul's.
pub(super) fn check(action: Action, arguments: &[String]) -> Result<(), ProcessError> {
    match arguments.iter().find_map(|argument| own_option(action, argument)) {
        Some(option) => Err(ProcessError::OwnOption(option)),
        None => Ok(()),
    }
}

/// The option of pagehaul's that an argument is, as it is written there.
fn own_option(action: Action, argument: &str) -> Option<String> {
    let (long, short) = match action {
        Action::Dump => (&DUMP[..], DUMP_SHORT),
        Action::Restore => (&RESTORE[..], RESTORE_SHORT),
    };
    if let Some(rest) = argument.strip_prefix("--") {
        let name = rest.split('=').next().unwrap_or("");
        let positive = name.strip_prefix("no-").unwrap_or(name);
        let is_own = ALWAYS.iter().chain(long).any(|own| own.starts_with(positive));
        return (!positive.is_empty() && is_own).then(|| format!("--{name}"));
    }
    for letter in argument.strip_prefix('-')?.chars() {
        if ALWAYS_SHORT.contains(letter) || short.contains(letter) {
            return Some(format!("-{letter}"));
        }
        if WITH_VALUE.contains(letter) {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_options_are_found_in_every_spelling() {
        for (argument, option) in [
            ("--tree", "--tree"),
            ("--tree=1", "--tree"),
            ("--tre=1", "--tre"),
            ("-t", "-t"),
            ("-t1", "-t"),
            ("-jt1", "-t"),
            ("-D", "-D"),
            ("--images-dir=/", "--images-dir"),
            ("--image=/", "--image"),
            ("--no-stream", "--no-stream"),
            ("--pid", "--pid"),
            ("--pidfile=x", "--pidfile"),
            ("-o", "-o"),
            ("-v4", "-v"),
        ] {
            for action in [Action::Dump, Action::Restore] {
                assert_eq!(own_option(action, argument).as_deref(), Some(option), "{action:?} {argument}");
            }
        }
        for (argument, option) in [
            ("--action-script", "--action-script"),
            ("--leave-running", "--leave-running"),
            ("--leave-s", "--leave-s"),
            ("-jR", "-R"),
            ("-s", "-s"),
        ] {
            assert_eq!(own_option(Action::Dump, argument).as_deref(), Some(option), "{argument}");
            assert_eq!(own_option(Action::Restore, argument), None, "{argument}");
        }
        for argument in ["-d", "--restore-detached", "--no-restore-d", "--daemon"] {
            assert!(own_option(Action::Restore, argument).is_some(), "{argument}");
        }
    }

    #[test]
    fn other_arguments_are_the_user_s() {
        for argument in [
            "--tcp-established",
            "--shell-job",
            "--ext-unix-sk",
            "-j",
            "-l",
            "-x",
            "-rto",
            "-Mmnt:dir",
            "--network-lock=iptables",
            "--no-default-config",
            "--file-locks",
            "--track-mem",
            "--prev-images-dir=x",
            "--external=net[1]:tree",
            "--timeout",
            "tree",
            "1",
            "-",
            "--",
            "",
        ] {
            for action in [Action::Dump, Action::Restore] {
                assert_eq!(own_option(action, argument), None, "{action:?} {argument}");
            }
        }
    }
}
