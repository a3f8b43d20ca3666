use crate::chain::Examination;
use crate::config::{Config, Stack};
use crate::facts::{Facts, Image};
use crate::finding::Finding;
use crate::initramfs::Initramfs;

pub(super) fn check(config: &Config, facts: &Facts, found: &mut Examination) {
    let Some(image) = &facts.initramfs else { return };
    let path = image.path.display();
    let reload = config.stack.reload();
    let Some(made) = image.modified else {
        let what = format!("{path} does not exist");
        // It is named after the kernel, which has its own finding.
        let has_kernel = facts.kernel.as_ref().is_some_and(|kernel| kernel.modified.is_some());
        if config.stack == Stack::KdumpUtils && !has_kernel {
            found.not_checked(format!("{what}, and neither does its kernel"));
            return;
        }
        if config.remakes_initramfs && facts.has_initramfs_maker {
            let why = "what is loaded has its copy in memory; after the next boot, a crash before kdump has made and loaded it \
                       anew leaves no dump";
            found.push(Finding::warning("no-initramfs", what, why, reload));
            return;
        }
        let why = "the capture kernel cannot be loaded, or finds no root file system and no target";
        if config.stack == Stack::Suse && facts.loaded && facts.has_initramfs_maker {
            found.push(made_again(path.to_string(), reload));
            return;
        }
        found.push(Finding::problem("no-initramfs", what, why, reload));
        check_maker(config, facts, found);
        return;
    };
    let again = format!("rm {}; {reload}", image.file().display());
    match &facts.contents {
        Some(Initramfs::Files(names)) if names.iter().any(|name| name == "init") => {
            found.saw(format!("{path} has {} files, and an init", names.len()));
        }
        Some(Initramfs::Files(names)) => found.push(Finding::problem(
            "no-init",
            format!("{path} has {} files, but no init that can run", names.len()),
            "the capture kernel has nothing to start, and panics",
            again.clone(),
        )),
        Some(Initramfs::Damaged(reason)) => found.push(Finding::problem(
            "damaged-initramfs",
            format!("{path} is damaged: {reason}"),
            "the capture kernel has nothing to start, or not what it needs",
            again.clone(),
        )),
        Some(Initramfs::Unknown(reason)) => found.not_checked(format!("the files in {path}: {reason}")),
        None => found.not_checked(format!("the files in {path}")),
    }
    check_maker(config, facts, found);
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
    if facts.image_has_collector == Some(false) {
        found.push(Finding::problem(
            "no-collector",
            format!("{path} has no makedumpfile that can run"),
            "the capture kernel has no program that writes the dump",
            again.clone(),
        ));
    } else if facts.image_has_pagehaul == Some(false) {
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
            again,
        ));
    }
    if let Some(what) = other_kernel(facts, image) {
        found.push(Finding::warning(
            "other-kernel",
            format!("{path} {what} the running kernel, {}", facts.release),
            "modules of another kernel cannot be loaded: the capture kernel may lack the driver of the target",
            reload,
        ));
    }
}

/// The loaded capture kernel has its copy of it. load.sh makes it again (`rebuild_kdumprd`) when kdump.service starts.
fn made_again(path: String, reload: &str) -> Finding {
    let what = format!("{path} does not exist, which the loaded capture kernel was loaded with");
    let why = "after the next boot no capture kernel is loaded until kdump.service has made it again";
    Finding::warning("no-initramfs", what, why, reload)
}

/// How the initramfs shows that it is of another kernel than the running one: by its modules, or, if they are not known, by its name.
fn other_kernel(facts: &Facts, image: &Image) -> Option<String> {
    let release = &facts.release.0;
    let releases = facts.contents.as_ref().map(Initramfs::releases).unwrap_or_default();
    // Another kernel may be configured.
    let kernel = facts.kernel.as_ref().map(|kernel| kernel.file().to_string_lossy().into_owned());
    // The name of its file or, on openSUSE, of the directory has it.
    let is_of = |kernel: &String, of: &str| kernel.ends_with(of) || kernel.contains(&format!("/{of}/"));
    let is_its = |of: &String| of == release || kernel.as_ref().is_some_and(|kernel| is_of(kernel, of));
    if !releases.is_empty() {
        return (!releases.iter().any(is_its))
            .then(|| format!("has modules of {} and not of", releases.join(", ")));
    }
    let name = image.file().to_string_lossy().into_owned();
    (name.contains(char::is_numeric) && !name.contains(&**release))
        .then(|| "is by its name not of".to_owned())
}

/// Whether what makes the initramfs is installed.
fn check_maker(config: &Config, facts: &Facts, found: &mut Examination) {
    if facts.has_initramfs_maker {
        return;
    }
    let (program, fix) = match config.stack {
        // Its kernel hook calls it, whatever else the system uses (kdump-tools 1.8.1 to 1.10.9).
        Stack::KdumpTools => {
            ("mkinitramfs", "apt install initramfs-tools, next to dracut if that makes the system's own")
        }
        Stack::KdumpUtils | Stack::Suse => ("dracut", "install dracut"),
    };
    found.push(Finding::warning(
        "no-initramfs-maker",
        format!("{program}, which makes the capture kernel's initramfs, is not installed"),
        "the initramfs is not made for the next kernel, and no capture kernel is loaded then",
        fix,
    ));
}
