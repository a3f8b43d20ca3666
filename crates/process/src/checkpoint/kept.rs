//! CRIU's images of pages that pagehaul has copied a part of: kept until CRIU is done, then completed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

use pagehaul_run::Progress;
use rustix::event::PollFlags;

use super::ending::ready;
use super::images::{Piece, blocks, merged_blocks};
use super::precopy::merge::Merged;
use super::precopy::{PreCopy, Spilled};
use crate::error::ProcessError;

/// Images by their numbers. What CRIU itself saves of these processes is little: pages of private file mappings.
#[derive(Default)]
pub(crate) struct Kept(Mutex<BTreeMap<usize, Vec<u8>>>);

impl Kept {
    /// Reads an image from its pipe to its end, unless the run is cancelled.
    pub(crate) fn read(&self, image: usize, mut pipe: File, progress: &Progress) {
        let (mut bytes, mut room) = (Vec::new(), vec![0; 64 << 10]);
        // Cut short, it is not as long as its list says.
        while ready(&pipe, PollFlags::IN, progress) {
            match pipe.read(&mut room) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(room.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(image, bytes);
    }

    /// Takes all images, with their numbers.
    pub(crate) fn take(&self) -> BTreeMap<usize, Vec<u8>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
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
            let merged = images.remove(&(image + 1)).and_then(|pages| copy.merge(name, &list, pages));
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
        let list: Vec<Piece> = blocks(image, &list).collect();
        list.into_iter().chain(merged_blocks(image + 1, pages))
    }
}
