use crate::config::{Config, Stack};
use crate::facts::Facts;
use crate::finding::Finding;

pub(super) fn check(config: &Config, facts: &Facts, found: &mut Vec<Finding>) {
    let Some(image) = &facts.initramfs else { return };
    let path = image.path.display();
    let reload = config.stack.reload();
    let Some(made) = image.modified else {
        let why = "the capture kernel cannot be loaded, or finds no root file system and no target";
        found.push(Finding::problem("no-initramfs", format!("{path} does not exist"), why, reload));
        return;
    };
    // kdump-tools' initramfs does not depend on its settings.
    if config.stack != Stack::KdumpTools && facts.config_modified.is_some_and(|changed| changed > made) {
        found.push(Finding::warning(
            "old-initramfs",
            format!("{path} is older than {}", config.stack.file()),
            "the capture kernel uses the previous configuration",
            reload,
        ));
    }
    // Debian's scripts run in the real root file system: only the others' initramfs has the program in it.
    let collector = facts.collector.as_ref().and_then(|collector| collector.modified);
    if config.stack != Stack::KdumpTools && collector.is_some_and(|installed| installed > made) {
        found.push(Finding::warning(
            "old-collector",
            format!("{path} is older than the program that writes the dump"),
            "the capture kernel runs the previous program: openSUSE does not notice the change, Fedora at the next start",
            reload,
        ));
    }
    if facts.image_has_pagehaul == Some(false) {
        found.push(Finding::warning(
            "not-in-initramfs",
            format!("{path} was made without pagehaul, though pagehaul-kdump is installed"),
            "the dump is written by makedumpfile of the distribution",
            reload,
        ));
    }
    if !facts.missing_drivers.is_empty() {
        found.push(Finding::problem(
            "no-driver",
            format!(
                "{path} lacks modules that the running kernel has loaded for the disk: {}",
                facts.missing_drivers.join(", ")
            ),
            "the capture kernel does not find the disk that it has to mount, and nothing is dumped",
            // kdump-config makes it again only if it is missing.
            format!("rm {}; {reload}", image.file().display()),
        ));
    }
    let name = image.file().to_string_lossy().into_owned();
    if name.contains(char::is_numeric) && !name.contains(&facts.release.0) {
        found.push(Finding::warning(
            "other-kernel",
            format!("{path} is of another kernel ({name}) than the running one ({})", facts.release),
            "modules of another kernel cannot be loaded: the capture kernel may lack the driver of the target",
            reload,
        ));
    }
}
