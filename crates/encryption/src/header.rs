//! The header: for whom the file is, and a checksum of that by the file's key.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::chunks::{FileKey, derive};

/// The first line.
pub(crate) const VERSION: &[u8] = b"age-encryption.org/v1\n";
/// Bytes that a header may have: some 500 recipients.
pub(crate) const MOST: usize = 64 << 10;
/// Characters of base64 in a line; a shorter line ends a body.
const COLUMNS: usize = 64;

/// What is kept for one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stanza {
    /// Its kind, and what that needs.
    pub(crate) arguments: Vec<String>,
    pub(crate) body: Vec<u8>,
}

/// A header that was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) stanzas: Vec<Stanza>,
    /// Bytes before the payload.
    pub(crate) size: usize,
    /// Bytes that the checksum is of.
    authenticated: usize,
    mac: Vec<u8>,
}

/// What is wrong with a header that ends.
pub(crate) const ENDS: &str = "the file ends within its header";

/// Why a text is not a header, and at which byte.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) offset: usize,
    pub(crate) what: &'static str,
}

impl Header {
    /// Parses the header at the start of `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Invalid> {
        let mut lines = Lines { bytes, at: 0 };
        if lines.next()? != VERSION.trim_ascii_end() {
            return Err(Invalid { offset: 0, what: "expected age-encryption.org/v1" });
        }
        let mut stanzas = Vec::new();
        loop {
            let offset = lines.at;
            let invalid = |what| Invalid { offset, what };
            let line = std::str::from_utf8(lines.next()?).map_err(|_| invalid("expected ASCII"))?;
            if let Some(mac) = line.strip_prefix("--- ") {
                let mac = from_base64(mac).filter(|mac| mac.len() == 32);
                let mac = mac.ok_or_else(|| invalid("expected a checksum of 32 bytes in base64"))?;
                return Ok(Self { stanzas, size: lines.at, authenticated: offset + 3, mac });
            }
            let line = line
                .strip_prefix("-> ")
                .ok_or_else(|| invalid("expected a recipient (\"->\") or \"---\""))?;
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            if arguments
                .iter()
                .any(|argument| argument.is_empty() || !argument.bytes().all(|byte| byte.is_ascii_graphic()))
            {
                return Err(invalid("expected words between single spaces"));
            }
            stanzas.push(Stanza { arguments, body: body(&mut lines)? });
        }
    }

    /// Whether the header is the one that was written with `key`. `bytes` is what it was parsed from.
    pub(crate) fn is_authentic(&self, bytes: &[u8], key: &FileKey) -> bool {
        mac(&bytes[..self.authenticated], key).verify_slice(&self.mac).is_ok()
    }
}

/// Returns the header of a file with these recipients.
pub(crate) fn compose(stanzas: &[Stanza], key: &FileKey) -> Vec<u8> {
    let mut text = VERSION.to_vec();
    for stanza in stanzas {
        text.extend(format!("-> {}\n", stanza.arguments.join(" ")).bytes());
        let body = base64(&stanza.body);
        let mut rest = body.as_bytes();
        while rest.len() >= COLUMNS {
            text.extend(&rest[..COLUMNS]);
            text.push(b'\n');
            rest = &rest[COLUMNS..];
        }
        text.extend(rest);
        text.push(b'\n');
    }
    text.extend(b"---");
    let mac = base64(&mac(&text, key).finalize().into_bytes());
    text.extend(format!(" {mac}\n").bytes());
    text
}

fn mac(text: &[u8], key: &FileKey) -> Hmac<Sha256> {
    // HMAC fills a key up to a block with zeros.
    let mut block = Zeroizing::new([0; 64]);
    block[..32].copy_from_slice(&derive(&key[..], b"", b"header")[..]);
    let mut mac = Hmac::<Sha256>::new((&*block).into());
    mac.update(text);
    mac
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD_NO_PAD.encode(bytes)
}

/// Decodes what [`base64`] would have made; other spellings of the same bytes are refused.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD_NO_PAD.decode(text).ok().filter(|bytes| base64(bytes) == text)
}

fn body(lines: &mut Lines<'_>) -> Result<Vec<u8>, Invalid> {
    let mut body = Vec::new();
    loop {
        let offset = lines.at;
        let line = lines.next()?;
        let text = std::str::from_utf8(line).ok().filter(|text| text.len() <= COLUMNS);
        let bytes = text.and_then(from_base64);
        body.extend(bytes.ok_or(Invalid { offset, what: "expected base64 in lines of 64 characters" })?);
        if line.len() < COLUMNS {
            return Ok(body);
        }
    }
}

struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Result<&'a [u8], Invalid> {
        let rest = &self.bytes[self.at..];
        let what = if self.bytes.len() < MOST { ENDS } else { "the header is longer than 64 KiB" };
        let end = rest.iter().position(|&byte| byte == b'\n').ok_or(Invalid { offset: self.at, what })?;
        self.at += end + 1;
        Ok(&rest[..end])
    }
}
