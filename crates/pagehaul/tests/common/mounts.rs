//! Whether tests can mount.

/// Says so if they cannot.
pub fn can_mount() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let can = rustix::process::geteuid().is_root() && device.is_ok();
    if !can {
        eprintln!("not tested: /dev/fuse cannot be used here");
    }
    can
}
