//! The files of a machine's kdump set-up: read, judged, changed by a plan, and restored byte for byte.

use std::fs;
use std::path::Path;

use pagehaul_kdump_setup::plan::{Settings, changes};
use pagehaul_kdump_setup::{Expected, Facts, Root, apply, check};

/// Files that a machine may have. An input is pieces: the number of a file, two bytes of length, its bytes.
pub const FILES: [&str; 20] = [
    "etc/default/kdump-tools",
    "etc/default/grub",
    "etc/default/grub.d/kdump-tools.cfg",
    "etc/kdump.conf",
    "etc/sysconfig/kdump",
    "etc/sysctl.d/60-pagehaul-kdump.conf",
    "etc/fstab",
    "etc/crypttab",
    "proc/cmdline",
    "proc/iomem",
    "proc/meminfo",
    "proc/cpuinfo",
    "proc/modules",
    "proc/self/mountinfo",
    "proc/zoneinfo",
    "proc/sys/kernel/osrelease",
    "sys/kernel/security/lockdown",
    "sys/devices/system/cpu/online",
    "boot/grub2/grubenv",
    "root/.ssh/known_hosts",
];

/// Runs the target.
pub fn run(data: &[u8]) {
    let memory = Some(Path::new("/dev/shm")).filter(|directory| directory.is_dir());
    let directory = tempfile::tempdir_in(memory.unwrap_or(&std::env::temp_dir())).expect("a directory");
    let mut rest = data;
    while let [number, low, high, after @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (bytes, after) = after.split_at(length);
        let path = directory.path().join(FILES[usize::from(*number) % FILES.len()]);
        fs::create_dir_all(path.parent().expect("a directory above")).expect("room for it");
        fs::write(path, bytes).expect("room for it");
        rest = after;
    }
    let root = Root::open(directory.path()).expect("it is there");
    let facts = Facts::read(&root);
    for finding in check(&facts, &Expected { cpus: Some(2), disk: Some(1 << 20) }) {
        assert!(!format!("{finding:?}").is_empty());
    }
    let Some(config) = &facts.config else { return };
    let settings =
        Settings { crashkernel: vec!["crashkernel=256M".into()], cpus: 2, level: 31, codec: Some("-z") };
    let changes = changes(&root, &facts, config, &settings);
    let held = |path: &Path| fs::read(directory.path().join(path.strip_prefix("/").expect("absolute"))).ok();
    for change in &changes.files {
        assert_eq!(held(&change.path), change.before, "{}", change.path.display());
    }
    if apply::apply(&root, &changes.files).is_err() || changes.files.is_empty() {
        return;
    }
    for change in &changes.files {
        assert_eq!(held(&change.path).as_ref(), Some(&change.after), "{}", change.path.display());
    }
    apply::undo(&root).expect("what was applied can be undone");
    for change in &changes.files {
        assert_eq!(held(&change.path), change.before, "{}", change.path.display());
    }
}
