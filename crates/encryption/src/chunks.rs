//! The payload: a nonce, then chunks, of which the last is marked.

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Nonce, Tag};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

/// Bytes of contents in every chunk but the last.
pub(crate) const CHUNK: usize = 64 << 10;
/// Bytes of the authentication tag behind each chunk.
pub(crate) const TAG: usize = 16;
/// Bytes of a full chunk in the file.
pub(crate) const SEALED: usize = CHUNK + TAG;
/// Bytes of the payload's nonce, before the first chunk.
pub(crate) const NONCE: usize = 16;

/// Of which file the chunks are.
pub(crate) type FileKey = Zeroizing<[u8; 16]>;

/// Encrypts and decrypts the chunks of one file.
pub(crate) struct ChunkCipher(ChaCha20Poly1305);

/// A chunk that is not what was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Forged;

impl ChunkCipher {
    pub(crate) fn new(key: &FileKey, nonce: &[u8; NONCE]) -> Self {
        let key = derive(&key[..], nonce, b"payload");
        Self(ChaCha20Poly1305::new((&*key).into()))
    }

    /// Encrypts a chunk in place and returns its tag.
    pub(crate) fn seal(&self, number: u64, is_last: bool, chunk: &mut [u8]) -> [u8; TAG] {
        let tag = self.0.encrypt_inout_detached(&nonce(number, is_last), b"", chunk.into());
        // Chunks are far below the cipher's limit of 256 GiB.
        tag.map_or([0; TAG], Into::into)
    }

    /// Decrypts a chunk with its tag behind it in place, and returns the contents.
    pub(crate) fn open<'a>(
        &self,
        number: u64,
        is_last: bool,
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], Forged> {
        let length = sealed.len().checked_sub(TAG).ok_or(Forged)?;
        let (chunk, tag) = sealed.split_at_mut(length);
        let tag = Tag::try_from(&*tag).map_err(|_| Forged)?;
        self.0
            .decrypt_inout_detached(&nonce(number, is_last), b"", (&mut *chunk).into(), &tag)
            .map_err(|_| Forged)?;
        Ok(chunk)
    }
}

/// 11 bytes of the chunk's number, most significant first, and whether it is the last.
fn nonce(number: u64, is_last: bool) -> Nonce {
    let mut nonce = [0; 12];
    nonce[3..11].copy_from_slice(&number.to_be_bytes());
    nonce[11] = u8::from(is_last);
    nonce.into()
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
