//! CRIU's images of pages that pagehaul has copied a part of: kept until CRIU is done, then completed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

use pagehaul_run::Progress;
use rustix::event::PollFlags;

use super::container::BLOCK;
use super::ending::ready;
use super::images::{Drain, Piece, blocks, merged_blocks};
use super::precopy::merge::Merged;
use super::precopy::{PreCopy, Spilled};
use crate::error::ProcessError;

/// Images by their numbers.
#[derive(Default)]
pub(crate) struct Kept(Mutex<BTreeMap<usize, CriuImage>>);

/// An image that CRIU wrote.
pub(crate) enum CriuImage {
    Kept(Vec<u8>),
    /// Its blocks were compressed as they came. It had so many bytes.
    Drained(u64),
}

/// Bytes of an image of pages that are kept in memory. Mostly CRIU itself saves little of these processes: pages of private file mappings.
/// But it saves their memory as well if there is no room for more copies.
const MOST: usize = 4 * BLOCK;

impl Kept {
    /// Reads a list of pages from its pipe to its end, unless the run is cancelled.
    pub(crate) fn read(&self, image: usize, mut pipe: File, progress: &Progress) {
        let (bytes, _) = read(&mut pipe, usize::MAX, progress);
        self.insert(image, CriuImage::Kept(bytes));
    }

    /// Reads an image of pages. What is large is drained.
    pub(crate) fn read_pages(&self, image: usize, mut pipe: File, drain: &Drain<'_>) {
        let (bytes, has_ended) = read(&mut pipe, MOST, drain.progress);
        if has_ended {
            return self.insert(image, CriuImage::Kept(bytes));
        }
        // It fails if the writer has, which says why.
        let _ = blocks(image, &bytes, true).try_for_each(|piece| drain.send.send(piece));
        drop(bytes);
        let bytes = drain.rest(image, MOST / BLOCK, true, true, pipe);
        self.insert(image, CriuImage::Drained(bytes));
    }

    fn insert(&self, image: usize, read: CriuImage) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(image, read);
    }

    fn take(&self) -> BTreeMap<usize, CriuImage> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes all images that are kept, with their numbers.
    pub(crate) fn take_kept(&self) -> BTreeMap<usize, Vec<u8>> {
        let kept = self.take().into_iter().filter_map(|(image, read)| match read {
            CriuImage::Kept(bytes) => Some((image, bytes)),
            CriuImage::Drained(_) => None,
        });
        kept.collect()
    }

    /// Completes lists and the images of their pages. `names` are those of all images.
    pub(crate) fn complete(
        &self,
        copy: &mut PreCopy,
        names: &[String],
    ) -> Result<Vec<Completed>, ProcessError> {
        let (mut images, mut all) = (self.take(), Vec::new());
        while let Some((image, list)) = images.pop_first() {
            let name = names.get(image).map_or("an image", String::as_str);
            let pages = images.remove(&(image + 1));
            let merged = match (list, pages) {
                (CriuImage::Kept(list), Some(pages)) => copy.merge(name, &list, pages),
                _ => None,
            };
            let (list, pages) = merged.ok_or_else(|| {
                ProcessError::Refused(format!(
                    "CRIU's {name} is not as expected, and cannot be completed with the memory that was copied before"
                ))
            })?;
            all.push(Completed { image, list, pages });
        }
        Ok(all)
    }
}

/// Reads up to `most` bytes. Returns them, and whether the pipe has ended, or the run was cancelled.
fn read(pipe: &mut File, most: usize, progress: &Progress) -> (Vec<u8>, bool) {
    let (mut bytes, mut room) = (Vec::new(), vec![0; 64 << 10]);
    // Cut short, it is not as long as its list says.
    while bytes.len() < most {
        if !ready(&*pipe, PollFlags::IN, progress) {
            return (bytes, true);
        }
        let part = room.len().min(most - bytes.len());
        match pipe.read(&mut room[..part]) {
            Ok(0) => return (bytes, true),
            Ok(count) => bytes.extend_from_slice(room.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return (bytes, true),
        }
    }
    (bytes, false)
}

/// A list with the number of its image, and its pages, whose number is the next.
pub(crate) struct Completed {
    pub(crate) image: usize,
    pub(crate) list: Vec<u8>,
    pages: Merged,
}

impl Completed {
    /// What was written of its pages before, with the number of their image.
    pub(crate) fn take_spilled(&mut self) -> (usize, Spilled) {
        (self.image + 1, self.pages.take_spilled())
    }

    /// Its blocks.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Piece> {
        let Self { image, list, pages } = self;
        let list: Vec<Piece> = blocks(image, &list, false).collect();
        list.into_iter().chain(merged_blocks(image + 1, pages))
    }
}
