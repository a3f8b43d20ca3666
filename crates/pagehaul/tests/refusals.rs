//! Errors where tracing is not available: one sentence each, before anything is created. A tmpfs over /sys/kernel, in the
//! test's own mount namespace, stands in for the kernel's directories.
#![cfg(feature = "stalls")]

use std::process::{Command, Output};

/// Commands that trace.
const COMMANDS: [&str; 3] = [
    "reclaim record -o /dev/null -- true",
    "latency --between sched:sched_wakeup,sched:sched_switch --duration 1s",
    "latency vfs_read --duration 1s",
];

/// Runs `script` with nothing in /sys/kernel, without privileges over files if `bare`; none if this machine does not let us.
fn in_namespace(script: &str, bare: bool) -> Option<Output> {
    let run = |script: &str| {
        let script = format!("mount -t tmpfs tmpfs /sys/kernel && echo ready && {script}");
        let mut command = Command::new("unshare");
        // Without root, a user namespace lends what it takes.
        let options = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
        command.args([options, "sh", "-c", &script]).output().ok()
    };
    let bare = if bare { "exec setpriv --bounding-set=-all --inh-caps=-all " } else { "exec " };
    let output = run(&script.replace("PAGEHAUL", &format!("{bare}{}", env!("CARGO_BIN_EXE_pagehaul"))))?;
    output.stdout.starts_with(b"ready\n").then_some(output)
}

/// One sentence on standard error, exit status 1, nothing on standard output.
fn refuses(script: &str, bare: bool, parts: &[&str]) {
    let Some(output) = in_namespace(script, bare) else {
        eprintln!("not run: no mount namespace to be had here");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{script}: {said}");
    assert_eq!(output.stdout, b"ready\n", "{script}");
    assert_eq!(said.lines().count(), 1, "{script}: {said}");
    for part in parts {
        assert!(said.contains(part), "{script}: {part:?} is not in {said:?}");
    }
}

#[test]
fn without_tracefs_it_is_said_how_to_mount_it() {
    for command in COMMANDS.into_iter().chain(["vmalloc -i 1s --duration 1s"]) {
        refuses(
            &format!("PAGEHAUL {command}"),
            false,
            &["tracefs is not mounted", "mount -t tracefs", "CONFIG_TRACING"],
        );
    }
}

#[test]
fn without_privileges_it_is_said_that_tracing_needs_them() {
    // A user without write permission on the directory, such as root without capabilities.
    let closed = "mkdir -p /sys/kernel/tracing/events && chmod 0 /sys/kernel/tracing/events && ";
    for command in COMMANDS.into_iter().chain(["vmalloc -i 1s --duration 1s"]) {
        refuses(&format!("{closed} PAGEHAUL {command}"), true, &["cannot use /sys/kernel/tracing/events"]);
    }
}

#[test]
fn ordinary_users_are_told_about_sudo() {
    use std::os::unix::process::CommandExt;
    for command in COMMANDS {
        let mut pagehaul = Command::new(env!("CARGO_BIN_EXE_pagehaul"));
        pagehaul.args(command.split(' '));
        if rustix::process::geteuid().is_root() {
            // The user nobody.
            pagehaul.uid(65534).gid(65534);
        }
        let Ok(output) = pagehaul.output() else {
            eprintln!("not run: others may not enter the directory of the program");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains("tracing needs root: use sudo") || said.contains("tracefs is not mounted"),
            "{said}"
        );
    }
}

#[test]
fn lockdown_is_named() {
    let locked = "mkdir -p /sys/kernel/tracing/events /sys/kernel/security && chmod 0 /sys/kernel/tracing/events \
                  && echo 'none integrity [confidentiality]' > /sys/kernel/security/lockdown && ";
    for command in COMMANDS {
        refuses(
            &format!("{locked} PAGEHAUL {command}"),
            true,
            &["kernel lockdown (confidentiality)", "lockdown=integrity"],
        );
    }
}

#[test]
fn events_that_are_missing_are_named() {
    let none = "mkdir -p /sys/kernel/tracing/events /sys/kernel/tracing/instances && ";
    let some = "mkdir -p /sys/kernel/tracing/events/vmscan/mm_x /sys/kernel/tracing/instances && touch \
                /sys/kernel/tracing/events/vmscan/mm_x/format && ";
    let cases = [
        (none, COMMANDS[0], "this kernel has no vmscan events"),
        (some, "reclaim record --event sched:nope -o /dev/null -- true", "no trace event sched:nope"),
        (some, COMMANDS[1], "no trace event sched:sched_wakeup"),
        (none, COMMANDS[2], "this kernel cannot measure functions"),
        (none, "vmalloc -i 1s --duration 1s", "no vmalloc trace events"),
    ];
    for (directories, command, what) in cases {
        refuses(&format!("{directories} PAGEHAUL {command}"), false, &[what]);
    }
}
