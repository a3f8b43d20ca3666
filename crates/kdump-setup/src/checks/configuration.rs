use crate::config::{Config, Stack};
use crate::facts::Facts;
use crate::finding::Finding;

pub(super) fn absent(found: &mut Vec<Finding>) {
    found.push(Finding::problem(
        "no-kdump",
        "no kdump is installed: none of /etc/default/kdump-tools, /etc/kdump.conf, /etc/sysconfig/kdump exists",
        "nothing loads a capture kernel and writes the dump",
        "install kdump-tools (Debian, Ubuntu), kdump-utils (Fedora, RHEL) or kdump (openSUSE)",
    ));
}

pub(super) fn check(config: &Config, facts: &Facts, found: &mut Vec<Finding>) {
    if !config.enabled {
        found.push(Finding::problem(
            "disabled",
            format!("{} switches kdump off (USE_KDUMP)", config.stack.file()),
            "no capture kernel is loaded at the next boot",
            format!("set USE_KDUMP=1 in {}, then {}", config.stack.file(), config.stack.reload()),
        ));
    }
    if !facts.has_compressor {
        let program = config.compressor.as_deref().unwrap_or_default();
        found.push(Finding::problem(
            "no-compressor",
            format!("KDUMP_COMPRESSION is {program}, which is not installed"),
            "the dump is piped through it, and is lost",
            format!("remove KDUMP_COMPRESSION (pagehaul compresses the dump itself), or install {program}"),
        ));
    } else if config.compressor.is_some() && config.stack == Stack::KdumpTools {
        found.push(Finding::warning(
            "compressed-twice",
            format!("the dump is piped through {}", config.compressor.as_deref().unwrap_or_default()),
            "one CPU compresses what is compressed already",
            format!("remove KDUMP_COMPRESSION from {}", config.stack.file()),
        ));
    }
}
