//! Dumps on raw disks: complete ones, ones that end early, and both read back. Loop devices are the disks.

mod common {
    pub mod loop_device;
    pub mod setup;
}

use std::fs;
use std::process::Stdio;

use common::loop_device::LoopDevice;
use common::setup::Setup;
use rustix::process::{Pid, Signal, kill_process};

/// The arguments of a capture of every page, uncompressed, to `disk`.
fn capture<'a>(disk: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["capture", "-q", "--force", "-d", "0", "-c", "none"], more, &["vmcore", disk]].concat()
}

#[test]
fn a_dump_on_a_disk_is_read_back() {
    let setup = Setup::with_noise(4);
    let Some(disk) = LoopDevice::new(&setup.path("disk"), 128 << 20) else { return };
    let pages = setup.image.expected(0).len() as u64;
    for format in ["kdump", "elf", "flattened"] {
        // What another dump leaves is not part of this one.
        setup.succeeds(&capture(disk.path(), &["-f", "kdump"]));
        setup.succeeds(&capture(disk.path(), &["-f", format]));
        assert_eq!(setup.is_complete(disk.path()), Some(true), "{format}");
        assert_eq!(setup.right_pages(disk.path()), pages, "{format}");
        setup.succeeds(&["verify", disk.path()]);
        setup.succeeds(&["convert", "-q", "--force", disk.path(), "copy"]);
        assert_eq!(setup.is_complete("copy"), Some(true), "{format}");
        assert_eq!(setup.right_pages("copy"), pages, "{format}");
    }
}

#[test]
fn a_capture_to_a_disk_that_ends_early_keeps_its_pages() {
    let setup = Setup::with_noise(32);
    let pages = setup.image.expected(0).len() as u64;
    // The noise starts at 64 MiB of an ELF dump.
    for (format, room) in [("kdump", 0), ("flattened", 0), ("elf", 64)] {
        let large = LoopDevice::new(&setup.path("large"), 256 << 20);
        let (Some(large), Some(small)) = (large, LoopDevice::new(&setup.path("small"), (room + 16) << 20))
        else {
            return;
        };
        let kept = |disk: &str, least: u64, what: &str| {
            assert_eq!(setup.is_complete(disk), Some(false), "{format}: {what}");
            let held = setup.right_pages(disk);
            assert!((least..pages).contains(&held), "{format}: {what}: {held} of {pages} pages");
        };
        // What a complete dump leaves is not part of these.
        setup.succeeds(&capture(large.path(), &["-f", format]));
        let limit = format!("{}M", room + 8);
        setup.fails(&capture(large.path(), &["-f", format, "--size-limit", &limit]), 3);
        kept(large.path(), 256, "size limit");
        // Pages of zeros come first; some are there even if no time is left for more.
        setup.fails(&capture(large.path(), &["-f", format, "--time-limit", "1ms"]), 3);
        kept(large.path(), 0, "time limit");
        let said = setup.fails(&capture(small.path(), &["-f", format]), 3);
        assert!(said.contains("No space left on device"), "{said}");
        kept(small.path(), 256, "full disk");
    }
}

#[test]
fn a_signal_during_a_capture_to_a_disk_keeps_its_pages() {
    let setup = Setup::with_noise(64);
    loop {
        let Some(disk) = LoopDevice::new(&setup.path("disk"), 256 << 20) else { return };
        let mut child =
            setup.command(&capture(disk.path(), &["-t", "1"])).stderr(Stdio::piped()).spawn().unwrap();
        // Until the noise arrives.
        while fs::metadata(setup.path("disk")).unwrap().blocks_used() < 24 << 20
            && child.try_wait().unwrap().is_none()
        {
            std::thread::yield_now();
        }
        if child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        if output.status.code() == Some(3) {
            setup.assert_incomplete(disk.path(), 256..setup.image.expected(0).len() as u64);
            return;
        }
        // A busy machine may have let it finish.
        assert!(output.status.success(), "{said}");
    }
}

#[test]
fn checksums_and_used_disks_are_refused() {
    let setup = Setup::small();
    let Some(disk) = LoopDevice::new(&setup.path("disk"), 64 << 20) else { return };
    let said = setup.fails(&["capture", "vmcore", disk.path()], 1);
    assert!(said.contains("exists; remove it, or replace it with --force"), "{said}");
    let said = setup.fails(&["capture", "--force", "--checksums", "vmcore", disk.path()], 1);
    assert!(said.contains("a disk has no directory; omit --checksums"), "{said}");
    let mut exclusive = fs::File::options();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut exclusive, libc::O_EXCL);
    let _user = exclusive.read(true).open(disk.path()).unwrap();
    let said = setup.fails(&["capture", "--force", "vmcore", disk.path()], 1);
    assert!(said.contains("is in use: it is mounted, or another program writes to it"), "{said}");
    assert!(fs::read(disk.path()).unwrap().iter().all(|&byte| byte == 0), "the disk is untouched");
}

/// Disk space that a file takes.
trait BlocksUsed {
    fn blocks_used(&self) -> u64;
}

impl BlocksUsed for fs::Metadata {
    fn blocks_used(&self) -> u64 {
        std::os::unix::fs::MetadataExt::blocks(self) * 512
    }
}
