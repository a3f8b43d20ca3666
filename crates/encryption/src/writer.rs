//! Encrypts a stream: what is read, or what is written.

use std::io::{self, ErrorKind, Read, Write};

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

/// Reads until `chunk` is full or the source ends: `read_to_end` would read a pipe in small pieces.
fn fill(source: &mut impl Read, chunk: &mut Vec<u8>) -> io::Result<()> {
    chunk.resize(CHUNK, 0);
    let mut length = 0;
    while length < CHUNK {
        match source.read(&mut chunk[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    chunk.truncate(length);
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
    /// What is not written yet: encrypted, up to `chunk`; behind it the contents of a chunk, since only what follows tells whether it is
    /// the last.
    ready: Vec<u8>,
    chunk: usize,
    /// The number of that chunk.
    number: u64,
    has_failed: bool,
}

impl<W: Write> EncryptingWriter<W> {
    /// Makes a new file key and the header for `recipients`. Writes nothing yet.
    pub fn new(output: W, recipients: &Recipients) -> Result<Self, EncryptionError> {
        let (cipher, mut ready) = begin(recipients)?;
        ready.reserve(WRITE + SEALED);
        let chunk = ready.len();
        Ok(Self { output, cipher, ready, chunk, number: 0, has_failed: false })
    }

    /// Encrypts and writes `contents`, which follow what was written before. After an error, it fails again.
    pub fn write_all(&mut self, mut contents: &[u8]) -> io::Result<()> {
        while !contents.is_empty() {
            if self.ready.len() - self.chunk == CHUNK {
                self.seal(false)?;
            }
            let room = CHUNK - (self.ready.len() - self.chunk);
            let (now, later) = contents.split_at(contents.len().min(room));
            self.ready.extend_from_slice(now);
            contents = later;
        }
        Ok(())
    }

    /// Writes the chunks that are encrypted. The last 64 KiB, or less, may wait for what follows.
    pub fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        self.output.write_all(&self.ready[..self.chunk]).inspect_err(|_| self.has_failed = true)?;
        self.ready.drain(..self.chunk);
        self.chunk = 0;
        Ok(())
    }

    /// Writes the last chunk, and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.seal(true)?;
        Ok(self.output)
    }

    /// Encrypts the chunk.
    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        self.check()?;
        let tag = self.cipher.seal(self.number, is_last, &mut self.ready[self.chunk..]);
        self.ready.extend(tag);
        self.chunk = self.ready.len();
        self.number += 1;
        if is_last || self.chunk >= WRITE { self.flush() } else { Ok(()) }
    }

    fn check(&self) -> io::Result<()> {
        if self.has_failed { Err(io::Error::other("the stream has ended early")) } else { Ok(()) }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zeroize::Zeroizing;

    use super::*;

    fn cipher() -> ChunkCipher {
        ChunkCipher::new(&Zeroizing::new([7; 16]), &[9; 16])
    }

    /// The header, and chunks encrypted one after the other.
    fn expected(contents: &[u8]) -> Vec<u8> {
        let mut file = b"header".to_vec();
        let mut chunks: Vec<_> = contents.chunks(CHUNK).collect();
        if contents.is_empty() {
            chunks.push(contents);
        }
        for (number, contents) in chunks.iter().enumerate() {
            let mut chunk = contents.to_vec();
            let tag = cipher().seal(number as u64, number + 1 == chunks.len(), &mut chunk);
            file.extend([&chunk[..], &tag].concat());
        }
        file
    }

    fn size() -> impl Strategy<Value = usize> {
        let rest = prop_oneof![Just(0), Just(1), Just(CHUNK - 1), 0..CHUNK];
        (0..20_usize, rest).prop_map(|(chunks, rest)| chunks * CHUNK + rest)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pieces_and_flushes_leave_the_bytes_as_they_are(
            size in size(),
            piece in prop_oneof![Just(1 << 20), 1000..100_000_usize],
            flush_each in 1..50_usize,
        ) {
            let contents: Vec<u8> = (0..size).map(|at| (at * 31 + at / 251) as u8).collect();
            let ready = b"header".to_vec();
            let chunk = ready.len();
            let mut writer =
                EncryptingWriter { output: Vec::new(), cipher: cipher(), ready, chunk, number: 0, has_failed: false };
            for (number, piece) in contents.chunks(piece).enumerate() {
                writer.write_all(piece).unwrap();
                if number % flush_each == 0 {
                    writer.flush().unwrap();
                    // All but what may be the last chunk is written.
                    let read = contents.len().min((number + 1) * piece.len());
                    prop_assert!(writer.output.len() + CHUNK >= read);
                }
            }
            prop_assert!(writer.finish().unwrap() == expected(&contents));
        }

        #[test]
        fn what_is_read_in_pieces_has_the_same_bytes(size in size(), piece in prop_oneof![Just(1 << 20), 1000..100_000_usize]) {
            struct Pieces<'a>(&'a [u8], usize);
            impl Read for Pieces<'_> {
                fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                    let count = self.1.min(buf.len());
                    self.0.read(&mut buf[..count])
                }
            }
            let contents: Vec<u8> = (0..size).map(|at| (at * 31 + at / 251) as u8).collect();
            let mut stream = Encrypting {
                source: Pieces(&contents, piece),
                cipher: cipher(),
                number: 0,
                ready: b"header".to_vec(),
                given: 0,
                next: Vec::new(),
                is_last: false,
                has_failed: false,
            };
            let mut file = Vec::new();
            stream.read_to_end(&mut file).unwrap();
            prop_assert!(file == expected(&contents));
        }
    }
}
