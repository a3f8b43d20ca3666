//! ChaCha20-Poly1305 (RFC 8439).

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

/// Bytes of the authentication tag behind what is encrypted.
pub(crate) const TAG: usize = 16;

/// Encrypts and decrypts with one key, in place. Each nonce is for one message. In a box: the key takes the room of the largest cipher's.
pub(crate) struct Aead(Box<LessSafeKey>);

/// What is not what was encrypted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Forged;

impl Aead {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let Ok(key) = UnboundKey::new(&CHACHA20_POLY1305, key) else {
            unreachable!("the key has the length that the cipher wants")
        };
        Self(Box::new(LessSafeKey::new(key)))
    }

    /// Encrypts `message` and returns its tag.
    pub(crate) fn seal(&self, nonce: [u8; 12], message: &mut [u8]) -> [u8; TAG] {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let Ok(tag) = self.0.seal_in_place_separate_tag(nonce, Aad::empty(), message) else {
            unreachable!("messages are far below the cipher's limit of 256 GiB")
        };
        let mut bytes = [0; TAG];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    /// Decrypts what has its tag behind it, and returns the message.
    pub(crate) fn open<'a>(&self, nonce: [u8; 12], sealed: &'a mut [u8]) -> Result<&'a [u8], Forged> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place(nonce, Aad::empty(), sealed).map(|message| &*message).map_err(|_| Forged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_another_implementation_makes_of_it() {
        // By the package `cryptography` of Python 48.0.0, of the key 0, 1, 2, … and a nonce of zeros.
        const SEALED: [u8; 24] = [
            0x7b, 0xd7, 0x2c, 0x45, 0xc8, 0x88, 0xd2, 0xa2, 0x10, 0xe6, 0x0b, 0x66, 0x73, 0x40, 0xac, 0xa7,
            0x5d, 0xea, 0x71, 0xae, 0x6b, 0x1c, 0x1d, 0x4f,
        ];
        let cipher = Aead::new(&std::array::from_fn(|at| at as u8));
        let mut message = *b"contents";
        let tag = cipher.seal([0; 12], &mut message);
        assert_eq!([&message[..], &tag].concat(), SEALED);
        assert_eq!(cipher.open([0; 12], &mut SEALED.clone()), Ok(&b"contents"[..]));
        assert_eq!(cipher.open([1; 12], &mut SEALED.clone()), Err(Forged));
        assert_eq!(cipher.open([0; 12], &mut SEALED[..TAG - 1].to_vec()), Err(Forged));
    }
}
