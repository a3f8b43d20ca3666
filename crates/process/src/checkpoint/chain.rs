//! A checkpoint and those that it is based on.
//!
//! Each holds the pages in which it differs from its base, the last one all of its own. An image is put together from all of
//! them, so that whoever reads it sees what CRIU wrote.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use pagehaul_codec::FrameDecompressor;

use super::container::{Base, Container, Image, Origin, Run};
use crate::error::ProcessError;

/// Maximum number of checkpoints in a chain: each is an open file.
pub(crate) const LONGEST: usize = 256;
/// Maximum number of extents of all images: one page each would be 1 TiB.
const MAX_EXTENTS: usize = 1 << 28;
/// Maximum size of an image that is read whole: a list of 50 million runs of pages, or 20 million mappings.
const MAX_SMALL: u64 = 1 << 30;

/// A checkpoint with all that it needs.
#[derive(Debug)]
pub(crate) struct Chain {
    /// The oldest first.
    files: Vec<Container>,
    /// Of the newest.
    pub(crate) images: Vec<Whole>,
    /// By file, image and block: where the block begins in the bytes that the file holds of the image.
    starts: Vec<Vec<Vec<u64>>>,
}

/// An image, and where its bytes are.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    extents: Vec<Extent>,
}

/// Bytes of an image that a file holds, in its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    /// Where it begins in the image.
    start: u64,
    bytes: u64,
    file: usize,
    image: usize,
    /// Where it begins in the bytes that the file holds of that image.
    held: u64,
}

impl Chain {
    /// Opens a checkpoint and all that it needs. Fails if one of them is missing, or is not the one that it was made from.
    pub(crate) fn open(path: &Path) -> Result<Self, ProcessError> {
        Self::of(Container::open(path)?)
    }

    /// The same for a checkpoint that is open.
    pub(crate) fn of(newest: Container) -> Result<Self, ProcessError> {
        let mut files = vec![newest];
        while let Some((newer, base)) =
            files.last().and_then(|newer| Some((newer, newer.index.base.as_ref()?)))
        {
            let needed = base_path(newer, base);
            let damaged = |what: String| ProcessError::Damaged { path: newer.path.clone(), what };
            if files.len() == LONGEST {
                return Err(damaged(format!("more than {LONGEST} checkpoints are needed for it")));
            }
            let no_base = |what: String| ProcessError::NoBase { path: newer.path.clone(), what };
            // Some commands may not even open what is no file: they are confined.
            if needed.metadata().is_ok_and(|found| !found.is_file()) {
                return Err(no_base(format!("its base {} is not a regular file", needed.display())));
            }
            let older = Container::open(&needed).map_err(|error| match error {
                ProcessError::Output { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                    no_base(format!("its base {} is missing; copy it to that path", needed.display()))
                }
                // It may be whole: nothing of it was read.
                error @ ProcessError::Output { .. } => no_base(format!("its base cannot be read: {error}")),
                error @ ProcessError::Locked { .. } => ProcessError::Locked {
                    path: newer.path.clone(),
                    what: format!("its base cannot be read: {error}"),
                },
                error => damaged(format!("its base cannot be read: {error}")),
            })?;
            let id = older.id();
            if id.as_ref() != Some(&base.id) {
                let id = id.unwrap_or_else(|| "none".into());
                return Err(no_base(format!(
                    "{} is not the checkpoint that it is based on, but another one (ID {id}, not {})",
                    needed.display(),
                    base.id
                )));
            }
            if files.iter().any(|file| file.id() == id) {
                return Err(damaged("it is based on itself".into()));
            }
            files.push(older);
        }
        files.reverse();
        let starts = files.iter().map(|file| file.index.images.iter().map(starts).collect()).collect();
        let mut this = Self { files, images: Vec::new(), starts };
        this.resolve()?;
        Ok(this)
    }

    /// Finds out where the bytes of all images are, from the oldest file to the newest.
    fn resolve(&mut self) -> Result<(), ProcessError> {
        for (file, container) in self.files.iter().enumerate() {
            let (mut images, mut count) = (Vec::new(), 0);
            for (number, image) in container.index.images.iter().enumerate() {
                let whole = Whole::put_together(file, number, image, &self.images, MAX_EXTENTS - count);
                let whole = whole.ok_or_else(|| ProcessError::Damaged {
                    path: container.path.clone(),
                    what: format!("its {} does not fit its base", image.name),
                })?;
                count += whole.extents.len();
                images.push(whole);
            }
            self.images = images;
        }
        Ok(())
    }

    /// The checkpoint itself.
    pub(crate) fn newest(&self) -> &Container {
        // There always is one.
        &self.files[self.files.len() - 1]
    }

    /// All files, the newest first.
    pub(crate) fn files(&self) -> impl DoubleEndedIterator<Item = &Container> {
        self.files.iter().rev()
    }

    /// Bytes of all images.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.images.iter().map(|image| image.bytes).sum()
    }

    /// The number of an image.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.images.iter().position(|image| image.name == name)
    }

    /// All of a small image, as CRIU wrote it.
    pub(crate) fn content(&self, image: usize) -> Result<Vec<u8>, ProcessError> {
        let (bytes, name) = self.images.get(image).map_or((0, ""), |image| (image.bytes, &image.name));
        if bytes > MAX_SMALL {
            let what = format!("its {name} has {bytes} bytes: such images have at most {MAX_SMALL}");
            return Err(ProcessError::Damaged { path: self.newest().path.clone(), what });
        }
        let mut content = vec![0; bytes as usize];
        Reader::new(self)?.read(image, 0, &mut content)?;
        Ok(content)
    }

    /// All blocks of the newest file, and those of the others that it needs: file, image and number of each.
    pub(crate) fn needed_blocks(&self) -> Vec<(&Container, usize, usize)> {
        let newest = self.files.len() - 1;
        let images = self.newest().index.images.iter().enumerate();
        let mut needed: BTreeSet<(usize, usize, usize)> = images
            .flat_map(|(image, own)| (0..own.blocks.len()).map(move |block| (newest, image, block)))
            .collect();
        for extent in self.images.iter().flat_map(|image| &image.extents) {
            let starts = &self.starts[extent.file][extent.image];
            let end = starts.partition_point(|start| *start < extent.held + extent.bytes);
            needed.extend((at(starts, extent.held)..end).map(|block| (extent.file, extent.image, block)));
        }
        needed.into_iter().map(|(file, image, block)| (&self.files[file], image, block)).collect()
    }
}

/// Where a base is.
pub(crate) fn base_path(newer: &Container, base: &Base) -> PathBuf {
    newer.path.parent().unwrap_or(Path::new("")).join(&base.path)
}

impl Container {
    /// Distinguishes it from all other checkpoints. A checkpoint that was made whole from a chain has that of its source.
    pub(crate) fn id(&self) -> Option<String> {
        self.index.about()["id"].as_str().map(str::to_owned)
    }
}

/// Where blocks begin in the bytes that a file holds of an image.
fn starts(image: &Image) -> Vec<u64> {
    let blocks = image.blocks.iter();
    blocks
        .scan(0, |end, block| {
            let start = *end;
            *end += u64::from(block.bytes);
            Some(start)
        })
        .collect()
}

/// The number of the block that has this byte.
fn at(starts: &[u64], byte: u64) -> usize {
    starts.partition_point(|start| *start <= byte).saturating_sub(1)
}

impl Whole {
    /// Puts an image together. None if it does not fit the images of the base, or has more extents than `most`.
    fn put_together(file: usize, number: usize, image: &Image, base: &[Self], most: usize) -> Option<Self> {
        let mut whole = Self { name: image.name.clone(), bytes: 0, extents: Vec::new() };
        let all = [Run { bytes: image.own_bytes(), from: Origin::Next }];
        let runs = if image.runs.is_empty() { &all[..] } else { &image.runs };
        let mut held = 0;
        for run in runs.iter().filter(|run| run.bytes > 0) {
            match run.from {
                Origin::Next => {
                    whole.push(Extent { start: 0, bytes: run.bytes, file, image: number, held });
                    held += run.bytes;
                }
                Origin::Held(held) => {
                    whole.push(Extent { start: 0, bytes: run.bytes, file, image: number, held });
                }
                Origin::Base(from, offset) => {
                    let base = base.get(from as usize)?;
                    let end = offset.checked_add(run.bytes).filter(|end| *end <= base.bytes)?;
                    let first = base.extents.partition_point(|extent| extent.start + extent.bytes <= offset);
                    for extent in base.extents.iter().skip(first).take_while(|extent| extent.start < end) {
                        let start = extent.start.max(offset);
                        let bytes = (extent.start + extent.bytes).min(end) - start;
                        whole.push(Extent { bytes, held: extent.held + (start - extent.start), ..*extent });
                    }
                }
            }
            if whole.extents.len() > most {
                return None;
            }
        }
        Some(whole)
    }

    /// Adds bytes to the end.
    fn push(&mut self, extent: Extent) {
        let key = |extent: &Extent| (extent.file, extent.image);
        match self.extents.last_mut() {
            Some(last) if key(last) == key(&extent) && last.held + last.bytes == extent.held => {
                last.bytes += extent.bytes;
            }
            _ => self.extents.push(Extent { start: self.bytes, ..extent }),
        }
        self.bytes += extent.bytes;
    }
}

/// Reads images of a chain. Belongs to one thread, and is fast for reads in order.
pub(crate) struct Reader<'a> {
    chain: &'a Chain,
    decompressor: FrameDecompressor,
    /// By file.
    recent: Vec<Recent>,
}

/// The blocks that were read last, the newest last.
struct Recent {
    most: usize,
    blocks: Vec<Decompressed>,
}

#[derive(Default)]
struct Decompressed {
    /// The number of its image, and its own.
    place: Option<(usize, usize)>,
    content: Vec<u8>,
}

/// Blocks that are kept of a file with pages that were written while the process ran: in some rounds, in each of which they come in
/// the order of their addresses.
const ROUNDS: usize = 8;

impl Recent {
    fn new(container: &Container) -> Self {
        let is_held = |run: &Run| matches!(run.from, Origin::Held(_));
        let has_rounds = container.index.images.iter().any(|image| image.runs.iter().any(is_held));
        Self { most: if has_rounds { ROUNDS } else { 1 }, blocks: Vec::new() }
    }

    /// Moves the block at this place to the end, or the room for it, which has no place then.
    fn find(&mut self, place: (usize, usize)) -> &mut Decompressed {
        let found = self.blocks.iter().position(|block| block.place == Some(place));
        let block = match found {
            Some(at) => self.blocks.remove(at),
            None if self.blocks.len() < self.most => Decompressed::default(),
            None => Decompressed { place: None, ..self.blocks.remove(0) },
        };
        self.blocks.push(block);
        let last = self.blocks.len() - 1;
        &mut self.blocks[last]
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(chain: &'a Chain) -> Result<Self, ProcessError> {
        let recent = chain.files.iter().map(Recent::new).collect();
        Ok(Self { chain, decompressor: FrameDecompressor::new()?, recent })
    }

    /// Fills a buffer with the bytes of an image from `offset` on. Those behind its end are left as they are.
    pub(crate) fn read(
        &mut self,
        image: usize,
        offset: u64,
        mut buffer: &mut [u8],
    ) -> Result<(), ProcessError> {
        let chain = self.chain;
        let Some(whole) = chain.images.get(image) else { return Ok(()) };
        let first = whole.extents.partition_point(|extent| extent.start + extent.bytes <= offset);
        let mut offset = offset;
        for extent in whole.extents.iter().skip(first) {
            let mut held = extent.held + (offset - extent.start);
            while held < extent.held + extent.bytes && !buffer.is_empty() {
                let block = at(&chain.starts[extent.file][extent.image], held);
                let into = (held - chain.starts[extent.file][extent.image][block]) as usize;
                let content = self.block(extent.file, extent.image, block)?;
                let left = (extent.held + extent.bytes - held).min(buffer.len() as u64) as usize;
                let part = content.get(into..).unwrap_or_default();
                let part = &part[..part.len().min(left)];
                let (now, later) = buffer.split_at_mut(part.len());
                now.copy_from_slice(part);
                (held, offset, buffer) = (held + part.len() as u64, offset + part.len() as u64, later);
            }
            if buffer.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// The content of a block.
    fn block(&mut self, file: usize, image: usize, number: usize) -> Result<&[u8], ProcessError> {
        let container = &self.chain.files[file];
        let Decompressed { place, content } = self.recent[file].find((image, number));
        if place.is_none() {
            let of = &container.index.images[image];
            let block = &of.blocks[number];
            let stored = container.block(of, block)?;
            let damaged = |why: String| ProcessError::Damaged {
                path: container.path.clone(),
                what: format!("byte {:#x} (of {}): {why}", block.offset, of.name),
            };
            self.decompressor
                .decompress(&stored, content, block.bytes as usize)
                .map_err(|error| damaged(error.to_string()))?;
            if content.len() != block.bytes as usize {
                return Err(damaged(format!("it holds {} bytes, not {}", content.len(), block.bytes)));
            }
        }
        *place = Some((image, number));
        Ok(content)
    }
}
