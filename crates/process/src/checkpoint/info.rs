//! Describing and verifying checkpoints.

use std::path::Path;

use pagehaul_pool::map_numbers;
use pagehaul_run::{Phase, Progress};
use serde::Serialize;

use super::container::{self, Block, Container, Image, container_path};
use crate::error::ProcessError;
use crate::verify::Verified;

/// The description of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckpointInfo {
    /// What it is a checkpoint of: process, CRIU, time.
    pub about: serde_json::Value,
    /// Images in it: name, bytes, stored bytes.
    pub images: Vec<(String, u64, u64)>,
    pub image_bytes: u64,
    pub file_bytes: u64,
}

impl Container {
    /// Bytes of all images.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.index.images.iter().flat_map(|image| &image.blocks).map(|block| u64::from(block.bytes)).sum()
    }
}

/// Describes a checkpoint. Returns `None` if the file (or the directory) is something else.
pub fn describe_checkpoint(path: &Path) -> Result<Option<CheckpointInfo>, ProcessError> {
    let path = container_path(path);
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
    let container = match Container::open(&path) {
        Ok(container) => container,
        Err(ProcessError::Damaged { what, .. }) => {
            return Ok(Some(Verified::new("checkpoint", true, vec![what])));
        }
        Err(error) => return Err(error),
    };
    progress.expect(container.image_bytes());
    progress.enter(Phase::Pack);
    let damage = check_blocks(&container, threads, progress);
    if progress.is_cancelled() {
        return Err(ProcessError::Refused("stopped before everything was verified".into()));
    }
    let faults = damage.into_iter().map(|error| match error {
        ProcessError::Damaged { what, .. } => what,
        error => error.to_string(),
    });
    Ok(Some(Verified {
        frames: container.index.images.iter().map(|image| image.blocks.len() as u64).sum(),
        bytes: container.image_bytes(),
        ..Verified::new("checkpoint", true, faults.collect())
    }))
}

/// Verifies the checksum of every block on several threads. Returns the errors in the order of the offsets.
pub(crate) fn check_blocks(container: &Container, threads: usize, progress: &Progress) -> Vec<ProcessError> {
    let images = container.index.images.iter();
    let mut all: Vec<(&Image, &Block)> =
        images.flat_map(|image| image.blocks.iter().map(move |block| (image, block))).collect();
    all.sort_unstable_by_key(|(_, block)| block.offset);
    map_numbers(
        "verify",
        threads,
        all.len() as u64,
        || (),
        |(), number| {
            let (image, block) = all.get(number as usize).filter(|_| !progress.is_cancelled())?;
            progress.advance(Phase::Pack, block.bytes.into());
            container.block(image, block).err()
        },
    )
}
