//! Encrypts a stream.

use std::io::{self, Read};

use crate::chunks::{CHUNK, ChunkCipher, SEALED, TAG};
use crate::error::EncryptionError;
use crate::recipient::Recipients;
use crate::{header, random};

/// What a stream is once it is encrypted: the header, then the chunks of what `source` reads.
///
/// The last chunk is made when `source` ends, and not if it fails: a stream that breaks off shows that.
pub struct Encrypting<R> {
    source: R,
    cipher: ChunkCipher,
    /// The number of the chunk in `next`.
    number: u64,
    /// What is read now, from `given`: the header, then a chunk.
    ready: Vec<u8>,
    given: usize,
    /// The contents of the chunk behind: only what follows tells whether it is the last.
    next: Vec<u8>,
    is_last: bool,
    has_failed: bool,
}

impl<R: Read> Encrypting<R> {
    /// Writes the header for `recipients`, with a new file key.
    pub fn new(source: R, recipients: &Recipients) -> Result<Self, EncryptionError> {
        let key = random::bytes()?;
        let nonce = random::bytes()?;
        let mut ready = header::compose(&recipients.wrap(&key)?, &key);
        ready.extend(&nonce[..]);
        let cipher = ChunkCipher::new(&key, &nonce);
        let next = Vec::with_capacity(SEALED);
        Ok(Self { source, cipher, number: 0, ready, given: 0, next, is_last: false, has_failed: false })
    }

    /// Makes the next chunk ready. None is after the last.
    fn advance(&mut self) -> io::Result<()> {
        self.ready.clear();
        self.given = 0;
        if self.is_last {
            return Ok(());
        }
        if self.has_failed {
            return Err(io::Error::other("the stream has ended early"));
        }
        self.fill().inspect_err(|_| self.has_failed = true)?;
        // `ready` has what is behind the chunk in `next`.
        self.is_last = self.ready.is_empty();
        let tag = self.cipher.seal(self.number, self.is_last, &mut self.next);
        self.next.extend(tag);
        self.number += 1;
        std::mem::swap(&mut self.next, &mut self.ready);
        Ok(())
    }

    /// Reads the first chunk into `next`, and what is behind `next` into `ready`.
    fn fill(&mut self) -> io::Result<()> {
        if self.number == 0 {
            fill(&mut self.source, &mut self.next)?;
        }
        // A chunk that is not full is the last.
        if self.next.len() == CHUNK { fill(&mut self.source, &mut self.ready) } else { Ok(()) }
    }
}

impl<R: Read> Read for Encrypting<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.given == self.ready.len() {
            self.advance()?;
        }
        let count = (self.ready.len() - self.given).min(buf.len());
        buf[..count].copy_from_slice(&self.ready[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

/// Reads until `chunk` is full or the source ends.
fn fill(source: &mut impl Read, chunk: &mut Vec<u8>) -> io::Result<()> {
    source.by_ref().take(CHUNK as u64).read_to_end(chunk)?;
    Ok(())
}

/// Encrypts what is in memory.
pub fn encrypt(contents: &[u8], recipients: &Recipients) -> Result<Vec<u8>, EncryptionError> {
    let mut encrypted = Vec::with_capacity(contents.len() + contents.len() / CHUNK * TAG + 1024);
    let mut stream = Encrypting::new(contents, recipients)?;
    // Reading memory does not fail.
    let _ = stream.read_to_end(&mut encrypted);
    Ok(encrypted)
}
