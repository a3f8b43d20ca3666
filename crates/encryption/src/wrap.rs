//! How a file's key is kept for a recipient: encrypted with what only the file's maker and the recipient can compute.

use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};
use zeroize::Zeroizing;

use crate::aead::{Aead, TAG};
use crate::chunks::{FileKey, derive};
use crate::error::EncryptionError;
use crate::header::{Stanza, base64, from_base64};
use crate::random;

/// The stanza of a Curve25519 key, and what its wrapping key is derived with.
const X25519: &str = "X25519";
const X25519_INFO: &[u8] = b"age-encryption.org/v1/X25519";
/// The same of an SSH key.
const SSH: &str = "ssh-ed25519";
const SSH_INFO: &[u8] = b"age-encryption.org/v1/ssh-ed25519";

/// Bytes of a file key with its tag.
const WRAPPED: usize = 16 + TAG;
/// A wrapping key is used once.
const NONCE: [u8; 12] = [0; 12];

/// What an SSH key has beside the point on the curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SshTag {
    /// The first bytes of the SHA-256 of the public key.
    pub(crate) short: [u8; 4],
    /// What the shared secret is multiplied with, so that the SSH key is used for nothing else.
    pub(crate) tweak: [u8; 32],
}

impl SshTag {
    pub(crate) fn new(public_key: &[u8]) -> Self {
        use sha2::Digest;
        let digest = sha2::Sha256::digest(public_key);
        let mut short = [0; 4];
        short.copy_from_slice(&digest[..4]);
        Self { short, tweak: *derive(b"", public_key, SSH_INFO) }
    }
}

/// Whether what is computed with `point` is the same for every secret: X25519's secrets are multiples of 8 (RFC 7748, section 5).
pub(crate) fn is_of_low_order(point: &[u8; 32]) -> bool {
    x25519([1; 32], *point) == [0; 32]
}

/// Wraps `key` for the holder of the secret of `point`.
pub(crate) fn wrap(key: &FileKey, point: &[u8; 32], ssh: Option<&SshTag>) -> Result<Stanza, EncryptionError> {
    let secret = random::bytes::<32>()?;
    let share = x25519(*secret, X25519_BASEPOINT_BYTES);
    let shared = tweaked(Zeroizing::new(x25519(*secret, *point)), ssh);
    let cipher = cipher(&shared, &share, point, ssh);
    let mut body = key.to_vec();
    let tag = cipher.seal(NONCE, &mut body);
    body.extend(tag);
    let share = base64(&share);
    let arguments = match ssh {
        None => vec![X25519.to_owned(), share],
        Some(ssh) => vec![SSH.to_owned(), base64(&ssh.short), share],
    };
    Ok(Stanza { arguments, body })
}

/// Unwraps the file key in a stanza that is for the holder of `secret`, whose point is `point`. None if it is for another.
pub(crate) fn unwrap(
    stanza: &Stanza,
    secret: &[u8; 32],
    point: &[u8; 32],
    ssh: Option<&SshTag>,
) -> Option<FileKey> {
    let share = match (stanza.arguments.as_slice(), ssh) {
        ([kind, share], None) if kind == X25519 => share,
        ([kind, short, share], Some(ssh)) if kind == SSH && *short == base64(&ssh.short) => share,
        _ => return None,
    };
    let share: [u8; 32] = from_base64(share)?.try_into().ok()?;
    let shared = Zeroizing::new(x25519(*secret, share));
    // A share of small order would make the secret known to all.
    if *shared == [0; 32] || stanza.body.len() != WRAPPED {
        return None;
    }
    let cipher = cipher(&tweaked(shared, ssh), &share, point, ssh);
    let mut body = Zeroizing::new(stanza.body.clone());
    let key = cipher.open(NONCE, &mut body).ok()?;
    Some(Zeroizing::new(key.try_into().ok()?))
}

fn tweaked(shared: Zeroizing<[u8; 32]>, ssh: Option<&SshTag>) -> Zeroizing<[u8; 32]> {
    ssh.map_or_else(|| shared.clone(), |ssh| Zeroizing::new(x25519(ssh.tweak, *shared)))
}

fn cipher(shared: &[u8; 32], share: &[u8; 32], point: &[u8; 32], ssh: Option<&SshTag>) -> Aead {
    let salt = [*share, *point].concat();
    let key = derive(shared, &salt, if ssh.is_some() { SSH_INFO } else { X25519_INFO });
    Aead::new(&key)
}
