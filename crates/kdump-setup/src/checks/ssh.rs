use std::path::Path;

use crate::chain::Examination;
use crate::config::{Config, Stack};
use crate::facts::Facts;
use crate::finding::Finding;

pub(super) fn check(host: &str, key: &Path, config: &Config, facts: &Facts, found: &mut Examination) {
    let propagate = match config.stack {
        Stack::KdumpTools => "kdump-config propagate".to_owned(),
        Stack::KdumpUtils => "kdumpctl propagate".to_owned(),
        // Its scripts have no such command.
        Stack::Suse => {
            format!("ssh-keygen -N '' -f {}; ssh-copy-id {host}; {}", key.display(), config.stack.reload())
        }
    };
    let why =
        "in a capture kernel ssh cannot ask for a password or confirmation: it fails, and nothing is sent";
    if !facts.has_ssh {
        let what = format!("the dump goes to {host}, but ssh is not installed");
        let fix = "install openssh-client (Debian, Ubuntu), openssh-clients (others)";
        found.push(Finding::problem("no-ssh-client", what, "nothing can be sent", fix));
    }
    let path = key.display();
    match &facts.key_fault {
        _ if !facts.has_key => {
            let what = format!("the key {path} for {host} does not exist");
            found.push(Finding::problem("no-ssh-key", what, why, &propagate));
        }
        Some(fault) => {
            let fix = format!("chmod 600 {path}, or make a key without a passphrase: rm {path}; {propagate}");
            found.push(Finding::problem("ssh-key-unusable", fault.clone(), why, fix));
        }
        None => found.saw(format!("{path} is a key without a passphrase, for its owner only")),
    }
    if facts.host_is_known {
        found.saw(format!("the host key of {host} is known"));
    } else {
        let what = format!(
            "the host key of {host} is in neither /root/.ssh/known_hosts nor /etc/ssh/ssh_known_hosts"
        );
        found.push(Finding::problem("unknown-host", what, why, format!("ssh {host} true, or {propagate}")));
    }
    found.not_checked(format!("whether {host} answers and takes the key: ssh -i {path} {host} true"));
}
