//! Reads an encrypted file at any offset.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pagehaul_physmem::OpenError;
use pagehaul_physmem::file::ReadAt;

use crate::aead::{Forged, TAG};
use crate::authentic::Authentic;
use crate::chunks::{CHUNK, ChunkCipher, FileKey, NONCE, SEALED};
use crate::header::{ENDS, Header, MOST, VERSION};
use crate::identity::Identity;

/// What an encrypted file begins with.
pub const MAGIC: &[u8; 19] = b"age-encryption.org/";

/// Chunks that are kept decrypted: 4 MiB. Readers of dumps read headers and pages of a few KiB, mostly one after the other.
const SLOTS: usize = 64;
/// The first read of a header: those with up to some 25 recipients are complete then.
const FIRST: usize = 4 << 10;

/// The contents of an encrypted file, decrypted as they are read.
///
/// Each chunk is authenticated before a byte of it is given. A file that ends before its last chunk ends with its last whole one.
pub struct Decrypted<F> {
    file: F,
    cipher: ChunkCipher,
    /// Where the first chunk is.
    start: u64,
    /// Chunks that can be read.
    chunks: u64,
    /// Whether the last of them is marked as such.
    is_complete: bool,
    size: u64,
    slots: Vec<Mutex<Slot>>,
    authentic: Authentic,
}

/// A chunk that was decrypted.
#[derive(Default)]
struct Slot {
    number: Option<u64>,
    bytes: Vec<u8>,
}

impl<F: ReadAt> Decrypted<F> {
    /// Opens a file with the first identity that it is for.
    pub fn open(file: F, identities: &[Identity]) -> Result<Self, OpenError> {
        let key = unlock_file(&file, identities)?;
        Self::open_with_key(file, &key)
    }

    /// Opens a file with its own key.
    pub(crate) fn open_with_key(file: F, key: &FileKey) -> Result<Self, OpenError> {
        let (header, _) = read_header(&file)?;
        Self::with_key(file, header.size as u64, key)
    }

    fn with_key(file: F, payload: u64, key: &FileKey) -> Result<Self, OpenError> {
        let mut nonce = [0; NONCE];
        file.read_exact_at(payload, &mut nonce).map_err(|source| OpenError::Io {
            path: file.path().to_owned(),
            action: "read the first bytes behind the header of",
            source,
        })?;
        let cipher = ChunkCipher::new(key, &nonce);
        let start = payload + NONCE as u64;
        let length = file.size().saturating_sub(start);
        let slots = (0..SLOTS).map(|_| Mutex::default()).collect();
        let mut opened = Self {
            file,
            cipher,
            start,
            chunks: 0,
            is_complete: false,
            size: 0,
            slots,
            authentic: Authentic::of(length.div_ceil(SEALED as u64)),
        };
        opened.find_end(length).map_err(|source| OpenError::Io {
            path: opened.file.path().to_owned(),
            action: "read the last chunk of",
            source,
        })?;
        if opened.chunks == 0 {
            return Err(OpenError::Format {
                path: opened.file.path().to_owned(),
                offset: start,
                what: "the encrypted file (age) ends before its first whole piece of 64 KiB, or that was changed: nothing in it can be \
                       read"
                    .into(),
            });
        }
        Ok(opened)
    }

    /// Finds the last chunk, and whether it is the one that was written last.
    fn find_end(&mut self, length: u64) -> io::Result<()> {
        let (whole, rest) = (length / SEALED as u64, (length % SEALED as u64) as usize);
        let (number, sealed) = match (whole, rest) {
            (0, 0) => return Ok(()),
            (_, 0) => (whole - 1, SEALED),
            _ => (whole, rest),
        };
        let mut last = vec![0; sealed];
        self.file.read_exact_at(self.at(number), &mut last)?;
        if self.cipher.open(number, true, &mut last).is_ok() {
            // Only an empty file has an empty chunk.
            self.is_complete = sealed > TAG || number == 0;
            self.chunks = number + 1;
            self.size = number * CHUNK as u64 + (sealed - TAG) as u64;
        } else {
            // What is left of a chunk cannot be told from a forged one.
            self.chunks = self.authentic(whole)?;
            self.size = self.chunks * CHUNK as u64;
        }
        Ok(())
    }

    /// Returns how many of the first `whole` chunks can be read: all, unless something else follows the file.
    fn authentic(&self, whole: u64) -> io::Result<u64> {
        let mut sealed = vec![0; SEALED];
        let mut is_authentic = |number: u64| -> io::Result<bool> {
            self.file.read_exact_at(self.at(number), &mut sealed)?;
            Ok(self.cipher.open(number, false, &mut sealed).is_ok())
        };
        if whole == 0 || is_authentic(whole - 1)? {
            return Ok(whole);
        }
        let (mut good, mut bad) = (0, whole - 1);
        while good < bad {
            let middle = good + (bad - good) / 2;
            if is_authentic(middle)? {
                good = middle + 1;
            } else {
                bad = middle;
            }
        }
        Ok(good)
    }

    /// Whether it has its last chunk. Without it, it is truncated.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns which of its chunks are found to be authentic, now and later.
    pub fn known_authentic(&self) -> Authentic {
        self.authentic.clone()
    }

    /// Where a chunk is in the file.
    fn at(&self, number: u64) -> u64 {
        self.start + number * SEALED as u64
    }

    /// Reads a chunk into `slot`, unless it is there.
    fn load(&self, number: u64, slot: &mut Slot) -> io::Result<()> {
        if slot.number == Some(number) {
            return Ok(());
        }
        slot.number = None;
        let contents = (self.size - number * CHUNK as u64).min(CHUNK as u64) as usize;
        slot.bytes.resize(contents + TAG, 0);
        self.file.read_exact_at(self.at(number), &mut slot.bytes)?;
        let is_last = self.is_complete && number + 1 == self.chunks;
        match self.cipher.open(number, is_last, &mut slot.bytes) {
            Ok(_) => slot.bytes.truncate(contents),
            Err(Forged) => {
                let at = self.at(number);
                let what = format!(
                    "the encrypted chunk at offset {at:#x} is damaged or was changed: its tag is wrong"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        slot.number = Some(number);
        self.authentic.add(number);
        Ok(())
    }
}

impl<F: ReadAt> ReadAt for Decrypted<F> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if offset >= self.size || buf.is_empty() {
            return Ok(0);
        }
        let (number, within) = (offset / CHUNK as u64, (offset % CHUNK as u64) as usize);
        let slot = &self.slots[(number % SLOTS as u64) as usize];
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        self.load(number, &mut slot)?;
        let contents = &slot.bytes[within..];
        let count = contents.len().min(buf.len());
        buf[..count].copy_from_slice(&contents[..count]);
        Ok(count)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn identity(&self) -> (u64, u64) {
        self.file.identity()
    }

    fn is_remote(&self) -> bool {
        self.file.is_remote()
    }

    fn is_encrypted(&self) -> bool {
        true
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        if !self.is_remote() {
            return;
        }
        let sealed = |range: &Range<u64>| {
            let end = range.end.min(self.size);
            let first = range.start / CHUNK as u64;
            (range.start < end)
                .then(|| self.at(first)..self.at(end.div_ceil(CHUNK as u64)).min(self.file.size()))
        };
        let ranges: Vec<_> = ranges.iter().filter_map(sealed).collect();
        self.file.will_need(&ranges);
    }
}

/// Finds the key of an encrypted file.
pub(crate) fn unlock_file(file: &impl ReadAt, identities: &[Identity]) -> Result<FileKey, OpenError> {
    let (header, bytes) = read_header(file)?;
    unlock(&header, &bytes, identities)
        .map_err(|what| OpenError::Unsupported { path: file.path().to_owned(), what })
}

/// Whether an encrypted file ends before anything that is encrypted.
pub(crate) fn ends_in_header(file: &impl ReadAt) -> bool {
    let Ok(bytes) = read_up_to(file, MOST) else { return false };
    match Header::parse(&bytes) {
        Ok(header) => file.size() < (header.size + NONCE + TAG) as u64,
        Err(invalid) => invalid.what == ENDS,
    }
}

fn read_header(file: &impl ReadAt) -> Result<(Header, Vec<u8>), OpenError> {
    let failed =
        |source| OpenError::Io { path: file.path().to_owned(), action: "read the header of", source };
    let mut bytes = read_up_to(file, FIRST).map_err(failed)?;
    if bytes.len() == FIRST && Header::parse(&bytes).is_err() {
        bytes = read_up_to(file, MOST).map_err(failed)?;
    }
    let header = Header::parse(&bytes).map_err(|invalid| OpenError::Format {
        path: file.path().to_owned(),
        offset: invalid.offset as u64,
        what: match bytes.starts_with(VERSION) || bytes.len() < VERSION.len() {
            true => format!("the header of an encrypted file (age) is damaged: {}", invalid.what),
            false => "an encrypted file (age) of a version that is not known: expected version 1".to_owned(),
        },
    })?;
    Ok((header, bytes))
}

fn unlock(header: &Header, bytes: &[u8], identities: &[Identity]) -> Result<FileKey, String> {
    let keys = identities
        .iter()
        .flat_map(|identity| header.stanzas.iter().filter_map(|stanza| identity.unwrap(stanza)));
    let mut is_changed = false;
    for key in keys {
        if header.is_authentic(bytes, &key) {
            return Ok(key);
        }
        is_changed = true;
    }
    let recipients = match header.stanzas.len() {
        1 => "one recipient".to_owned(),
        count => format!("{count} recipients"),
    };
    let kinds = header.stanzas.iter().filter_map(|stanza| stanza.arguments.first());
    let has_passphrase = kinds.clone().any(|kind| kind == "scrypt");
    Err(if is_changed {
        "the header of the encrypted file (age) was changed: its checksum is wrong".to_owned()
    } else if has_passphrase {
        "encrypted (age) with a passphrase, which pagehaul does not ask for; decrypt it with `age -d`"
            .to_owned()
    } else if identities.is_empty() {
        format!(
            "encrypted (age) to {recipients}; name the file of a secret key by --identity or PAGEHAUL_IDENTITY"
        )
    } else {
        format!("encrypted (age) to {recipients}, none of which is the identity given")
    })
}

fn read_up_to(file: &impl ReadAt, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most.min(usize::try_from(file.size()).unwrap_or(most))];
    file.read_exact_at(0, &mut bytes)?;
    Ok(bytes)
}
