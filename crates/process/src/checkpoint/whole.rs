//! Making one file of a chain of checkpoints.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use pagehaul_codec::FrameCompressor;
use pagehaul_encryption::Recipients;
use pagehaul_output::{CreateOptions, Naming, NewFile, Special};
use pagehaul_pool::{Ticket, Work, ordered};
use pagehaul_run::{Phase, Progress};
use serde::Serialize;

use super::chain::{Chain, Reader};
use super::container::{self, BLOCK, Block, Container, Image, Index, container_path};
use super::info::check_blocks;
use super::writer::Writer;
use crate::error::ProcessError;

/// How a checkpoint is made whole.
#[derive(Debug, Clone, Default)]
pub struct WholeOptions {
    /// zstd's level.
    pub level: i32,
    /// Threads that decompress and compress.
    pub threads: usize,
    /// Who can read the file; if none are named, it is not encrypted.
    pub recipients: Option<Recipients>,
    /// Replace an existing file, also the checkpoint itself.
    pub overwrite: bool,
}

/// The report of a finished run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WholeReport {
    /// The checkpoint, and those that it was based on.
    pub checkpoints: usize,
    pub output: String,
    pub image_bytes: u64,
    pub output_bytes: u64,
    /// Whether the output is encrypted.
    pub encrypted: bool,
    /// Seconds for everything.
    pub seconds: f64,
}

/// Writes a checkpoint that needs no base. It has the ID of its source, so that checkpoints that are based on that can be based on it
/// as well.
pub fn make_whole(
    source: &Path,
    output: &Path,
    options: &WholeOptions,
    progress: &Progress,
) -> Result<WholeReport, ProcessError> {
    let begun = Instant::now();
    let chain = Chain::open(&container_path(source))?;
    // The checkpoint itself may be replaced, once all of it is in the new file.
    let bases: Vec<(u64, u64)> = chain.files().skip(1).map(Container::identity).collect();
    let path = container_path(output);
    let create = CreateOptions {
        naming: Naming::WhenComplete,
        overwrite: options.overwrite,
        special: Special::No,
        private: true,
        sources: &bases,
    };
    let mut output = NewFile::create(&path, create)?;
    let mut writer = Writer::new(output.file(), &path, options.recipients.as_ref())?;
    progress.expect(2 * chain.image_bytes());
    progress.enter(Phase::Pack);
    if let Some(error) = check_blocks(&chain.needed_blocks(), options.threads, progress).into_iter().next() {
        return Err(error);
    }
    let failed = |source| ProcessError::Output { path: path.clone(), action: "write to", source };
    let images = pack(&chain, &mut writer, options, progress, failed)?;
    if progress.is_cancelled() {
        return Err(ProcessError::Refused("stopped before anything was written".into()));
    }
    progress.enter(Phase::Finish);
    let index = Index { about: chain.newest().index.about.clone(), images, base: None };
    let output_bytes = writer.finish(&index).map_err(failed)?;
    output.commit()?;
    Ok(WholeReport {
        checkpoints: chain.files().count(),
        output: path.display().to_string(),
        image_bytes: chain.image_bytes(),
        output_bytes,
        encrypted: options.recipients.is_some(),
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// Writes the blocks of all images. Returns the images.
fn pack(
    chain: &Chain,
    writer: &mut Writer,
    options: &WholeOptions,
    progress: &Progress,
    failed: impl Fn(std::io::Error) -> ProcessError,
) -> Result<Vec<Image>, ProcessError> {
    let blocks = chain.images.iter().enumerate().flat_map(|(image, whole)| {
        (0..whole.bytes)
            .step_by(BLOCK)
            .map(move |start| (image, start, (whole.bytes - start).min(BLOCK as u64)))
    });
    let packing =
        Packing { chain, level: options.level, blocks: blocks.collect(), next: AtomicUsize::new(0) };
    let names = chain.images.iter().map(|image| image.name.clone());
    let mut images: Vec<Image> =
        names.map(|name| Image { name, blocks: Vec::new(), runs: Vec::new() }).collect();
    let buffers = (0..3 * options.threads.max(1) + 2).map(|_| Packed::default());
    ordered(&packing, "pack", options.threads, buffers, |results| {
        while let Some(packed) = results.recv().filter(|_| !progress.is_cancelled()) {
            let Packed { image, content, frame, .. } = packed?;
            let offset = writer.append(frame).map_err(&failed)?;
            let (stored, bytes) = (frame.len() as u32, content.len() as u32);
            images[*image].blocks.push(Block { offset, stored, bytes, checksum: container::checksum(frame) });
            progress.advance(Phase::Pack, bytes.into());
        }
        Ok::<_, ProcessError>(())
    })?;
    Ok(images)
}

struct Packing<'a> {
    chain: &'a Chain,
    level: i32,
    /// Image, where the block begins in it, bytes.
    blocks: Vec<(usize, u64, u64)>,
    next: AtomicUsize,
}

/// A block, before and after it is compressed.
#[derive(Default)]
struct Packed {
    image: usize,
    start: u64,
    content: Vec<u8>,
    frame: Vec<u8>,
}

impl<'a> Work for Packing<'a> {
    type Buffer = Packed;
    type Worker = Option<(Reader<'a>, FrameCompressor)>;
    type Error = ProcessError;

    fn next(&self, packed: &mut Packed) -> Option<Ticket> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let &(image, start, bytes) = self.blocks.get(number)?;
        (packed.image, packed.start) = (image, start);
        packed.content.resize(bytes as usize, 0);
        Some(Ticket::number(number as u64))
    }

    fn run(
        &self,
        worker: &mut Option<(Reader<'a>, FrameCompressor)>,
        Packed { image, start, content, frame }: &mut Packed,
    ) -> Result<(), ProcessError> {
        let (reader, compressor) = match worker {
            Some(worker) => worker,
            None => worker.insert((Reader::new(self.chain)?, FrameCompressor::new(self.level)?)),
        };
        reader.read(*image, *start, content)?;
        Ok(compressor.compress(content, frame)?)
    }
}
