//! Gives pages to the hypervisor; the kernel marks them as offline.

use crate::notify_host;
use crate::pages::page_size;
use crate::system::field;
use lab_guest::Class;
use lab_guest::plan::message;
use lab_guest::results::{Filled, Manifest};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the host to inflate the balloon, and waits for it.
pub fn inflate(manifest: &mut Manifest) {
    if !Path::new("/sys/bus/virtio/drivers/virtio_balloon").exists() {
        manifest.missing.push((Class::Offline, "the kernel has no balloon driver".into()));
        return;
    }
    notify_host(message::BALLOON, &MIB.to_string());
    let wanted = (MIB << 20) / page_size() as u64;
    let start = Instant::now();
    let mut pages = 0;
    // The driver works in the background; only a counter shows its progress.
    while pages < wanted && start.elapsed() < PATIENCE {
        std::thread::yield_now();
        pages = field(&std::fs::read_to_string("/proc/vmstat").unwrap_or_default(), "balloon_inflate");
    }
    if pages == 0 {
        manifest.missing.push((Class::Offline, "the balloon did not inflate".into()));
    } else {
        manifest.classes.push(Filled { class: Class::Offline, count: pages, ranges: Vec::new() });
    }
}
