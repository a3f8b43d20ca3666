//! Downloads packages of any Debian suite without changing the machine's apt sources, lists or packages.
//!
//! apt runs with its own root directory in the cache and sources for the suites requested. The mirror is the one the
//! machine uses; the Debian archive keyring signs every suite. Root is not needed.

use crate::Architecture;
use crate::cache::{self, Key};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Suites that distinguish a Debian mirror from the machine's other sources.
const SUITES: [&str; 8] =
    ["bullseye", "bookworm", "trixie", "forky", "sid", "stable", "oldstable", "testing"];

/// The packages of a set of Debian suites.
pub struct Apt {
    root: PathBuf,
    architecture: Architecture,
    default_suite: String,
}

impl Apt {
    /// Sets up apt for these suites and x86_64. The last suite takes precedence. Package lists are fetched once, and again
    /// with `refresh`.
    pub fn new(suites: &[&str], refresh: bool) -> Result<Apt> {
        Apt::with_packages_for(Architecture::X86_64, suites, refresh)
    }

    /// Sets up apt for these suites and an architecture.
    pub fn with_packages_for(architecture: Architecture, suites: &[&str], refresh: bool) -> Result<Apt> {
        let mut directory = suites.join("+");
        if architecture != Architecture::X86_64 {
            directory = format!("{directory}-{}", architecture.debian());
        }
        let root = cache::directory()?.join("apt").join(directory);
        let default_suite = (*suites.last().context("no suite named")?).to_owned();
        let apt = Apt { root, architecture, default_suite };
        let _guard = cache::lock("apt")?;
        let ready = apt.root.join("ready");
        if ready.exists() && !refresh {
            return Ok(apt);
        }
        for directory in ["lists/partial", "cache/archives/partial", "debs"] {
            cache::make(&apt.root.join(directory))?;
        }
        let mirror = mirror()?;
        let sources: String =
            suites.iter().map(|suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n")).collect();
        fs::write(apt.root.join("sources.list"), sources).context("writing apt's sources")?;
        // Without installed packages apt resolves all dependencies.
        fs::write(apt.root.join("status"), "").context("writing apt's status")?;
        eprintln!("fetching the package lists of {}", suites.join(", "));
        apt.run("apt-get", &["update"]).with_context(|| format!("package lists of {}", suites.join(", ")))?;
        fs::write(&ready, "").context("marking apt's lists as complete")?;
        Ok(apt)
    }

    /// Returns the names of packages that start with `prefix`.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let text = self.run("apt-cache", &["pkgnames", prefix])?;
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// Downloads one package and returns the file's path.
    pub fn download(&self, package: &str) -> Result<PathBuf> {
        let uris = self.run("apt-get", &["download", "--print-uris", package])?;
        let file = uris.split_whitespace().nth(1).with_context(|| format!("{package}: no such package"))?;
        let directory = self.root.join("debs");
        let path = directory.join(file);
        if !path.exists() {
            eprintln!("fetching {package}");
            self.run_in(&directory, "apt-get", &["download", package])
                .with_context(|| format!("fetching the package {package}"))?;
        }
        Ok(path)
    }

    /// Unpacks packages and all their dependencies into a directory, and returns the names of the package files.
    pub fn unpack_closure(&self, packages: &[&str], into: &Path) -> Result<Vec<String>> {
        // A separate directory ends up with exactly the packages requested.
        let key = packages.iter().fold(Key::default(), |key, package| key.with(package)).short();
        let directory = self.root.join("closures").join(key);
        cache::make(&directory.join("partial"))?;
        let suite = format!("-oAPT::Default-Release={}", self.default_suite);
        let archives = format!("-oDir::Cache::archives={}", directory.display());
        let mut arguments =
            vec![suite.as_str(), &archives, "install", "--download-only", "--no-install-recommends", "-y"];
        arguments.extend(packages);
        eprintln!("fetching {}", packages.join(", "));
        self.run("apt-get", &arguments).with_context(|| format!("fetching {}", packages.join(", ")))?;
        let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|e| e == "deb"));
        paths.sort();
        paths.iter().try_for_each(|path| unpack(path, into))?;
        fs::remove_dir_all(&directory).context("removing unpacked packages")?;
        Ok(paths.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    /// Returns packages and all their dependencies, with the KiB that each takes when installed.
    pub fn closure(&self, packages: &[&str]) -> Result<BTreeMap<String, u64>> {
        let arguments = [&["install", "--simulate", "--no-install-recommends"], packages].concat();
        let simulated = self.run("apt-get", &arguments)?;
        let lines = simulated.lines().filter_map(|line| line.strip_prefix("Inst "));
        let names: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
        let shown = self.run("apt-cache", &[&["show", "--no-all-versions"], names.as_slice()].concat())?;
        let field = |package: &str, name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned()).with_context(|| format!("apt-cache shows no {name}"))
        };
        let packages = shown.split("\n\n").filter(|package| !package.trim().is_empty());
        packages
            .map(|package| Ok((field(package, "Package:")?, field(package, "Installed-Size:")?.parse()?)))
            .collect()
    }

    /// Downloads a file from a package's directory in the mirror's pool that the suite no longer lists: debug symbols
    /// leave the lists before the signed kernel they belong to. Without a list there is no checksum: the caller must
    /// check the content.
    pub fn download_unlisted(&self, package: &str, rename: impl Fn(&str) -> String) -> Result<PathBuf> {
        let uris = self.run("apt-get", &["download", "--print-uris", package])?;
        let uri = uris.split('\'').nth(1).with_context(|| format!("{package}: no such package"))?;
        let uri = rename(&plain(uri));
        let name = uri.rsplit('/').next().unwrap_or("package.deb").to_owned();
        let path = self.root.join("debs").join(name);
        if !path.exists() {
            let part = path.with_extension("part");
            let status = Command::new("/usr/lib/apt/apt-helper")
                .arg("-oAPT::Sandbox::User=")
                .arg("download-file")
                .arg(&uri)
                .arg(&part)
                .stdout(Stdio::null())
                .status()
                .context("running apt-helper")?;
            if !status.success() {
                bail!("{uri} is in neither the suite's lists nor the pool");
            }
            fs::rename(&part, &path).context("keeping the download")?;
        }
        Ok(path)
    }

    fn run(&self, tool: &str, arguments: &[&str]) -> Result<String> {
        self.run_in(&self.root, tool, arguments)
    }

    fn run_in(&self, directory: &Path, tool: &str, arguments: &[&str]) -> Result<String> {
        let root = self.root.display();
        let mut command = Command::new(tool);
        command.current_dir(directory).stdin(Stdio::null());
        for (option, value) in [
            ("Dir::State", format!("{root}")),
            ("Dir::State::lists", format!("{root}/lists")),
            ("Dir::State::status", format!("{root}/status")),
            ("Dir::Cache", format!("{root}/cache")),
            ("Dir::Etc::sourcelist", format!("{root}/sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".into()),
            ("Dir::Etc::preferences", "/dev/null".into()),
            ("Dir::Etc::preferencesparts", "/dev/null".into()),
            // As root, apt downloads as another user, who cannot write here.
            ("APT::Sandbox::User", String::new()),
            // Nothing is installed, so that the system's locks are not needed.
            ("Debug::NoLocking", "1".into()),
            ("APT::Architecture", self.architecture.debian().into()),
            ("APT::Architectures", self.architecture.debian().into()),
            ("Acquire::Languages", "none".into()),
            ("Acquire::IndexTargets::deb::DEP-11::DefaultEnabled", "false".into()),
            ("Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled", "false".into()),
            ("Acquire::Retries", "3".into()),
            // A lagging mirror's lists have expired, but are signed.
            ("Acquire::Check-Valid-Until", "false".into()),
        ] {
            command.arg(format!("-o{option}={value}"));
        }
        let output = command.args(arguments).output().with_context(|| {
            format!("running {tool}: the lab downloads Debian packages and needs a Debian machine")
        })?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> =
                text.lines().filter(|l| l.starts_with("E:") || l.starts_with("Err")).collect();
            bail!("{tool} {} failed: {}", arguments.first().unwrap_or(&""), lines.join("; "));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Unpacks a package into a directory.
pub fn unpack(package: &Path, into: &Path) -> Result<()> {
    let output = Command::new("dpkg-deb")
        .arg("-x")
        .args([package, into])
        .output()
        .context("running dpkg-deb: the lab unpacks Debian packages and needs a Debian machine")?;
    if !output.status.success() {
        bail!("unpacking {}: {}", package.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Decodes the percent-encoded characters that occur in package names.
fn plain(uri: &str) -> String {
    [("%2b", "+"), ("%7e", "~"), ("%3a", ":")]
        .iter()
        .fold(uri.to_owned(), |uri, (code, c)| uri.replace(code, c))
}

/// Returns the Debian mirror that this machine uses. `PAGEHAUL_LAB_MIRROR` overrides it.
pub(crate) fn mirror() -> Result<String> {
    if let Ok(mirror) = std::env::var("PAGEHAUL_LAB_MIRROR") {
        return Ok(mirror);
    }
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"])
        .output()
        .context("running apt-get: the lab downloads Debian packages and needs a Debian machine")?;
    let text = String::from_utf8_lossy(&output.stdout);
    find_mirror(&text).context(
        "apt's sources name no Debian mirror with a component main: set PAGEHAUL_LAB_MIRROR to the URI of one",
    )
}

/// Finds the mirror in lines of "URI release component".
fn find_mirror(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (uri, release, component) = (words.next()?, words.next()?, words.next()?);
        (SUITES.contains(&release) && component == "main").then(|| uri.trim_end_matches('/').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::{find_mirror, plain};

    #[test]
    fn package_names_are_decoded() {
        let uri = "http://mirror.example/linux-image-6.18.15%2bdeb13_6.18.15-1%7ebpo13%2b1_amd64.deb";
        let expected = "http://mirror.example/linux-image-6.18.15+deb13_6.18.15-1~bpo13+1_amd64.deb";
        assert_eq!(plain(uri), expected);
    }

    #[test]
    fn the_mirror_is_the_one_with_a_debian_suite() {
        let targets = "https://tools.example/apt nodistro main\n\
                       http://security.example/debian-security/ bookworm-security main\n\
                       http://mirror.example/debian/ bookworm-updates main\n\
                       http://mirror.example/debian/ bookworm main\n";
        assert_eq!(find_mirror(targets).as_deref(), Some("http://mirror.example/debian"));
        assert_eq!(find_mirror("http://x.example jammy main\n"), None);
    }
}
