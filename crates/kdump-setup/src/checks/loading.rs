use crate::config::Config;
use crate::facts::{Facts, Lockdown};
use crate::finding::Finding;

pub(super) fn check(facts: &Facts, found: &mut Vec<Finding>) {
    if let (true, Some(config), Some(command)) = (facts.loaded, &facts.config, &facts.load_command) {
        old_command_line(config, command, found);
    }
    // Nothing can be loaded without a reservation, which has its own finding.
    if facts.loaded || facts.reserved.unwrap_or(0) == 0 {
        return;
    }
    let reload = facts.stack().map_or("load one with kexec -p", |stack| stack.reload());
    let (what, fix) = if facts.load_disabled {
        let what = "no capture kernel is loaded, and kernel.kexec_load_disabled forbids loading one";
        (what, "reboot, and load kdump before the sysctl is set (it cannot be cleared)".to_owned())
    } else if facts.lockdown == Lockdown::None {
        ("no capture kernel is loaded", reload.to_owned())
    } else {
        let what = "no capture kernel is loaded; the kernel is locked down (Secure Boot) and loads signed kernels only";
        (what, format!("use a signed kernel and kexec -s (kexec_file_load), then {reload}"))
    };
    found.push(Finding::problem("not-loaded", what, "a crash does not start the capture kernel", fix));
}

/// Compares the configured parameters with those that the capture kernel was loaded with.
fn old_command_line(config: &Config, command: &str, found: &mut Vec<Finding>) {
    let loaded: Vec<&str> = command.split(|c: char| c.is_whitespace() || c == '"').collect();
    let words = config.append.iter().map(String::as_str);
    // Expansions are not evaluated.
    let lacking: Vec<&str> = words.filter(|word| !word.contains('$') && !loaded.contains(word)).collect();
    if !lacking.is_empty() {
        let file = config.stack.file();
        found.push(Finding::warning(
            "old-command-line",
            format!("the capture kernel was loaded without {}, which {file} has", lacking.join(" ")),
            "the next crash uses the previous configuration",
            config.stack.reload(),
        ));
    }
}
