//! Opens dumps, and finds the kernel of those that do not describe it.

use std::path::{Path, PathBuf};
use std::thread;

use pagehaul_elfcore::notes;
use pagehaul_kernel::Kernel;
use pagehaul_physmem::MapPolicy;
use pagehaul_physmem::file::is_url;
use pagehaul_vmcore::{Layout, Source, SourceError, SourceKind};

use crate::choice::{KernelInMemory, NoKernel, find, notes_with};
use crate::cpu_notes;

/// Why files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// They cannot be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A layout is given for several files.
    #[error("--layout is for one raw image, but {0} files are named")]
    Several(usize),
    /// No kernel is in an image.
    #[error("{path}: {why}{advice}", path = path.display())]
    NoKernel {
        /// The image.
        path: PathBuf,
        /// What was looked for.
        why: NoKernel,
        /// What to do.
        advice: &'static str,
    },
    /// The image is on a server.
    #[error("{path}: all of an image of memory is searched for its kernel: download it first", path = path.display())]
    Remote {
        /// The image.
        path: PathBuf,
    },
}

/// Opens one file of any format; with a layout, a raw image.
pub fn open(path: &Path, layout: Option<&Layout>, policy: MapPolicy) -> Result<Source, ImageError> {
    open_all(&[path.to_owned()], layout, policy)
}

/// Opens one file, or the parts of a split set; with a layout, a raw image.
pub fn open_all(paths: &[PathBuf], layout: Option<&Layout>, policy: MapPolicy) -> Result<Source, ImageError> {
    let mut source = match (layout, paths) {
        (None, _) => Source::open_all(paths, policy)?,
        (Some(layout), [path]) => Source::open_raw(path, layout, policy).map_err(SourceError::Open)?,
        (Some(_), _) => return Err(ImageError::Several(paths.len())),
    };
    describe(&mut source, layout)?;
    Ok(source)
}

/// Finds the kernel of a source that does not describe it. An image is nothing without; of other files, memory can be read.
fn describe(source: &mut Source, layout: Option<&Layout>) -> Result<(), ImageError> {
    let is_image = matches!(source.kind(), SourceKind::Image(_));
    let path = source.path().to_owned();
    if source.paths().iter().any(|path| is_url(path)) {
        return if is_image { Err(ImageError::Remote { path }) } else { Ok(()) };
    }
    if !is_image && !is_searched(source) {
        return Ok(());
    }
    let threads = thread::available_parallelism().map_or(1, Into::into);
    match find(source.memory(), threads) {
        Ok(kernels) => supply(source, &kernels),
        Err(why) if is_image => {
            let advice = match (layout, why.candidates) {
                (Some(_), 1..) => "; --layout says where the bytes of the file belong",
                _ => "",
            };
            return Err(ImageError::NoKernel { path, why, advice });
        }
        // Its warnings say why.
        Err(_) if source.is_incomplete() => {}
        Err(why) => source.add_remark(format!("{}: {why}", path.display())),
    }
    Ok(())
}

/// Returns whether a dump lacks VMCOREINFO, and is of a machine whose kernels can be read. Files of /proc describe themselves.
fn is_searched(source: &Source) -> bool {
    let memory = source.memory();
    let platform = memory.platform();
    notes::vmcoreinfo(memory.notes()).is_none()
        && (platform.machine == 0 && platform.wide && !platform.big_endian || platform.arch().is_some())
        && !source.paths().iter().any(|path| path.starts_with("/proc"))
}

/// Adds the notes of the first kernel.
fn supply(source: &mut Source, kernels: &[KernelInMemory]) {
    let Some((kernel, others)) = kernels.split_first() else { return };
    let of_file = source.memory().notes().to_vec();
    let name = source.path().display().to_string();
    source.add_remark(format!("{name}: VMCOREINFO is from memory, at {:#x}", kernel.at));
    if kernel.crash_time.is_some() {
        source.supply_notes(notes_with(kernel, &[]));
        // The CPUs went on after the crash: what the file has of them is of the capture kernel.
        let of_crash = cpu_notes::of_crash(source.memory(), source.memory().notes());
        if of_crash.is_empty() {
            source.add_remark(format!(
                "{name}: the registers that the CPUs saved at the crash cannot be read: there are none"
            ));
        } else {
            source.supply_notes(notes_with(kernel, &of_crash));
        }
    } else {
        source.supply_notes(notes_with(kernel, &of_file));
    }
    if let Err(error) = Kernel::discover(source.memory()) {
        source.add_remark(format!(
            "{name}: {error}: the file is truncated, or its layout is wrong after the kernel; what is reported of its memory may be wrong"
        ));
    }
    for other in others {
        let what = match (kernel.crash_time, other.crash_time) {
            (Some(_), None) => "which has no time of a crash, as capture kernels do",
            (Some(_), Some(_)) => "which crashed before",
            (None, _) => "which had no crash either",
        };
        source.add_remark(format!(
            "{name}: {} is read; memory also has the kernel {}, {what} (VMCOREINFO at {:#x})",
            kernel.release, other.release, other.at
        ));
    }
}
