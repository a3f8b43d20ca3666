use super::{Expected, mib};
use crate::config::{Config, Target};
use crate::facts::Facts;
use crate::finding::Finding;

pub(super) fn check(config: &Config, facts: &Facts, expected: &Expected, found: &mut Vec<Finding>) {
    match &config.target {
        Target::Directory(path) => directory(path, facts, expected, found),
        Target::Ssh { host, key } => ssh(host, key, config, facts, found),
        Target::Nfs(_) | Target::Raw(_) | Target::Other(_) => {}
    }
}

fn directory(path: &std::path::Path, facts: &Facts, expected: &Expected, found: &mut Vec<Finding>) {
    let path = path.display();
    if let Some(unmounted) = &facts.target_unmounted {
        let point = unmounted.display();
        found.push(Finding::problem(
            "target-not-mounted",
            format!("{path} is on {point}, which /etc/fstab mounts but which is not mounted"),
            "the dump goes to the wrong disk, or nowhere",
            format!("mount {point}"),
        ));
        return;
    }
    if !facts.target_exists {
        let what = format!("{path} does not exist");
        let why = "the dump has nowhere to go; some scripts create the directory, others stop";
        found.push(Finding::problem("no-target", what, why, format!("mkdir -p {path}")));
        return;
    }
    // Without an estimate: what the kernel itself has, uncompressed, is more than a level-31 dump takes.
    let (needed, how) = match expected.dump_bytes {
        Some(bytes) => (bytes, "the dump is estimated at"),
        None => (facts.kernel_memory, "the kernel alone has"),
    };
    if let Some(free) = facts.target_free.filter(|free| *free < needed) {
        found.push(Finding::problem(
            "target-full",
            format!("{} are free at {path}; {how} {}", mib(free), mib(needed)),
            "the dump ends early, and is marked incomplete",
            format!("remove old dumps from {path}, or choose a larger target"),
        ));
    }
}

fn ssh(host: &str, key: &std::path::Path, config: &Config, facts: &Facts, found: &mut Vec<Finding>) {
    let propagate = match config.stack {
        crate::config::Stack::KdumpTools => "kdump-config propagate",
        _ => "kdumpctl propagate",
    };
    let why =
        "in a capture kernel ssh cannot ask for a password or confirmation: it fails, and nothing is sent";
    if !facts.has_key {
        let what = format!("the key {} for {host} does not exist", key.display());
        found.push(Finding::problem("no-ssh-key", what, why, propagate));
    }
    if !facts.host_is_known {
        let what = format!(
            "the host key of {host} is in neither /root/.ssh/known_hosts nor /etc/ssh/ssh_known_hosts"
        );
        found.push(Finding::problem("unknown-host", what, why, format!("ssh {host} true, or {propagate}")));
    }
}
