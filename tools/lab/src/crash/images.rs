//! Images of a guest's memory as its host makes them, without the guest's help: raw, and QEMU's dumps without VMCOREINFO.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::Architecture;
use crate::cache;
use crate::vm::Vm;

/// Time for QEMU to write one file.
const LIMIT: Duration = Duration::from_secs(120);

/// Images of one moment of a guest.
#[derive(Clone, Debug)]
pub struct Images {
    directory: PathBuf,
}

impl Images {
    /// Names the files in `directory`.
    pub(super) fn within(directory: &Path) -> Images {
        Images { directory: directory.to_owned() }
    }

    /// Returns the images of the moment before the crash.
    pub fn before(&self) -> Images {
        Images::within(&self.directory.join("before"))
    }

    /// Physical memory from [`Architecture::memory_start`] on (`pmemsave`).
    pub fn raw(&self) -> PathBuf {
        self.directory.join("raw")
    }

    /// An ELF dump (`dump-guest-memory`).
    pub fn elf(&self) -> PathBuf {
        self.directory.join("elf")
    }

    /// A kdump-compressed dump (`dump-guest-memory`).
    pub fn kdump(&self) -> PathBuf {
        self.directory.join("kdump")
    }

    /// Stops the guest, writes the files, and lets it run on.
    pub(super) fn save(&self, vm: &Vm, memory_mib: u64, architecture: Architecture) -> Result<()> {
        cache::make(&self.directory)?;
        let text = |path: PathBuf| path.display().to_string();
        let mut qmp = vm.qmp()?;
        qmp.limit(LIMIT)?;
        qmp.execute("stop", &json!({}))?;
        let (start, size) = (architecture.memory_start(), memory_mib << 20);
        qmp.execute("pmemsave", &json!({ "val": start, "size": size, "filename": text(self.raw()) }))?;
        for (path, format) in [(self.elf(), "elf"), (self.kdump(), "kdump-zlib")] {
            let protocol = format!("file:{}", path.display());
            let arguments = json!({ "paging": false, "protocol": protocol, "format": format });
            qmp.execute("dump-guest-memory", &arguments).with_context(|| format!("a dump as {format}"))?;
        }
        qmp.execute("cont", &json!({}))?;
        Ok(())
    }
}
