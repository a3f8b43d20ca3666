//! The Debian kernels that the lab crashes.
//!
//! The cloud images are small, and have crash dumps, kexec and ext4 built in. Each kernel is pinned by suite and
//! release. Once the suite no longer has that release, the lab takes the newest of the same series. The cache keeps the
//! kernel that was fetched first.

use crate::Architecture;
use crate::apt::Apt;
use crate::apt::unpack;
use crate::cache;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// A kernel series and the suite that carries it.
pub struct Series {
    /// Name on the command line.
    pub name: &'static str,
    /// The suite that carries it.
    pub suite: &'static str,
    /// The architecture it runs on.
    pub architecture: Architecture,
    /// Size of its pages in bytes.
    pub page_size: u32,
    /// Suffix of its releases.
    flavour: &'static str,
    /// Prefix of its releases.
    prefix: &'static str,
    /// The release to prefer.
    release: &'static str,
}

/// Kernels with PREEMPT_RT.
const REALTIME: &str = "-rt-amd64";

const fn amd64(
    name: &'static str,
    suite: &'static str,
    prefix: &'static str,
    release: &'static str,
) -> Series {
    let flavour = "-cloud-amd64";
    Series { name, suite, architecture: Architecture::X86_64, page_size: 4096, flavour, prefix, release }
}

const fn arm64(
    name: &'static str,
    suite: &'static str,
    prefix: &'static str,
    release: &'static str,
) -> Series {
    Series {
        architecture: Architecture::Arm64,
        flavour: "-cloud-arm64",
        ..amd64(name, suite, prefix, release)
    }
}

/// A kernel with PREEMPT_RT.
const fn realtime(
    name: &'static str,
    suite: &'static str,
    prefix: &'static str,
    release: &'static str,
) -> Series {
    Series { flavour: REALTIME, ..amd64(name, suite, prefix, release) }
}

const fn riscv64(
    name: &'static str,
    suite: &'static str,
    prefix: &'static str,
    release: &'static str,
) -> Series {
    Series { architecture: Architecture::Riscv64, flavour: "-riscv64", ..amd64(name, suite, prefix, release) }
}

/// The lab's kernels, oldest first.
pub const SERIES: [Series; 13] = [
    amd64("5.10", "bullseye", "5.10.0-", "5.10.0-32"),
    amd64("6.1", "bookworm", "6.1.0-", "6.1.0-50"),
    amd64("6.12", "trixie", "6.12.", "6.12.107+deb13"),
    amd64("6.18", "trixie-backports", "6.18.", "6.18.15+deb13"),
    amd64("7.2", "trixie-backports", "7.2.", "7.2.12+deb13"),
    realtime("6.1-rt", "bookworm", "6.1.0-", "6.1.0-50"),
    realtime("6.12-rt", "trixie", "6.12.", "6.12.107+deb13"),
    // Configured for addresses of 48 bits; the later ones for 52, of which a CPU without LPA2 uses 48, or 47 with pages of
    // 16 KiB.
    arm64("6.1-arm64", "bookworm", "6.1.0-", "6.1.0-50"),
    arm64("6.12-arm64", "trixie", "6.12.", "6.12.107+deb13"),
    Series {
        page_size: 16384,
        flavour: "-arm64-16k",
        ..arm64("6.12-arm64-16k", "trixie", "6.12.", "6.12.107+deb13")
    },
    arm64("7.2-arm64", "trixie-backports", "7.2.", "7.2.12+deb13"),
    riscv64("6.12-riscv64", "trixie", "6.12.", "6.12.107+deb13"),
    riscv64("7.2-riscv64", "sid", "7.2.", "7.2.13"),
];

/// A kernel in the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kernel {
    /// Name of its series.
    pub series: String,
    /// `uname -r`.
    pub release: String,
    /// Suite that it came from.
    pub suite: String,
    /// Package files that it came from.
    pub packages: Vec<String>,
    /// The architecture it runs on.
    #[serde(skip)]
    pub architecture: Architecture,
    /// Size of its pages in bytes.
    #[serde(skip)]
    pub page_size: u32,
    /// Directory of the kernel in the cache.
    #[serde(skip)]
    directory: PathBuf,
}

/// Returns the names of all series of an architecture but those with PREEMPT_RT, whose dumps have no other format.
pub fn names(architecture: Architecture) -> impl Iterator<Item = &'static str> {
    let all = SERIES.iter().filter(move |series| series.architecture == architecture);
    all.filter(|series| series.flavour != REALTIME).map(|series| series.name)
}

/// Returns the series with this name.
pub fn series(name: &str) -> Result<&'static Series> {
    let found = SERIES.iter().find(|series| series.name == name);
    found.with_context(|| {
        let names: Vec<&str> = SERIES.iter().map(|series| series.name).collect();
        format!("unknown kernel {name}: the lab has {}", names.join(", "))
    })
}

impl Kernel {
    /// Returns the kernel of a series, from the cache or the mirror.
    pub fn get(name: &str) -> Result<Kernel> {
        let series = series(name)?;
        let directory = cache::directory()?.join("kernels").join(series.name);
        cache::once(&directory, |draft| fetch(series, draft)).with_context(|| format!("kernel {name}"))?;
        let path = directory.join("kernel.json");
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        let mut kernel: Kernel = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
        kernel.architecture = series.architecture;
        kernel.page_size = series.page_size;
        kernel.directory = directory;
        Ok(kernel)
    }

    /// Refuses kernels of other architectures, for guests whose programs are x86_64's.
    pub fn require_host_architecture(&self) -> Result<()> {
        if self.architecture != Architecture::X86_64 {
            bail!("{} runs on {} only: choose an x86_64 kernel", self.release, self.architecture.debian());
        }
        Ok(())
    }

    /// Returns the bootable image.
    pub fn image(&self) -> Result<PathBuf> {
        let release = &self.release;
        let names = [
            format!("boot/vmlinuz-{release}"),
            format!("usr/lib/modules/{release}/vmlinuz"),
            // An Image, whatever its name says: riscv64 to 6.12.
            format!("boot/vmlinux-{release}"),
        ];
        let path = names.into_iter().map(|name| self.root().join(name)).find(|path| path.exists());
        path.with_context(|| format!("the packages of {release} contain no vmlinuz"))
    }

    /// Returns the kernel's configuration.
    pub fn configuration(&self) -> PathBuf {
        self.root().join(format!("boot/config-{}", self.release))
    }

    /// Returns the directory of its modules.
    pub fn modules(&self) -> Result<PathBuf> {
        let places =
            ["usr/lib/modules", "lib/modules"].map(|place| self.root().join(place).join(&self.release));
        let found = places.into_iter().find(|path| path.join("kernel").exists());
        found.with_context(|| format!("the packages of {} contain no modules", self.release))
    }

    /// Returns the directory with the unpacked packages.
    pub fn root(&self) -> PathBuf {
        self.directory.join("root")
    }
}

fn fetch(series: &Series, into: &Path) -> Result<()> {
    let packages = |refresh| Apt::with_packages_for(series.architecture, &[series.suite], refresh);
    let prefix = format!("linux-image-{}", series.prefix);
    let apt = packages(false)?;
    let release = choose(series, &apt.names(&prefix)?).or_else(|| {
        // The package lists may be outdated.
        choose(series, &packages(true).ok()?.names(&prefix).ok()?)
    });
    let Some(release) = release else {
        bail!("the suite {} no longer has a kernel {}", series.suite, series.name);
    };
    // Since 6.19, linux-image is empty and depends on one package each for the image and the modules.
    let split = apt.names(&format!("linux-binary-{release}"))?.contains(&format!("linux-binary-{release}"));
    let parts: &[&str] = if split { &["linux-binary-", "linux-modules-"] } else { &["linux-image-"] };
    let root = into.join("root");
    let mut packages = Vec::new();
    for part in parts {
        let package = apt.download(&format!("{part}{release}"))?;
        unpack(&package, &root)?;
        packages.push(package.file_name().unwrap_or_default().to_string_lossy().into_owned());
        fs::remove_file(&package).context("removing an unpacked package")?;
    }
    let kernel = Kernel {
        series: series.name.to_owned(),
        release,
        suite: series.suite.to_owned(),
        packages,
        architecture: series.architecture,
        page_size: series.page_size,
        directory: PathBuf::new(),
    };
    let json = serde_json::to_vec_pretty(&kernel).context("writing kernel.json")?;
    fs::write(into.join("kernel.json"), json).context("writing kernel.json")
}

/// Returns the pinned release if it is among the packages, otherwise the newest.
fn choose(series: &Series, packages: &[String]) -> Option<String> {
    let releases = packages.iter().filter_map(|name| {
        let release = name.strip_prefix("linux-image-")?;
        let rest = release.strip_prefix(series.prefix)?.strip_suffix(series.flavour)?;
        // Skips debug symbols, unsigned images and metapackages.
        rest.starts_with(|c: char| c.is_ascii_digit()).then(|| release.to_owned())
    });
    let pinned = format!("{}{}", series.release, series.flavour);
    let releases: Vec<String> = releases.collect();
    if releases.contains(&pinned) { Some(pinned) } else { releases.into_iter().max_by_key(|r| numbers(r)) }
}

/// Returns the numbers in a release's name, which sort the releases of a series.
fn numbers(release: &str) -> Vec<u64> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("linux-image-{name}")).collect()
    }

    #[test]
    fn the_pinned_release_is_preferred() {
        let list = packages(&["6.12.200+deb13-cloud-amd64", "6.12.107+deb13-cloud-amd64"]);
        let series = series("6.12").unwrap();
        assert_eq!(choose(series, &list).as_deref(), Some("6.12.107+deb13-cloud-amd64"));
    }

    #[test]
    fn otherwise_the_newest_by_number_and_not_debug_symbols() {
        let list = packages(&[
            "5.10.0-9-cloud-amd64",
            "5.10.0-33-cloud-amd64",
            "5.10.0-40-cloud-amd64-dbg",
            "5.10.0-41-amd64",
            "5.10.0-unsigned-cloud-amd64",
        ]);
        assert_eq!(choose(series("5.10").unwrap(), &list).as_deref(), Some("5.10.0-33-cloud-amd64"));
        assert_eq!(choose(series("6.1").unwrap(), &list), None);
    }

    #[test]
    fn flavours_of_a_release_are_told_apart() {
        let list =
            packages(&["6.12.107+deb13-cloud-arm64", "6.12.107+deb13-arm64", "6.12.107+deb13-arm64-16k"]);
        let chosen = |name| choose(series(name).unwrap(), &list);
        assert_eq!(chosen("6.12-arm64").as_deref(), Some("6.12.107+deb13-cloud-arm64"));
        assert_eq!(chosen("6.12-arm64-16k").as_deref(), Some("6.12.107+deb13-arm64-16k"));
        assert_eq!(chosen("6.12"), None);
    }

    #[test]
    fn the_error_for_an_unknown_series_lists_all() {
        let error = Kernel::get("4.2").unwrap_err().to_string();
        assert!(error.contains("4.2") && error.contains("6.12"), "{error}");
    }
}
