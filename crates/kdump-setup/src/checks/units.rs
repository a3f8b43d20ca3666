//! What loads the capture kernel at boot, and what writes the dump in it.

use crate::chain::Examination;
use crate::config::{Config, Stack};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::units::Unit;

pub(super) fn check(config: &Config, facts: &Facts, found: &mut Examination) {
    hotplug(config, facts, found);
    let Some(units) = &facts.units else {
        found.not_checked("no directory of systemd's units is there");
        return;
    };
    for unit in &units.units {
        check_unit(unit, found);
    }
    if config.stack != Stack::KdumpTools {
        found.not_checked("the units in the initramfs, which write the dump");
    }
    let parameters =
        ["single", "rescue", "emergency", "systemd.unit=rescue.target", "systemd.unit=emergency.target"];
    let by_parameter = facts.command_line.iter().find(|word| parameters.contains(&word.as_str()));
    let is_rescue = |target: &&String| ["rescue.target", "emergency.target"].contains(&target.as_str());
    match (by_parameter, units.default_target.as_ref().filter(is_rescue)) {
        (None, None) => found
            .saw(format!("default target: {}", units.default_target.as_deref().unwrap_or("systemd's own"))),
        (Some(word), _) => found.push(rescue(format!("the command line has {word}"))),
        (None, Some(target)) => found.push(rescue(format!("default.target is {target}"))),
    }
}

fn rescue(what: String) -> Finding {
    Finding::problem(
        "rescue-target",
        what,
        "a boot to the rescue system does not load the capture kernel",
        "systemctl set-default multi-user.target, and no such word on the kernel's command line",
    )
}

fn check_unit(unit: &Unit, found: &mut Examination) {
    let name = unit.name;
    let (missing, lost) = if unit.at_boot {
        ("nothing loads a capture kernel at the next boot", "nothing loads the capture kernel")
    } else {
        (
            "the capture kernel has nothing to start: it writes no dump, and stays in a rescue shell",
            "the capture kernel does not start what writes the dump",
        )
    };
    if let Some(path) = &unit.masked {
        let what = format!("{name} is masked by {}", path.display());
        found.push(Finding::problem("unit-masked", what, missing, format!("systemctl unmask {name}")));
        return;
    }
    if let Some(program) = &unit.broken_program {
        let what = format!("{name} starts {}, which does not exist or is not executable", program.display());
        found.push(Finding::problem("no-unit-program", what, lost, "install the package of kdump again"));
        return;
    }
    match (&unit.file, &unit.enabled) {
        (None, _) => {
            let what = format!("{name} is in no directory of systemd's units");
            found.push(Finding::problem("no-unit", what, lost, "install the package of kdump again"));
        }
        (Some(_), None) if unit.at_boot => {
            let what = format!("{name} is not enabled: no .wants directory has it");
            found.push(Finding::problem("unit-disabled", what, missing, format!("systemctl enable {name}")));
        }
        (Some(_), Some(enabled)) => found.saw(format!("{name} is enabled ({})", enabled.display())),
        (Some(file), None) => found.saw(format!("{name} is not masked ({})", file.display())),
    }
}

/// CPUs and memory that come or go: the list of memory that the capture kernel dumps is of the time it was loaded.
fn hotplug(config: &Config, facts: &Facts, found: &mut Examination) {
    match (facts.crash_hotplug, facts.has_udev_rules) {
        ([true, true], false) => found.saw("the kernel follows CPUs and memory that come or go (crash_hotplug)"),
        // Since Linux 6.6 the kernel updates the image itself (Documentation/ABI/testing/sysfs-devices-system-cpu).
        ([true, true], true) if config.stack == Stack::KdumpTools => found.push(Finding::advice(
            "needless-reload",
            "udev loads the capture kernel again for each CPU and block of memory, though this kernel updates it itself",
            "while it is loaded again, a crash finds none",
            "ln -s /dev/null /etc/udev/rules.d/50-kdump-tools.rules",
        )),
        (_, true) => found.saw("udev loads the capture kernel again when CPUs or memory come or go"),
        (_, false) => found.push(Finding::warning(
            "no-udev-rules",
            "no udev rule loads the capture kernel again when CPUs or memory come or go, and this kernel does not update it",
            "memory that was added is not in a dump; memory that was removed makes reading it fail",
            "install the package of kdump again; remove links to /dev/null from /etc/udev/rules.d",
        )),
    }
}
