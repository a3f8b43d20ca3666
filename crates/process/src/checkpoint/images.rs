//! Reading CRIU's images from its pipes.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::Sender;
use pagehaul_run::{Phase, Progress};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::base::Known;
use super::container::BLOCK;
use super::ending::{POLL, ready};
use super::hold::{Hold, Script};
use super::precopy::merge::Merged;
use super::wire;
use crate::arena::{Arena, Slice};

/// Size of a pipe where the system allows it: larger ones mean fewer switches between CRIU and pagehaul.
const PIPE: usize = 1 << 20;

/// A block of an image.
pub(crate) struct Piece {
    image: usize,
    number: usize,
    /// Where it begins in the image.
    start: u64,
    data: Data,
    length: usize,
    /// Whether the image is put together later, from this block among others, which is stored as it is.
    is_raw: bool,
}

/// Pages are in the arena, and so is all but the first block of other images, which are small mostly.
enum Data {
    Pages(Slice),
    Other(Vec<u8>),
    /// A block of an image that is put together when it is compressed.
    Merged(Arc<Merged>),
}

impl Piece {
    /// The image, and the number of the block in it.
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.image, self.number)
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.is_raw
    }

    /// The parts of the image in it of which it is known where they are, and whether the rest may be in the base.
    pub(crate) fn known(&self) -> (Vec<(Range<u64>, Known)>, bool) {
        match &self.data {
            Data::Merged(merged) => (merged.known(self.start, self.length as u64), !merged.is_marked),
            _ => (Vec::new(), true),
        }
    }

    /// Its bytes. `room` is for those that are elsewhere.
    pub(crate) fn content<'a>(&'a self, room: &'a mut Vec<u8>) -> &'a [u8] {
        let bytes: &[u8] = match &self.data {
            Data::Pages(slice) => slice,
            Data::Other(bytes) => bytes,
            Data::Merged(merged) => {
                room.resize(self.length, 0);
                merged.read(self.start, room);
                room
            }
        };
        bytes.get(..self.length).unwrap_or_default()
    }
}

/// The blocks of an image that is in memory.
pub(crate) fn blocks(image: usize, bytes: &[u8], is_raw: bool) -> impl Iterator<Item = Piece> {
    let blocks = bytes.chunks(BLOCK).enumerate();
    blocks.map(move |(number, block)| Piece {
        image,
        number,
        start: (number * BLOCK) as u64,
        data: Data::Other(block.to_vec()),
        length: block.len(),
        is_raw,
    })
}

/// The blocks of merged pages. They follow those that were drained before.
pub(crate) fn merged_blocks(image: usize, merged: Merged) -> impl Iterator<Item = Piece> {
    let (merged, length) = (Arc::new(merged), BLOCK as u64);
    let first = merged.drained.div_ceil(length);
    (0..merged.len().div_ceil(length)).map(move |number| Piece {
        image,
        number: (first + number) as usize,
        start: number * length,
        length: length.min(merged.len() - number * length) as usize,
        data: Data::Merged(Arc::clone(&merged)),
        is_raw: false,
    })
}

/// Accepts CRIU's images one after the other; several may be open at a time. Returns once CRIU has run the action script, or
/// closed its socket, or the run is cancelled. CRIU gives up when this closes the socket and the pipes in it; a script that it
/// runs nevertheless is not waited for, and fails.
pub(crate) fn receive(
    mut socket: UnixStream,
    script: Script,
    names: &Mutex<Vec<String>>,
    progress: &Progress,
    mut open: impl FnMut(usize, &str, OwnedFd) -> io::Result<()>,
) -> io::Result<Option<Hold>> {
    loop {
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let mut sockets = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&script.listener, PollFlags::IN)];
        match poll(&mut sockets, Some(&POLL)) {
            _ if progress.is_cancelled() => return Ok(None),
            Ok(0) | Err(Errno::INTR) => continue,
            polled => polled?,
        };
        // CRIU has announced every file before it runs the script.
        if !is_ready(&sockets[0]) {
            match script.started()? {
                Some(hold) => return Ok(Some(hold)),
                None => continue,
            }
        }
        let Some(name) = wire::read_name(&mut socket)? else { return Ok(None) };
        let pipe = wire::receive_pipe(&socket)?;
        // Where the limit for users is lower it stays as it is.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE);
        let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
        open(names.len(), &name, pipe)?;
        names.push(name);
    }
}

/// Where the blocks of images go.
#[derive(Clone)]
pub(crate) struct Drain<'a> {
    pub(crate) arena: &'a Arc<Arena>,
    pub(crate) send: Sender<Piece>,
    pub(crate) progress: &'a Progress,
}

impl Drain<'_> {
    /// Reads an image from its pipe to its end.
    pub(crate) fn image(&self, image: usize, pages: bool, pipe: File) {
        self.rest(image, 0, pages, false, pipe);
    }

    /// Reads an image whose blocks before `first` were read already. Returns the size of the whole image.
    pub(crate) fn rest(&self, image: usize, first: usize, pages: bool, is_raw: bool, mut pipe: File) -> u64 {
        let (arena, progress) = (self.arena, self.progress);
        let mut start = (first * BLOCK) as u64;
        for number in first.. {
            // What is small does not wait for room; what turns out not to be, as files of a tmpfs, counts as pages do.
            let (data, length) = if pages || number > 0 {
                let Some(mut slice) = arena.take(BLOCK) else { break };
                let length = fill(&mut pipe, &mut slice, progress);
                (Data::Pages(slice), length)
            } else {
                let mut bytes = vec![0; BLOCK];
                let length = fill(&mut pipe, &mut bytes, progress);
                bytes.truncate(length);
                bytes.shrink_to_fit();
                (Data::Other(bytes), length)
            };
            progress.advance(Phase::Copy, length as u64);
            if length == 0 || progress.is_cancelled() {
                break;
            }
            if self.send.send(Piece { image, number, start, data, length, is_raw }).is_err() {
                break;
            }
            start += length as u64;
            // The pipe has ended. Most images are small; they take no room to see that.
            if length < BLOCK {
                break;
            }
        }
        start
    }
}

/// Reads from a pipe until a buffer is full, the pipe ends or the run is cancelled. Returns the number of bytes.
fn fill(pipe: &mut File, buffer: &mut [u8], progress: &Progress) -> usize {
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        if !ready(&*pipe, PollFlags::IN, progress) {
            break;
        }
        match pipe.read(rest) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn small_images_take_no_room() {
        let arena = Arena::new(1).unwrap();
        let mut taken: Vec<_> = (0..arena.capacity() / BLOCK).map(|_| arena.take(BLOCK)).collect();
        let (send, pieces) = crossbeam_channel::unbounded();
        let (read, mut write) = io::pipe().unwrap();
        write.write_all(b"image").unwrap();
        drop(write);
        let progress = Progress::default();
        std::thread::scope(|scope| {
            let pipe = File::from(OwnedFd::from(read));
            let drain = Drain { arena: &arena, send: send.clone(), progress: &progress };
            let drained = scope.spawn(move || drain.image(0, false, pipe));
            while !drained.is_finished() && !arena.was_starved() {
                std::thread::yield_now();
            }
            taken.clear();
        });
        assert!(!arena.was_starved(), "it waited for room");
        assert_eq!(pieces.try_recv().unwrap().content(&mut Vec::new()), b"image");
        assert!(pieces.is_empty());
    }
}
