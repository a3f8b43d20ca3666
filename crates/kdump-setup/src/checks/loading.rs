use crate::chain::Examination;
use crate::config::Config;
use crate::facts::{Facts, Lockdown};
use crate::finding::Finding;

pub(super) fn check(facts: &Facts, found: &mut Examination) {
    if facts.loaded {
        found.saw("a capture kernel is loaded (/sys/kernel/kexec_crash_loaded)");
    }
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

/// Checks what loads a capture kernel the next time.
pub(super) fn check_kernel(config: &Config, facts: &Facts, found: &mut Examination) {
    if !facts.has_kexec {
        found.push(Finding::problem(
            "no-kexec-program",
            "kexec, which loads the capture kernel, is not in /usr/bin, /bin, /usr/sbin or /sbin",
            "no capture kernel can be loaded, at the next boot at the latest",
            "install kexec-tools",
        ));
    }
    if let Some(fault) = &facts.kexec_fault {
        found.push(Finding::problem(
            "no-kexec-program",
            format!("kexec, which loads the capture kernel, does not run: {fault}"),
            "no capture kernel can be loaded, at the next boot at the latest",
            "install kexec-tools again",
        ));
    }
    match &facts.kernel_lacks {
        None => found.not_checked("the kernel's configuration: /boot has no config- file of this release"),
        Some(lacks) if lacks.is_empty() => {
            found.saw("the kernel offers the memory of a crashed one (CONFIG_PROC_VMCORE)");
        }
        Some(lacks) => found.push(Finding::problem(
            "no-vmcore",
            format!("the kernel is built without {}", lacks.join(" and ")),
            "the capture kernel has no /proc/vmcore, and nothing is dumped",
            "install a kernel of the distribution, or build one with these options",
        )),
    }
    let Some(kernel) = &facts.kernel else { return };
    if facts.lockdown != Lockdown::None && kernel.modified.is_some() {
        let path = kernel.path.display();
        match facts.kernel_is_signed {
            Some(true) => found.saw(format!("{path} has a signature")),
            Some(false) => found.push(Finding::problem(
                "unsigned-kernel",
                format!("{path} has no signature, and this kernel is locked down"),
                // kernel/kexec_file.c, security/lockdown: KEXEC_SIG.
                "a kernel that is locked down loads signed kernels only, so the next boot loads no capture kernel",
                "install a signed kernel of the distribution, or sign it (sbsign, pesign) with a key that the firmware has",
            )),
            None => found.not_checked(format!("whether {path} is signed")),
        }
    }
    let path = kernel.path.display();
    if let Some(fault) = &facts.kernel_fault {
        found.push(Finding::problem(
            "no-kernel",
            format!("{path}, the kernel to load, is damaged: {fault}"),
            "no capture kernel can be loaded, at the next boot at the latest",
            format!("install the kernel again; then {}", config.stack.reload()),
        ));
        return;
    }
    match kernel.modified {
        Some(_) if facts.kernel_is_known => found.saw(format!("{path} exists, and begins as a kernel does")),
        Some(_) => found.not_checked(format!("whether {path} is a kernel: it begins as none that is known")),
        None => found.push(Finding::problem(
            "no-kernel",
            format!("{path}, the kernel to load, does not exist, or is a link that leads nowhere"),
            "no capture kernel can be loaded, at the next boot at the latest",
            format!(
                "correct it in {}, or install the kernel again; then {}",
                config.stack.command_line_file(),
                config.stack.reload()
            ),
        )),
    }
}

/// Compares the configured parameters with those that the capture kernel was loaded with.
fn old_command_line(config: &Config, command: &str, found: &mut Examination) {
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
