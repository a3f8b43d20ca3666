//! Signatures group crashes of the same cause.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::event::Kind;
use crate::frame::Frame;

/// Version of how signatures are made. A change that gives the same crash another signature gives another version.
pub const SIGNATURE_VERSION: u32 = 1;

/// Frames in a signature: netdev's signatures have five.
pub const FRAMES: usize = 5;

/// Version of how coarse signatures are made.
pub const COARSE_VERSION: u32 = 1;

/// Frames in a coarse signature. Of 226 stacks and their variants, one frame mixed different bugs in a quarter of the pairs, two in less
/// than a hundredth, and three split a tenth more of the pairs of one bug (docs/benchmarks/2026-11-25-signatures.md).
const COARSE_FRAMES: usize = 2;

/// Groups crashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// Kind of death.
    pub kind: Kind,
    /// Version of how it is made.
    #[serde(rename = "sig_version")]
    pub version: u32,
    /// 16 hex digits: of the kind and the first frames.
    pub sig: String,
    /// 16 hex digits: of the kind and all frames.
    pub sig_fine: String,
    /// 16 hex digits, of fewer frames: builds that inline other functions have one. Null in facts of older programs.
    #[serde(default)]
    pub sig_coarse: Option<String>,
    /// Version of how it is made.
    #[serde(default)]
    pub coarse_version: Option<u32>,
    /// The first frames that are to blame: `module:function`.
    pub frames: Vec<String>,
    /// Whether the log has no frame that is to blame: then the message counts.
    pub corrupted: bool,
}

impl Signature {
    /// Makes the signature of frames, innermost first; of `message` if none is to blame.
    pub(crate) fn new(kind: Kind, frames: &[Frame], message: &str) -> Self {
        let to_blame = || frames.iter().filter(|frame| !frame.is_skipped());
        let all: Vec<String> = to_blame().map(Frame::to_string).collect();
        let first = all.get(..FRAMES.min(all.len())).unwrap_or_default().to_vec();
        let corrupted = all.is_empty();
        let message = normal(message);
        let hash = |version: &str, names: &[String]| {
            let names = if corrupted { std::slice::from_ref(&message) } else { names };
            hash(version, kind, names)
        };
        let version = SIGNATURE_VERSION.to_string();
        let coarse = coarse(to_blame());
        Self {
            kind,
            version: SIGNATURE_VERSION,
            sig: hash(&version, &first),
            sig_fine: hash(&version, &all),
            sig_coarse: Some(hash(&format!("coarse {COARSE_VERSION}"), &coarse)),
            coarse_version: Some(COARSE_VERSION),
            corrupted,
            frames: first,
        }
    }
}

impl Signature {
    /// Returns the kind and the frames: `null-deref: ext4:ext4_writepages < do_writepages`.
    pub fn text(&self) -> String {
        match self.frames.as_slice() {
            [] => self.kind.name().to_owned(),
            frames => format!("{}: {}", self.kind, frames.join(" < ")),
        }
    }
}

/// Names for a coarse signature: without modules, which a configuration can build in, and without generic functions unless all are.
fn coarse<'a>(to_blame: impl Iterator<Item = &'a Frame>) -> Vec<String> {
    let (generic, mut names): (Vec<&Frame>, Vec<&Frame>) = to_blame.partition(|frame| frame.is_generic());
    if names.is_empty() {
        names = generic;
    }
    let mut names: Vec<String> = names.into_iter().map(|frame| frame.function.clone()).collect();
    names.dedup();
    names.truncate(COARSE_FRAMES);
    names
}

/// A zero byte cannot be in a name.
fn hash(version: &str, kind: Kind, names: &[String]) -> String {
    let mut hash = Sha256::new();
    hash.update(version);
    for part in std::iter::once(kind.name()).chain(names.iter().map(String::as_str)) {
        hash.update([0]);
        hash.update(part);
    }
    hex(&hash.finalize(), 8)
}

/// The first bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8], count: usize) -> String {
    bytes.iter().take(count).fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A message without what differs by machine: words with digits become `N`.
pub(crate) fn normal(message: &str) -> String {
    let words = message.split_whitespace().take(32);
    let words = words.map(|word| if word.bytes().any(|byte| byte.is_ascii_digit()) { "N" } else { word });
    words.collect::<Vec<_>>().join(" ")
}
