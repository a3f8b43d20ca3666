//! Ed25519 keys of OpenSSH, as points of Curve25519.

use curve25519_dalek::edwards::CompressedEdwardsY;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha512};
use zeroize::Zeroizing;

const KIND: &[u8] = b"ssh-ed25519";
const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";

/// A public key as SSH writes it: kind and point, each after its length.
pub(crate) fn public_key(point: &[u8; 32]) -> Vec<u8> {
    [&(KIND.len() as u32).to_be_bytes()[..], KIND, &32u32.to_be_bytes(), point].concat()
}

/// Parses the second word of a line of `authorized_keys`.
pub(crate) fn parse_public(base64: &str) -> Option<[u8; 32]> {
    let blob = STANDARD.decode(base64).ok()?;
    let point = blob.get(blob.len().checked_sub(32)?..)?.try_into().ok()?;
    (public_key(&point) == blob).then_some(point)
}

/// Returns the point of Curve25519 for one of Ed25519; none if it is on no curve.
pub(crate) fn montgomery(point: &[u8; 32]) -> Option<[u8; 32]> {
    Some(CompressedEdwardsY(*point).decompress()?.to_montgomery().to_bytes())
}

/// Whether a file holds a private key of OpenSSH.
pub(crate) fn is_private(text: &str) -> bool {
    text.trim_start().starts_with(BEGIN)
}

/// Returns the secret of Curve25519 and the public key of Ed25519 in a private key without a passphrase (PROTOCOL.key of OpenSSH).
pub(crate) fn parse_private(text: &str) -> Result<(Zeroizing<[u8; 32]>, [u8; 32]), &'static str> {
    let damaged = "the private key of OpenSSH is damaged";
    let text = text.trim().strip_prefix(BEGIN).and_then(|text| text.strip_suffix(END)).ok_or(damaged)?;
    let base64: Zeroizing<String> = Zeroizing::new(text.split_ascii_whitespace().collect());
    let blob = Zeroizing::new(STANDARD.decode(&*base64).map_err(|_| damaged)?);
    let mut fields = Fields(blob.strip_prefix(MAGIC).ok_or(damaged)?);
    if fields.bytes().ok_or(damaged)? != b"none" {
        return Err(
            "the private key has a passphrase, which pagehaul does not ask for; decrypt the dump with `age -d`, or use a key \
                    without one",
        );
    }
    let _kdf = fields.bytes();
    let _kdf_options = fields.bytes();
    let _keys = fields.number();
    let _public = fields.bytes();
    let mut private = Fields(fields.bytes().ok_or(damaged)?);
    let checks = (private.number(), private.number());
    if checks.0.is_none() || checks.0 != checks.1 {
        return Err(damaged);
    }
    if private.bytes().ok_or(damaged)? != KIND {
        return Err("expected a key of kind ssh-ed25519; others cannot be used");
    }
    let point: [u8; 32] = private.bytes().and_then(|point| point.try_into().ok()).ok_or(damaged)?;
    let seed = private.bytes().and_then(|pair| pair.get(..32)).ok_or(damaged)?;
    let digest = Zeroizing::new(<[u8; 64]>::from(Sha512::digest(seed)));
    let mut secret = Zeroizing::new([0; 32]);
    secret.copy_from_slice(&digest[..32]);
    Ok((secret, point))
}

/// Fields of SSH: numbers of 4 bytes, and bytes after their length.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}
