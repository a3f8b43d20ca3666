//! Encrypts a stream: what is read, or what is written.

use std::io::{self, Read, Write};

use crate::aead::TAG;
use crate::chunks::{CHUNK, ChunkCipher, SEALED};
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
        let (cipher, ready) = begin(recipients)?;
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

/// Bytes that are written at once.
const WRITE: usize = 1 << 20;

/// Encrypts what is written to it into `output`: the header, then the chunks.
///
/// The last chunk is written by [`finish`](Self::finish): a file of a writer that was dropped before shows that it breaks off.
pub struct EncryptingWriter<W> {
    output: W,
    cipher: ChunkCipher,
    /// The number of the chunk in `next`.
    number: u64,
    /// The contents of the chunk that is not encrypted yet: only what follows tells whether it is the last.
    next: Vec<u8>,
    /// What is encrypted, and not written yet.
    ready: Vec<u8>,
    has_failed: bool,
}

impl<W: Write> EncryptingWriter<W> {
    /// Makes a new file key and the header for `recipients`. Writes nothing yet.
    pub fn new(output: W, recipients: &Recipients) -> Result<Self, EncryptionError> {
        let (cipher, mut header) = begin(recipients)?;
        header.reserve(WRITE + SEALED);
        let next = Vec::with_capacity(SEALED);
        Ok(Self { output, cipher, number: 0, next, ready: header, has_failed: false })
    }

    /// Encrypts and writes `contents`, which follow what was written before. After an error, it fails again.
    pub fn write_all(&mut self, mut contents: &[u8]) -> io::Result<()> {
        while !contents.is_empty() {
            if self.next.len() == CHUNK {
                self.seal(false)?;
            }
            let (now, later) = contents.split_at(contents.len().min(CHUNK - self.next.len()));
            self.next.extend_from_slice(now);
            contents = later;
        }
        Ok(())
    }

    /// Writes the last chunk, and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.seal(true)?;
        Ok(self.output)
    }

    /// Encrypts the chunk in `next`.
    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("the stream has ended early"));
        }
        let tag = self.cipher.seal(self.number, is_last, &mut self.next);
        self.ready.extend_from_slice(&self.next);
        self.ready.extend(tag);
        self.next.clear();
        self.number += 1;
        if is_last || self.ready.len() >= WRITE {
            self.output.write_all(&self.ready).inspect_err(|_| self.has_failed = true)?;
            self.ready.clear();
        }
        Ok(())
    }
}

/// Makes a file key. Returns the cipher of its chunks, and the header with the nonce behind it.
fn begin(recipients: &Recipients) -> Result<(ChunkCipher, Vec<u8>), EncryptionError> {
    let key = random::bytes()?;
    let nonce = random::bytes()?;
    let mut header = header::compose(&recipients.wrap(&key)?, &key);
    header.extend(&nonce[..]);
    Ok((ChunkCipher::new(&key, &nonce), header))
}

/// Encrypts what is in memory.
pub fn encrypt(contents: &[u8], recipients: &Recipients) -> Result<Vec<u8>, EncryptionError> {
    let mut encrypted = Vec::with_capacity(contents.len() + contents.len() / CHUNK * TAG + 1024);
    let mut stream = Encrypting::new(contents, recipients)?;
    // Reading memory does not fail.
    let _ = stream.read_to_end(&mut encrypted);
    Ok(encrypted)
}
