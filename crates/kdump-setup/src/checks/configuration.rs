use crate::chain::Examination;
use crate::config::{Config, Stack};
use crate::facts::Facts;
use crate::finding::Finding;

pub(super) fn absent(found: &mut Examination) {
    found.push(Finding::problem(
        "no-kdump",
        "no kdump is installed: none of /etc/default/kdump-tools, /etc/kdump.conf, /etc/sysconfig/kdump exists",
        "nothing loads a capture kernel and writes the dump",
        "install kdump-tools (Debian, Ubuntu), kdump-utils (Fedora, RHEL) or kdump (openSUSE)",
    ));
}

/// What the capture kernel of kdump-tools starts.
fn check_dump_unit(config: &Config, found: &mut Examination) {
    const UNIT: &str = "kdump-tools-dump.service";
    /// Nothing writes the dump in these. Others may be the administrator's own.
    const RESCUE: [&str; 4] = ["rescue.target", "rescue.service", "emergency.target", "emergency.service"];
    let file = config.stack.file();
    // systemd takes the last.
    let unit = config.append.iter().rev().find_map(|word| word.strip_prefix("systemd.unit="));
    match unit {
        Some(rescue) if RESCUE.contains(&rescue) => found.push(Finding::problem(
            "wrong-dump-unit",
            format!("KDUMP_CMDLINE_APPEND in {file} has systemd.unit={rescue}"),
            "the capture kernel starts that, which writes no dump, and stays there",
            format!("append systemd.unit={UNIT}"),
        )),
        Some(_) => {}
        None => found.push(Finding::warning(
            "no-dump-unit",
            format!("KDUMP_CMDLINE_APPEND in {file} has no systemd.unit={UNIT}"),
            "the capture kernel starts all services of the machine in the reserved memory, and writes the dump among them",
            format!("append systemd.unit={UNIT}"),
        )),
    }
}

/// A CR that decides nothing today (`kdump_get_conf_val`, 1.0.60, d81109c: before, sed removed it with other white space).
fn carriage_return(file: &str, line: usize) -> Finding {
    let what = format!("{file}, line {line}: the line ends in CR and LF");
    let why = "kdump-utils 1.0.60 and newer take the CR for a part of the value; older ones remove it";
    let fix = format!("sed -i 's/\\r$//' {file}");
    Finding::warning("broken-configuration", what, why, fix)
}

pub(super) fn check(config: &Config, facts: &Facts, found: &mut Examination) {
    let file = config.stack.file();
    if let Some(fault) = &config.fault {
        found.push(Finding::problem(
            "broken-configuration",
            fault.clone(),
            "a shell refuses the file, and with it the scripts that load the capture kernel and write the dump",
            format!("correct it: sh -n {}", config.stack.command_line_file()),
        ));
    } else if let Some(refused) = &config.refused {
        found.push(Finding::problem(
            "broken-configuration",
            refused.clone(),
            match config.stack {
                Stack::KdumpUtils => {
                    "kdumpctl ends, or mkdumprd, which it calls: no capture kernel is loaded"
                }
                _ => "no capture kernel is loaded, and no dump written",
            },
            format!("correct it, then {}", config.stack.reload()),
        ));
    } else if let Some(line) = config.carriage_return {
        found.push(carriage_return(file, line));
    } else if let Some(reason) = &config.not_understood {
        found.not_checked(reason.clone());
    } else {
        found.saw(format!("{file} is understood"));
    }
    match &config.command_line {
        Some(line)
            if !line.iter().any(|word| word.starts_with("root=")) && config.stack == Stack::KdumpTools =>
        {
            found.push(Finding::problem(
                "no-root-parameter",
                format!("KDUMP_CMDLINE in {file} has no root="),
                "the capture kernel finds no root file system",
                format!(
                    "add root= as in /proc/cmdline, or remove KDUMP_CMDLINE, then {}",
                    config.stack.reload()
                ),
            ));
        }
        Some(_) => found.saw("the capture kernel's command line is configured as a whole"),
        None => found.saw("the capture kernel's command line is that of /proc/cmdline with additions"),
    }
    if config.stack == Stack::KdumpTools && config.is_append_set {
        check_dump_unit(config, found);
    }
    if !facts.has_fail_command {
        let command = config.fail_command.as_deref().unwrap_or_default().join(" ");
        found.push(Finding::warning(
            "no-fail-command",
            format!("KDUMP_FAIL_CMD is `{command}`, whose program does not exist"),
            "a capture that fails leaves the machine in the capture kernel",
            format!("correct KDUMP_FAIL_CMD in {file}"),
        ));
    }
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
        found.push(Finding::warning(
            "no-compressor",
            format!(
                "KDUMP_COMPRESSION is {program}, which kdump-tools does not know, or which is not installed"
            ),
            "kdump-tools ignores it: the dump is compressed by makedumpfile alone",
            format!("remove KDUMP_COMPRESSION (pagehaul compresses the dump itself), or install {program}"),
        ));
    } else if config.compressor.is_some() && config.stack == Stack::KdumpTools && config.is_compressed() {
        found.push(Finding::warning(
            "compressed-twice",
            format!("the dump is piped through {}", config.compressor.as_deref().unwrap_or_default()),
            "one CPU compresses what is compressed already",
            format!("remove KDUMP_COMPRESSION from {}", config.stack.file()),
        ));
    }
}
