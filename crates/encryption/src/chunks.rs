//! The payload: a nonce, then chunks, of which the last is marked.

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::aead::{Aead, Forged, TAG};

/// Bytes of contents in every chunk but the last.
pub(crate) const CHUNK: usize = 64 << 10;
/// Bytes of a full chunk in the file.
pub(crate) const SEALED: usize = CHUNK + TAG;
/// Bytes of the payload's nonce, before the first chunk.
pub(crate) const NONCE: usize = 16;

/// Of which file the chunks are.
pub(crate) type FileKey = Zeroizing<[u8; 16]>;

/// Encrypts and decrypts the chunks of one file.
pub(crate) struct ChunkCipher(Aead);

impl ChunkCipher {
    pub(crate) fn new(key: &FileKey, nonce: &[u8; NONCE]) -> Self {
        Self(Aead::new(&derive(&key[..], nonce, b"payload")))
    }

    /// Encrypts a chunk in place and returns its tag.
    pub(crate) fn seal(&self, number: u64, is_last: bool, chunk: &mut [u8]) -> [u8; TAG] {
        self.0.seal(nonce(number, is_last), chunk)
    }

    /// Decrypts a chunk with its tag behind it in place, and returns the contents.
    pub(crate) fn open<'a>(
        &self,
        number: u64,
        is_last: bool,
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], Forged> {
        self.0.open(nonce(number, is_last), sealed)
    }
}

/// 11 bytes of the chunk's number, most significant first, and whether it is the last.
fn nonce(number: u64, is_last: bool) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[3..11].copy_from_slice(&number.to_be_bytes());
    nonce[11] = u8::from(is_last);
    nonce
}

/// HKDF-SHA-256, 32 bytes.
pub(crate) fn derive(secret: &[u8], salt: &[u8], info: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut key = Zeroizing::new([0; 32]);
    // Fails for more than 8,160 bytes.
    let _ = Hkdf::<Sha256>::new(Some(salt), secret).expand(info, &mut key[..]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_opens_only_at_its_place() {
        let cipher = ChunkCipher::new(&Zeroizing::new([7; 16]), &[9; NONCE]);
        let mut sealed = b"contents".to_vec();
        let tag = cipher.seal(3, false, &mut sealed);
        sealed.extend(tag);
        assert_eq!(cipher.open(3, false, &mut sealed.clone()), Ok(&b"contents"[..]));
        for (number, is_last) in [(2, false), (3, true), (1 << 40, false)] {
            assert_eq!(cipher.open(number, is_last, &mut sealed.clone()), Err(Forged));
        }
        for byte in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[byte] ^= 1;
            assert_eq!(cipher.open(3, false, &mut changed), Err(Forged));
        }
        assert_eq!(cipher.open(3, false, &mut [0; TAG - 1]), Err(Forged));
    }
}
