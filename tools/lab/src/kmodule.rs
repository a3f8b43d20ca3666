//! Builds the lab's kernel modules with Debian's kernel headers.

use crate::apt::Apt;
use crate::apt::unpack;
use crate::cache::{self, Key};
use crate::kernels::{self, Kernel};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The module that stresses vmalloc. Sources are in `tools/lab/module`.
pub const VMALLOC_STRESS: &str = "vmalloc_stress";
/// The module that crashes the kernel.
pub const CRASH_SCENES: &str = "crash_scenes";

/// Wrapper programs of the headers, and the program each would run here. These are linked to the suite's C library, which
/// may be newer than this machine's.
const PROGRAMS: [(&str, &str); 2] =
    [("tools/objtool/objtool", "objtool.real-x86"), ("scripts/mod/modpost", "modpost.real-lsb-64")];
const LIBRARIES: [&str; 4] = ["libc6", "libelf1t64", "zlib1g", "libzstd1"];
const LIBRARY_SUITE: &str = "trixie";

/// Builds a module for a kernel of the lab, unless the cache has it. Only for 6.1 and later; [`VMALLOC_STRESS`] is of use
/// on 6.12 and later, since earlier kernels lack the trace events.
pub fn build(kernel: &Kernel, name: &str) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("module");
    let key = Key::default()
        .with(&kernel.release)
        .with_file(&source.join(format!("{VMALLOC_STRESS}.c")))?
        .with_file(&source.join(format!("{CRASH_SCENES}.c")))?
        .with_file(&source.join("Kbuild"))?;
    let modules = cache::directory()?.join("modules");
    let directory = modules.join(format!("{}-{}", kernel.release, key.short()));
    cache::once(&directory, |draft| {
        let headers = headers(kernel)?;
        let work = draft.join("build");
        cache::make(&work)?;
        let names = [VMALLOC_STRESS, CRASH_SCENES];
        for file in names.map(|name| format!("{name}.c")).iter().map(String::as_str).chain(["Kbuild"]) {
            fs::copy(source.join(file), work.join(file)).with_context(|| format!("copying {file}"))?;
        }
        make(kernel, &headers, &work)?;
        for module in names.map(|name| format!("{name}.ko")) {
            fs::rename(work.join(&module), draft.join(&module)).context("renaming a module")?;
        }
        fs::remove_dir_all(&work).context("removing the build directory")
    })
    .with_context(|| format!("building {name} for {}", kernel.release))?;
    Ok(directory.join(format!("{name}.ko")))
}

fn make(kernel: &Kernel, headers: &Path, work: &Path) -> Result<()> {
    let output = Command::new("make")
        .arg("-s")
        .arg("-C")
        .arg(headers.join("usr/src").join(format!("linux-headers-{}", kernel.release)))
        .arg(format!("M={}", work.display()))
        // The machine's compiler is older than the kernel's and lacks this option. BTF would need pahole, and nothing
        // here reads it.
        .args([
            "CC=gcc",
            "CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=",
            "CONFIG_DEBUG_INFO_BTF_MODULES=",
            "modules",
        ])
        .stdin(Stdio::null())
        .output()
        .context("running make")?;
    if !output.status.success() {
        bail!("make failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Returns a directory with the kernel's headers, whose programs run on this machine.
fn headers(kernel: &Kernel) -> Result<PathBuf> {
    let release = &kernel.release;
    let realtime = release.strip_suffix("-rt-amd64").map(|version| (version, "common-rt"));
    let (version, common) = realtime
        .or_else(|| Some((release.strip_suffix("-cloud-amd64")?, "common")))
        .context("the release ends in -cloud-amd64 or -rt-amd64")?;
    // Up to bookworm, one package for all releases of a series.
    let tools = match version.split_once(".0-") {
        Some((series, _)) => series,
        None => version,
    };
    let directory = cache::directory()?.join("headers").join(&kernel.release);
    cache::once(&directory, |draft| {
        let suite = kernels::series(&kernel.series)?.suite;
        let apt = Apt::new(&[suite], false)?;
        let packages = [
            format!("linux-headers-{}", kernel.release),
            format!("linux-headers-{version}-{common}"),
            format!("linux-kbuild-{tools}"),
        ];
        for package in &packages {
            take(&apt, package, draft)?;
        }
        let libraries = Apt::new(&[LIBRARY_SUITE], false)?;
        for package in LIBRARIES {
            take(&libraries, package, &draft.join("libraries"))?;
        }
        Ok(())
    })?;
    // The makefile needs absolute paths, which are known only once the directory has its final name.
    let makefile =
        directory.join("usr/src").join(format!("linux-headers-{}", kernel.release)).join("Makefile");
    let text = fs::read_to_string(&makefile).with_context(|| makefile.display().to_string())?;
    let ours = format!("{}/usr/src/", directory.display());
    if !text.contains(&ours) {
        let text = text.replace("/usr/src/", &ours);
        fs::write(&makefile, text).with_context(|| makefile.display().to_string())?;
    }
    let kbuild = directory.join("usr/lib").join(format!("linux-kbuild-{tools}"));
    for (program, real) in PROGRAMS {
        let path = kbuild.join(program);
        // Packages up to bookworm have no wrapper, and run with any C library that is not older.
        if !path.with_file_name(real).exists() {
            continue;
        }
        wrap(&directory, &path, &path.with_file_name(real))?;
    }
    Ok(directory)
}

fn take(apt: &Apt, package: &str, into: &Path) -> Result<()> {
    let path = apt.download(package)?;
    cache::make(into)?;
    unpack(&path, into)?;
    fs::remove_file(&path).context("removing an unpacked package")
}

/// Replaces a program by a script that runs another one with its own loader.
fn wrap(directory: &Path, program: &Path, real: &Path) -> Result<()> {
    let libraries = directory.join("libraries/usr/lib/x86_64-linux-gnu");
    let script = format!(
        "#!/bin/sh\nexec {0}/ld-linux-x86-64.so.2 --library-path {0} {1} \"$@\"\n",
        libraries.display(),
        real.display()
    );
    // By rename: the program can be a link to a file that others use.
    let fail = || program.display().to_string();
    let new = program.with_extension("new");
    fs::write(&new, script).with_context(fail)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).with_context(fail)?;
    fs::rename(&new, program).with_context(fail)
}
