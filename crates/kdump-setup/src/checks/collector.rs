use crate::config::{Config, Stack, Target};
use crate::facts::Facts;
use crate::finding::Finding;

pub(super) fn check(config: &Config, facts: &Facts, found: &mut Vec<Finding>) {
    let program = config.collector.first().map_or("makedumpfile", String::as_str);
    let Some(collector) = &facts.collector else {
        found.push(Finding::problem(
            "no-collector",
            format!("{program}, which writes the dump, is not in /usr/bin, /bin, /usr/sbin or /sbin"),
            "the capture kernel has no program that writes the dump",
            "install pagehaul-kdump, or makedumpfile",
        ));
        return;
    };
    if !collector.is_pagehaul {
        let path = collector.path.display();
        found.push(Finding::warning(
            "not-pagehaul",
            format!("{path} is not pagehaul"),
            "the dump is written by makedumpfile: by one CPU, and if it is older than the kernel (Debian 13: 1.7.6 on \
             6.12) with all free pages in it",
            "install pagehaul-kdump",
        ));
        return;
    }
    let streams = matches!(config.target, Target::Ssh { .. } | Target::Raw(_));
    if config.stack == Stack::KdumpUtils && streams && !config.collector.iter().any(|word| word == "-F") {
        found.push(Finding::problem(
            "no-flattened",
            "core_collector has no -F, though the dump goes to ssh or a raw device",
            "mkdumprd builds no initramfs, and kdump does not start",
            "add -F to core_collector in /etc/kdump.conf",
        ));
    } else if let Some(reason) = &facts.refused {
        let (setting, file) = (config.stack.options(), config.stack.file());
        found.push(Finding::problem(
            "refused-option",
            format!("`{}`, by {setting} in {file}: {reason}", config.command_line().join(" ")),
            "pagehaul refuses this command line, and no dump is written: an option that erases data is never ignored",
            format!("correct {setting} in {file}, or remove pagehaul-kdump"),
        ));
    }
}
