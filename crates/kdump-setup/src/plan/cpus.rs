//! The CPUs of the capture kernel: what sets them, and what else would limit them.

use super::changes::Files;
use super::edit::{self, Wanted, Wanted::Words};
use crate::config::{Config, END, LIMITS, Stack, is_of};
use crate::facts::Facts;

const WHY: &str = "CPUs of the capture kernel";
const APIC_ID: &str = "disable_cpu_apicid=";

/// Plans the CPUs where the scripts append them to the command line (Debian, Fedora).
pub(super) fn plan(files: &mut Files<'_>, config: &Config, facts: &Facts, cpus: u32) {
    let new = parameters(config, facts, cpus);
    let old: Vec<&str> = LIMITS.into_iter().chain([APIC_ID]).collect();
    let setting = config.stack.append_setting();
    match &config.command_line {
        // What is appended behind it goes to init.
        Some(line) if line.iter().any(|word| word == END) => {
            set(files, config.stack, config.stack.line_setting(), line, &old, &new);
        }
        line => {
            limit_no_more(files, config, line.as_deref().unwrap_or_default(), cpus);
            set(files, config.stack, setting, &config.append, &old, &new);
        }
    }
}

/// Plans the CPUs for openSUSE's kdump, which takes them from `KDUMP_CPUS`.
pub(super) fn plan_suse(files: &mut Files<'_>, config: &Config, cpus: u32) {
    if config.capture_cpus() == Some(cpus) {
        return;
    }
    let stack = config.stack;
    match &config.command_line {
        // In place of that setting, too.
        Some(line) => {
            set(files, stack, stack.line_setting(), line, &LIMITS, &[format!("nr_cpus={cpus}")]);
        }
        None => {
            let value = cpus.to_string();
            files.assign(stack.command_line_file(), WHY, Stack::SUSE_CPUS, Wanted::Value(&value));
        }
    }
    let limits = config.cpu_limits();
    let is_limited = limits.iter().any(|limit| limit.setting == stack.append_setting() && limit.cpus < cpus);
    if is_limited {
        let appended = config.append.get(config.own..).unwrap_or_default();
        set(files, stack, stack.append_setting(), appended, &LIMITS, &[]);
    }
}

/// Removes what limits the CPUs in a whole command line that is configured.
fn limit_no_more(files: &mut Files<'_>, config: &Config, line: &[String], cpus: u32) {
    let setting = config.stack.line_setting();
    if config.cpu_limits().iter().any(|limit| limit.setting == setting && limit.cpus < cpus) {
        set(files, config.stack, setting, line, &LIMITS, &[]);
    }
}

/// The parameters that are set.
fn parameters(config: &Config, facts: &Facts, cpus: u32) -> Vec<String> {
    let mut new = vec![format!("nr_cpus={cpus}")];
    // Fedora's scripts append it themselves; Linux 6.9 (5c5682b9f87a) has no use for it.
    let needs_id = config.stack == Stack::KdumpTools && cpus > 1 && !facts.release.is_at_least(6, 9);
    let given = config.append.iter().rfind(|word| word.starts_with(APIC_ID)).cloned();
    let id = facts.boot_apic_id.filter(|_| needs_id).map(|id| format!("{APIC_ID}{id}"));
    new.extend(id.or(given.filter(|_| config.stack != Stack::KdumpTools)));
    new
}

/// Sets parameters in a setting whose words are `words`.
fn set(files: &mut Files<'_>, stack: Stack, setting: &str, words: &[String], old: &[&str], new: &[String]) {
    let all = replaced(words, old, new);
    if all == words {
        return;
    }
    let file = stack.command_line_file();
    let line = if !edit::is_computed(words) {
        format!("{setting}=\"{}\"", all.join(" "))
    } else if setting == stack.append_setting() {
        // Without parts of what is computed: they may be cut.
        let default: Vec<String> = stack.default_append().split(' ').map(str::to_owned).collect();
        format!("{setting}=\"{}\"", replaced(&default, old, new).join(" ").trim())
    } else {
        let with = if new.is_empty() { String::new() } else { format!(" with {} and", new.join(" ")) };
        format!("{setting}{with} without nr_cpus=, maxcpus=, possible_cpus= and nosmp as they are now")
    };
    let all = all.join(" ");
    files.edit(file, WHY, line, |text| edit::assign(text, setting, Words { old, new, absent: &all }));
}

/// Words with those of `old` replaced, as far as the kernel takes them.
fn replaced(words: &[String], old: &[&str], new: &[String]) -> Vec<String> {
    let end = words.iter().position(|word| word == END).unwrap_or(words.len());
    let at = words[..end].iter().position(|word| is_of(word, old)).unwrap_or(end);
    let mut all = words[..at].to_vec();
    all.extend_from_slice(new);
    all.extend(words[at..end].iter().filter(|word| !is_of(word, old)).cloned());
    all.extend_from_slice(&words[end..]);
    all
}
