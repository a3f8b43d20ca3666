use crate::chain::Examination;
use crate::config::{Config, Stack, Target};
use crate::facts::Facts;
use crate::finding::Finding;

const REFUSED: &str = "makedumpfile ends with an error, and no dump is written";

pub(super) fn check(config: &Config, facts: &Facts, found: &mut Examination) {
    let Some(program) = config.collector.first() else {
        let (setting, file) = (Stack::SUSE_FORMAT, config.stack.file());
        found.push(Finding::warning(
            "no-dump",
            format!("{setting} in {file} is none"),
            "the capture kernel saves the log, and no memory",
            format!("set {setting}=\"compressed\" in {file}"),
        ));
        return;
    };
    if config.copies_memory() {
        let setting = if config.stack == Stack::Suse { Stack::SUSE_FORMAT } else { config.stack.options() };
        found.push(Finding::advice(
            "copies-memory",
            format!("{program} writes the dump"),
            "it copies all memory: nothing is excluded or compressed",
            format!("have makedumpfile write it: {setting} in {}", config.stack.file()),
        ));
        // Its initramfs has cat.
        if config.stack == Stack::Suse {
            return;
        }
    }
    let Some(collector) = &facts.collector else {
        found.push(Finding::problem(
            "no-collector",
            format!("{program}, which writes the dump, is not in /usr/bin, /bin, /usr/sbin or /sbin"),
            "the capture kernel has no program that writes the dump",
            "install pagehaul-kdump, or makedumpfile",
        ));
        return;
    };
    let path = collector.path.display();
    if let Some(fault) = &collector.fault {
        found.push(Finding::problem(
            "broken-collector",
            format!("{path}, which writes the dump, does not run: {fault}"),
            "kdump-tools has an empty dump, or copies all memory, which may not fit; the others write no dump",
            "install its package again",
        ));
        return;
    }
    found.saw(format!("{path} is executable and whole"));
    if lacks_flattened(config) {
        found.push(Finding::problem(
            "no-flattened",
            "core_collector has no -F, though the dump goes to ssh or a raw device",
            "mkdumprd builds no initramfs, and kdump does not start",
            "add -F to core_collector in /etc/kdump.conf",
        ));
    }
    // What pagehaul refuses has a finding of its own.
    if facts.refused.is_none() || !collector.is_pagehaul {
        check_level(config, found);
    }
    if !collector.is_pagehaul {
        if config.copies_memory() {
            return;
        }
        if let Some(option) = &collector.refused_option {
            found.push(Finding::problem(
                "refused-option",
                format!("{option}, by {} in {}: {path} refuses it", config.stack.options(), config.stack.file()),
                match config.stack {
                    Stack::KdumpUtils => {
                        "makedumpfile --check-params refuses the options, mkdumprd builds no initramfs, and kdump does not start"
                    }
                    Stack::Suse => REFUSED,
                    // The status of its pipe is that of what compresses; older ones copy all memory then.
                    _ => "makedumpfile ends with an error: kdump-tools has an empty dump, or copies all memory, which may not fit",
                },
                format!("correct {} in {}", config.stack.options(), config.stack.file()),
            ));
        }
        found.push(Finding::advice(
            "not-pagehaul",
            format!("{path} is not pagehaul"),
            "the dump is written by makedumpfile: by one CPU, and if it is older than the kernel (Debian 13: 1.7.6 on \
             6.12) with all free pages in it",
            "install pagehaul-kdump",
        ));
        return;
    }
    if let Some(reason) = facts.refused.as_ref().filter(|_| !lacks_flattened(config)) {
        let (setting, file) = (config.stack.options(), config.stack.file());
        found.push(Finding::problem(
            "refused-option",
            format!("`{}`, by {setting} in {file}: {reason}", config.command_line().join(" ")),
            "pagehaul refuses this command line, and no dump is written: an option that erases data is never ignored",
            format!("correct {setting} in {file}, or remove pagehaul-kdump"),
        ));
    }
}

/// `verify_core_collector` of mkdumprd: -F may be a part of a word. A program by its path is not checked, and kdump.sh appends -F.
fn lacks_flattened(config: &Config) -> bool {
    let streams = matches!(config.target, Target::Ssh { .. } | Target::Raw(_));
    let (program, options) = config.collector.split_first().unzip();
    let is_checked = program.is_some_and(|program| program == "makedumpfile");
    let has_it = options.is_some_and(|options: &[String]| options.iter().any(|word| word.contains("-F")));
    config.stack == Stack::KdumpUtils && streams && is_checked && !has_it
}

/// makedumpfile reads the level as `atoi` does, and refuses those that are not 0 to 31.
fn check_level(config: &Config, found: &mut Examination) {
    let (setting, file) = (config.stack.options(), config.stack.file());
    // openSUSE's scripts put their own level first.
    let mut is_own = config.stack == Stack::Suse;
    let mut words = config.collector.iter();
    while let Some(word) = words.next() {
        let levels = match word.as_str() {
            "-d" => words.next().map(String::as_str),
            word => match word.strip_prefix("-d") {
                Some(levels) if !levels.is_empty() => Some(levels),
                _ => continue,
            },
        };
        let fix = match std::mem::take(&mut is_own) {
            true => format!("set {}=31 in {file}", Stack::SUSE_LEVEL),
            false => format!("set -d 31 in {setting} of {file}"),
        };
        let fix = || fix.clone();
        let Some(levels) = levels else {
            found.push(Finding::problem("wrong-level", "the option -d has no dump level", REFUSED, fix()));
            continue;
        };
        // Several are tried in turn. What a shell computes is not known here.
        for level in levels.split(',').filter(|level| !level.contains(['$', '`'])) {
            // What follows the number does not count.
            let sign = usize::from(level.starts_with(['-', '+']));
            let digits = level[sign..].bytes().take_while(u8::is_ascii_digit).count();
            // `0x1f` is the number 0 and a rest.
            let is_hexadecimal =
                level[sign..].starts_with(['0']) && level[sign + 1..].starts_with(['x', 'X']);
            if digits == 0 || is_hexadecimal {
                // The dump is complete, as large as it is.
                found.push(Finding::warning(
                    "no-level",
                    format!("the dump level is {level}, which is not a decimal number"),
                    "makedumpfile takes it for 0: the dump has all memory, takes longer, and may not fit",
                    fix(),
                ));
            } else if !level[..sign + digits].parse().is_ok_and(|level: i64| (0..=31).contains(&level)) {
                let what = format!("the dump level is {level}, and not one of 0 to 31");
                found.push(Finding::problem("wrong-level", what, REFUSED, fix()));
            }
        }
    }
}
