//! Guests whose kernel keeps the end of its log in pstore, besides the dump of the capture kernel.

use std::path::Path;

/// A backend of pstore. In QEMU what it keeps outlives a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pstore {
    /// Memory that the kernel does not use otherwise. It keeps one record of an event.
    Ramoops,
    /// ACPI's error record serialization table, which divides the log of an event into several records.
    Erst,
}

impl Pstore {
    /// Its name, as the kernel has it.
    pub fn name(self) -> &'static str {
        match self {
            Pstore::Ramoops => "ramoops",
            Pstore::Erst => "erst",
        }
    }

    /// Modules that both kernels load.
    pub(super) fn modules(self) -> &'static [&'static str] {
        match self {
            Pstore::Ramoops => &["ramoops"],
            Pstore::Erst => &[],
        }
    }

    /// Of the first kernel's command line. The memory is between what QEMU loads at 1 MiB and what the kernel
    /// decompresses from 16 MiB on: in the middle, it left no room for the capture kernel where KASLR had put the first
    /// one at some addresses. Without `crash_kexec_post_notifiers` the kernel writes no record if a capture kernel is
    /// loaded.
    pub(super) fn in_first_kernel(self) -> &'static str {
        match self {
            Pstore::Ramoops => {
                "crash_kexec_post_notifiers memmap=1M$0xf00000 ramoops.mem_address=0xf00000 \
                 ramoops.mem_size=0x100000 ramoops.record_size=0x8000 ramoops.ecc=1"
            }
            Pstore::Erst => "crash_kexec_post_notifiers",
        }
    }

    /// Of the capture kernel's command line. That kernel does not decompress records.
    pub(super) fn in_capture_kernel(self) -> &'static str {
        match self {
            Pstore::Ramoops => {
                "pstore.compress=none ramoops.mem_address=0xf00000 ramoops.mem_size=0x100000 \
                 ramoops.record_size=0x8000 ramoops.ecc=1"
            }
            Pstore::Erst => "pstore.compress=none",
        }
    }

    /// Arguments of QEMU, which may have files in `directory`.
    pub(super) fn arguments(self, directory: &Path) -> Vec<String> {
        match self {
            Pstore::Ramoops => Vec::new(),
            Pstore::Erst => {
                let file = directory.join("erst");
                let object =
                    format!("memory-backend-file,id=erst,mem-path={},size=64K,share=on", file.display());
                ["-object", &object, "-device", "acpi-erst,memdev=erst"].map(str::to_owned).to_vec()
            }
        }
    }
}
