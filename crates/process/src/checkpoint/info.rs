//! Describing and verifying checkpoints.

use std::path::{Path, PathBuf};

use pagehaul_pool::map_numbers;
use pagehaul_run::{Phase, Progress};
use serde::Serialize;

use super::chain::{Chain, LONGEST, base_path};
use super::container::{self, Block, Container, Image, container_path};
use super::losses;
use super::options::Lost;
use crate::error::ProcessError;
use crate::verify::Verified;

/// The description of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckpointInfo {
    /// What it is a checkpoint of: process, CRIU, time.
    pub about: serde_json::Value,
    /// What restarted processes lack, because CRIU does not restore it.
    pub lost: Vec<Lost>,
    /// Images in it: name, bytes, stored bytes.
    pub images: Vec<(String, u64, u64)>,
    pub image_bytes: u64,
    pub file_bytes: u64,
    /// Bytes, before they were compressed, of pages in it that the processes wrote to later, so that they are no part of it. `convert`
    /// leaves them out.
    pub unused_bytes: u64,
    /// Whether it has to be decrypted first.
    pub encrypted: bool,
    /// All files that a restart needs: this one, its base, and so on. Those that cannot be read, and those behind them, are not
    /// among them.
    pub chain: Vec<Generation>,
    /// Why it cannot be restarted: a base is missing, or not the right one.
    pub broken: Option<String>,
}

/// A file of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Generation {
    pub path: PathBuf,
    pub id: Option<String>,
    /// Seconds since 1970.
    pub time: u64,
    pub file_bytes: u64,
    pub encrypted: bool,
    /// The file that it is based on.
    pub base: Option<PathBuf>,
}

impl Generation {
    fn new(container: &Container) -> Self {
        let about = container.index.about();
        Self {
            path: container.path.clone(),
            id: container.id(),
            time: about["time"].as_u64().unwrap_or(0),
            file_bytes: container.file_bytes,
            encrypted: container.is_encrypted(),
            base: container.index.base.as_ref().map(|base| base_path(container, base)),
        }
    }
}

/// Describes a checkpoint. Returns `None` if the file (or the directory) is something else.
pub fn describe_checkpoint(path: &Path) -> Result<Option<CheckpointInfo>, ProcessError> {
    let path = container_path(path);
    if !container::is_container(&path) {
        return Ok(None);
    }
    let container = Container::open(&path)?;
    let stored = |image: &Image| image.blocks.iter().map(|block| u64::from(block.stored)).sum();
    let images = container.index.images.iter();
    let about = container.index.about();
    let mut info = CheckpointInfo {
        lost: losses::of(&about),
        about,
        images: images.map(|image| (image.name.clone(), image.bytes(), stored(image))).collect(),
        image_bytes: container.index.images.iter().map(Image::bytes).sum(),
        file_bytes: container.file_bytes,
        unused_bytes: container.index.images.iter().map(Image::unused_bytes).sum(),
        encrypted: container.is_encrypted(),
        chain: vec![Generation::new(&container)],
        broken: None,
    };
    match Chain::of(container) {
        Ok(chain) => info.chain = chain.files().map(Generation::new).collect(),
        Err(error) => info.broken = Some(error.to_string()),
    }
    Ok(Some(info))
}

/// Whether a file (or the directory) is, or was, a checkpoint.
pub fn is_checkpoint(path: &Path) -> bool {
    container::is_container(&container_path(path))
}

/// The file that a checkpoint is in: the path itself, or a file in this directory.
pub fn checkpoint_path(path: &Path) -> PathBuf {
    container_path(path)
}

/// The files that a checkpoint needs besides itself, as far as they are there. `unlock` is called with each file of the chain before that
/// is read, to find what opens an encrypted one.
pub fn bases_of<E>(path: &Path, mut unlock: impl FnMut(&Path) -> Result<(), E>) -> Result<Vec<PathBuf>, E> {
    let mut bases = Vec::new();
    let mut next = Some(container_path(path)).filter(|path| path.is_file());
    while let Some(path) = next.take().filter(|_| bases.len() < LONGEST) {
        unlock(&path)?;
        let Ok(container) = Container::open(&path) else { break };
        // Not a pipe, whose opening would block.
        next = container
            .index
            .base
            .as_ref()
            .map(|base| base_path(&container, base))
            .filter(|path| path.is_file());
        bases.extend(next.clone());
    }
    Ok(bases)
}

/// Verifies every byte of a checkpoint. Returns `None` if the file (or the directory) is something else.
pub fn verify_checkpoint(
    path: &Path,
    threads: usize,
    progress: &Progress,
) -> Result<Option<Verified>, ProcessError> {
    let path = container_path(path);
    if !container::is_container(&path) {
        return Ok(None);
    }
    let chain = match Chain::open(&path) {
        Ok(chain) => chain,
        Err(error @ ProcessError::Damaged { .. }) => {
            return Ok(Some(Verified::new("checkpoint", true, vec![fault(&path, error)])));
        }
        Err(error @ ProcessError::NoBase { .. }) => {
            return match own_damage(&path, threads, progress)? {
                faults if faults.is_empty() => Err(error),
                mut faults => {
                    faults.push(fault(&path, error));
                    Ok(Some(Verified::new("checkpoint", true, faults)))
                }
            };
        }
        Err(error) => return Err(error),
    };
    let blocks = chain.needed_blocks();
    let bytes = blocks.iter().map(|&(file, image, block)| u64::from(block_of(file, image, block).bytes));
    let bytes = bytes.sum();
    progress.expect(bytes);
    progress.enter(Phase::Pack);
    let damage = check_blocks(&blocks, threads, progress);
    if progress.is_cancelled() {
        return Err(stopped());
    }
    let faults = damage.into_iter().map(|error| fault(&path, error));
    Ok(Some(Verified {
        frames: blocks.len() as u64,
        bytes,
        ..Verified::new("checkpoint", true, faults.collect())
    }))
}

/// Verifies the blocks that are in the file of a checkpoint itself.
fn own_damage(path: &Path, threads: usize, progress: &Progress) -> Result<Vec<String>, ProcessError> {
    let container = Container::open(path)?;
    let images = container.index.images.iter().enumerate();
    let blocks: Vec<_> = images
        .flat_map(|(image, found)| (0..found.blocks.len()).map(move |block| (image, block)))
        .map(|(image, block)| (&container, image, block))
        .collect();
    progress.enter(Phase::Pack);
    let damage = check_blocks(&blocks, threads, progress);
    if progress.is_cancelled() {
        return Err(stopped());
    }
    Ok(damage.into_iter().map(|error| fault(path, error)).collect())
}

fn stopped() -> ProcessError {
    ProcessError::Refused("stopped before everything was verified".into())
}

/// What is wrong with the checkpoint `path`. Of a base, the file is named as well.
fn fault(path: &Path, error: ProcessError) -> String {
    match error {
        ProcessError::Damaged { path: file, what } | ProcessError::NoBase { path: file, what }
            if file == path =>
        {
            what
        }
        error => error.to_string(),
    }
}

/// Verifies the checksums of blocks, of each its file, image and number, on several threads. Returns the errors, file by file, in the
/// order of the offsets.
pub(crate) fn check_blocks(
    blocks: &[(&Container, usize, usize)],
    threads: usize,
    progress: &Progress,
) -> Vec<ProcessError> {
    let mut all = blocks.to_vec();
    all.sort_by_key(|&(file, image, block)| (&file.path, block_of(file, image, block).offset));
    map_numbers(
        "verify",
        threads,
        all.len() as u64,
        || (),
        |(), number| {
            let &(file, image, block) = all.get(number as usize).filter(|_| !progress.is_cancelled())?;
            let found = block_of(file, image, block);
            progress.advance(Phase::Pack, found.bytes.into());
            file.block(&file.index.images[image], found).err()
        },
    )
}

fn block_of(file: &Container, image: usize, block: usize) -> &Block {
    &file.index.images[image].blocks[block]
}
