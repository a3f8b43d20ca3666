//! Public keys.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bech32::Bech32;
use bech32::primitives::decode::CheckedHrpstring;
use rustix::fs::OFlags;

use crate::aead::TAG;
use crate::chunks::{CHUNK, FileKey, SEALED};
use crate::error::{EncryptionError, RecipientError};
use crate::header::Stanza;
use crate::ssh;
use crate::text::{check_size, read_text, without_mark};
use crate::wrap::{SshTag, is_of_low_order, wrap};

/// Bytes of a header without recipients and the nonce behind it, and of one recipient, at most.
const HEADER: u64 = 128;
const STANZA: u64 = 128;

/// Who can read a file: the holder of the secret key of this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    point: [u8; 32],
    ssh: Option<SshTag>,
}

impl Recipient {
    /// Parses `age1…`, or a public key of SSH (`ssh-ed25519 …`).
    pub fn parse(text: &str) -> Result<Self, RecipientError> {
        let invalid = |what| RecipientError::Invalid { what };
        let text = text.trim();
        if let Some(key) = text.strip_prefix("ssh-ed25519 ") {
            let key = key.split_ascii_whitespace().next().and_then(ssh::parse_public);
            let key = key.ok_or_else(|| invalid("the key behind ssh-ed25519 is damaged"))?;
            let point = ssh::montgomery(&key)
                .ok_or_else(|| invalid("the key behind ssh-ed25519 is not a point of its curve"))?;
            return Self::new(point, Some(SshTag::new(&ssh::public_key(&key))));
        }
        if text.starts_with("ssh-") || text.starts_with("ecdsa-") || text.starts_with("sk-") {
            return Err(invalid("of SSH keys only those of kind ssh-ed25519 can be recipients"));
        }
        if text.starts_with("AGE-SECRET-KEY-") {
            return Err(invalid(
                "this is a secret key; recipients are public ones (age1…), which `age-keygen -y` prints",
            ));
        }
        let wrong =
            || invalid("expected a recipient: age1… of `age-keygen`, or a public key of SSH (ssh-ed25519 …)");
        Self::new(decode(text, "age").ok_or_else(wrong)?, None)
    }

    fn new(point: [u8; 32], ssh: Option<SshTag>) -> Result<Self, RecipientError> {
        let what =
            "this key has no secret one: everybody could read what is encrypted to it (a point of low order)";
        match is_of_low_order(&point) {
            true => Err(RecipientError::Invalid { what }),
            false => Ok(Self { point, ssh }),
        }
    }

    pub(crate) fn wrap(&self, key: &FileKey) -> Result<Stanza, EncryptionError> {
        wrap(key, &self.point, self.ssh.as_ref())
    }
}

/// Everybody who can read a file: at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipients(Vec<Recipient>);

impl Recipients {
    /// More do not fit into the header that readers accept.
    const MOST: usize = 256;

    /// Parses recipients, or names of files that hold some. Returns none for no arguments.
    pub fn parse(arguments: &[String]) -> Result<Option<Self>, RecipientError> {
        let mut all = Vec::new();
        for argument in arguments {
            if argument.is_empty() {
                return Err(RecipientError::Invalid {
                    what: "expected a public key, or a file that has some",
                });
            }
            let is_key = ["age1", "ssh-", "ecdsa-", "sk-", "AGE-SECRET-KEY-"]
                .iter()
                .any(|start| argument.starts_with(start));
            match is_key {
                true => all.push(Recipient::parse(argument)?),
                false => all.extend(read_file(Path::new(argument))?),
            }
        }
        if all.is_empty() { Ok(None) } else { Self::new(all).map(Some) }
    }

    fn new(all: Vec<Recipient>) -> Result<Self, RecipientError> {
        match all.len() > Self::MOST {
            true => Err(RecipientError::Invalid { what: "expected at most 256 recipients" }),
            false => Ok(Self(all)),
        }
    }

    /// Parses the text of a file that has a recipient a line, with comments and empty lines. `path` names it in errors.
    pub fn of_text(text: &str, path: &Path) -> Result<Self, RecipientError> {
        check_size(text.as_bytes()).map_err(|source| RecipientError::Io { path: path.to_owned(), source })?;
        Self::new(parse_text(without_mark(text), path)?)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns how many bytes a file of at most `size` bytes can hold.
    pub fn room(&self, size: u64) -> u64 {
        let sealed = size.saturating_sub(HEADER + STANZA * self.0.len() as u64);
        let (whole, rest) = (sealed / SEALED as u64, sealed % SEALED as u64);
        whole * CHUNK as u64 + rest.saturating_sub(TAG as u64)
    }

    pub(crate) fn wrap(&self, key: &FileKey) -> Result<Vec<Stanza>, EncryptionError> {
        self.0.iter().map(|recipient| recipient.wrap(key)).collect()
    }
}

/// Reads a file with a recipient a line, with comments and empty lines.
fn read_file(path: &Path) -> Result<Vec<Recipient>, RecipientError> {
    // A pipe without a writer ends at once, so that a capture does not wait for one.
    let open = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    let wait =
        |file: File| rustix::fs::fcntl_setfl(&file, OFlags::empty()).map(|()| file).map_err(Into::into);
    let text = open.and_then(wait).and_then(read_text);
    let text = text.map_err(|source| RecipientError::Io { path: path.to_owned(), source })?;
    parse_text(&text, path)
}

fn parse_text(text: &str, path: &Path) -> Result<Vec<Recipient>, RecipientError> {
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        all.push(Recipient::parse(line).map_err(|error| match error {
            RecipientError::Invalid { what } => {
                RecipientError::InvalidLine { path: path.to_owned(), line: number + 1, what }
            }
            other => other,
        })?);
    }
    if all.is_empty() { Err(RecipientError::Empty(path.to_owned())) } else { Ok(all) }
}

/// Decodes the 32 bytes of a key in Bech32.
pub(crate) fn decode(text: &str, kind: &str) -> Option<[u8; 32]> {
    let parsed = CheckedHrpstring::new::<Bech32>(text).ok()?;
    let is_kind = parsed.hrp().as_str().eq_ignore_ascii_case(kind);
    let mut bytes = parsed.byte_iter();
    let mut key = [0; 32];
    for byte in &mut key {
        *byte = bytes.next()?;
    }
    (is_kind && bytes.next().is_none()).then_some(key)
}
