//! What a checkpoint says of itself, and whether it is undamaged.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pagehaul_pool::share_work;
use pagehaul_run::{Phase, Progress};
use serde::Serialize;

use super::container::{self, Block, Container, Image};
use super::place;
use crate::ProcessError;
use crate::verify::Verified;

/// What a checkpoint says of itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckpointInfo {
    /// What it is a checkpoint of: process, CRIU, time.
    pub about: serde_json::Value,
    /// Images in it: name, bytes, stored bytes.
    pub images: Vec<(String, u64, u64)>,
    /// Bytes of images.
    pub image_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

impl Container {
    /// Bytes of all images.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.index.images.iter().flat_map(|image| &image.blocks).map(|block| u64::from(block.bytes)).sum()
    }
}

/// Describes a checkpoint. None if the file (or the folder) is something else.
pub fn describe_checkpoint(path: &Path) -> Result<Option<CheckpointInfo>, ProcessError> {
    let path = place(path);
    if !container::is_container(&path) {
        return Ok(None);
    }
    let container = Container::open(&path)?;
    let sum = |image: &Image, part: fn(&Block) -> u32| {
        image.blocks.iter().map(|block| u64::from(part(block))).sum()
    };
    let images = container.index.images.iter();
    Ok(Some(CheckpointInfo {
        about: serde_json::from_str(&container.index.about).unwrap_or_default(),
        images: images
            .map(|image| {
                (image.name.clone(), sum(image, |block| block.bytes), sum(image, |block| block.stored))
            })
            .collect(),
        image_bytes: container.image_bytes(),
        file_bytes: container.size,
    }))
}

/// Looks at every byte of a checkpoint. None if the file (or the folder) is something else.
pub fn verify_checkpoint(
    path: &Path,
    threads: usize,
    progress: &Progress,
) -> Result<Option<Verified>, ProcessError> {
    let path = place(path);
    if !container::is_container(&path) {
        return Ok(None);
    }
    let container = match Container::open(&path) {
        Ok(container) => container,
        Err(ProcessError::Damaged { what, .. }) => {
            return Ok(Some(Verified::new("checkpoint", true, vec![(0, what)])));
        }
        Err(error) => return Err(error),
    };
    progress.expect(container.image_bytes());
    progress.enter(Phase::Pack);
    let damage = check_blocks(&container, threads, progress);
    if progress.is_cancelled() {
        return Err(ProcessError::Refused("stopped before everything was looked at".into()));
    }
    let faults = damage.into_iter().map(|(at, error)| match error {
        ProcessError::Damaged { what, .. } => (at, what),
        error => (at, error.to_string()),
    });
    Ok(Some(Verified {
        frames: container.index.images.iter().map(|image| image.blocks.len() as u64).sum(),
        bytes: container.image_bytes(),
        ..Verified::new("checkpoint", true, faults.collect())
    }))
}

/// Checks every block's checksum on several threads. Gives what is damaged, by its place.
pub(crate) fn check_blocks(
    container: &Container,
    threads: usize,
    progress: &Progress,
) -> Vec<(u64, ProcessError)> {
    let images = container.index.images.iter();
    let all: Vec<(&Image, &Block)> =
        images.flat_map(|image| image.blocks.iter().map(move |block| (image, block))).collect();
    let next = AtomicUsize::new(0);
    let damage: Mutex<Vec<(u64, ProcessError)>> = Mutex::default();
    share_work("verify", threads, || {
        while let Some((image, block)) = all.get(next.fetch_add(1, Ordering::Relaxed))
            && !progress.is_cancelled()
        {
            if let (Err(error), Ok(mut damage)) = (container.block(image, block), damage.lock()) {
                damage.push((block.offset, error));
            }
            progress.advance(Phase::Pack, block.bytes.into());
        }
    });
    let mut damage = damage.into_inner().unwrap_or_default();
    damage.sort_by_key(|(offset, _)| *offset);
    damage
}
