//! CRIU's images of pages that pagehaul has copied a part of: kept until CRIU is done, then completed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

use crossbeam_channel::Sender;
use pagehaul_run::Progress;
use rustix::event::PollFlags;

use super::ending::ready;
use super::images::{Piece, blocks, merged_blocks};
use super::precopy::PreCopy;
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

    /// Completes the images, and sends them on. `names` are those of all images.
    pub(crate) fn merge(
        &self,
        copy: &mut PreCopy,
        names: &Mutex<Vec<String>>,
        send: &Sender<Piece>,
    ) -> Result<(), ProcessError> {
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let names = names.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((image, list)) = images.pop_first() {
            let merged = images.remove(&(image + 1)).and_then(|pages| {
                let (list, merged) = copy.merge(names.get(image)?, &list, pages)?;
                Some(blocks(image, &list).chain(merged_blocks(image + 1, merged)).collect::<Vec<_>>())
            });
            let pieces = merged.ok_or_else(|| {
                let name = names.get(image).map_or("an image", String::as_str);
                ProcessError::Refused(format!(
                    "CRIU's {name} is not as expected, and cannot be completed with the memory that was copied before"
                ))
            })?;
            // It fails if the writer has, which says why.
            let _ = pieces.into_iter().try_for_each(|piece| send.send(piece));
        }
        Ok(())
    }
}
