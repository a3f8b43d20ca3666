//! The Debian kernels that the lab crashes.
//!
//! The cloud-amd64 images are small, and have crash dumps, kexec and ext4 built in. Each kernel is pinned by suite and
//! release. Once the suite no longer has that release, the lab takes the newest of the same series. The cache keeps the
//! kernel that was fetched first.

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
    /// Prefix of its releases.
    prefix: &'static str,
    /// The release to prefer.
    release: &'static str,
}

const FLAVOUR: &str = "-cloud-amd64";

/// The lab's kernels, oldest first.
pub const SERIES: [Series; 5] = [
    Series { name: "5.10", suite: "bullseye", prefix: "5.10.0-", release: "5.10.0-32" },
    Series { name: "6.1", suite: "bookworm", prefix: "6.1.0-", release: "6.1.0-50" },
    Series { name: "6.12", suite: "trixie", prefix: "6.12.", release: "6.12.107+deb13" },
    Series { name: "6.18", suite: "trixie-backports", prefix: "6.18.", release: "6.18.15+deb13" },
    Series { name: "7.2", suite: "trixie-backports", prefix: "7.2.", release: "7.2.12+deb13" },
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
    /// Directory of the kernel in the cache.
    #[serde(skip)]
    directory: PathBuf,
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
        kernel.directory = directory;
        Ok(kernel)
    }

    /// Returns the bootable image.
    pub fn image(&self) -> Result<PathBuf> {
        let name = format!("boot/vmlinuz-{}", self.release);
        let split = format!("usr/lib/modules/{}/vmlinuz", self.release);
        let path = [name, split].into_iter().map(|name| self.root().join(name)).find(|path| path.exists());
        path.with_context(|| format!("the packages of {} contain no vmlinuz", self.release))
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
    let apt = Apt::new(&[series.suite], false)?;
    let names = apt.names(&format!("linux-image-{}", series.prefix))?;
    let release = choose(series, &names).or_else(|| {
        // The package lists may be outdated.
        let names =
            Apt::new(&[series.suite], true).ok()?.names(&format!("linux-image-{}", series.prefix)).ok()?;
        choose(series, &names)
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
        directory: PathBuf::new(),
    };
    let json = serde_json::to_vec_pretty(&kernel).context("writing kernel.json")?;
    fs::write(into.join("kernel.json"), json).context("writing kernel.json")
}

/// Returns the pinned release if it is among the packages, otherwise the newest.
fn choose(series: &Series, packages: &[String]) -> Option<String> {
    let releases = packages.iter().filter_map(|name| {
        let release = name.strip_prefix("linux-image-")?;
        let rest = release.strip_prefix(series.prefix)?.strip_suffix(FLAVOUR)?;
        // Skips debug symbols, unsigned images and metapackages.
        rest.starts_with(|c: char| c.is_ascii_digit()).then(|| release.to_owned())
    });
    let pinned = format!("{}{FLAVOUR}", series.release);
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
    fn the_error_for_an_unknown_series_lists_all() {
        let error = Kernel::get("4.2").unwrap_err().to_string();
        assert!(error.contains("4.2") && error.contains("6.12"), "{error}");
    }
}
