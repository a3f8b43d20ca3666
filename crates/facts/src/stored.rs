//! Reads documents that were written before: plain, or compressed with zstd as `capture --facts` does.

use pagehaul_codec::{CodecError, FrameDecompressor};

use crate::document::{Facts, SCHEMA_VERSION};

/// How a zstd frame begins (RFC 8878, 3.1.1).
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Why bytes are no facts.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// They do not decompress.
    #[error(transparent)]
    Compressed(#[from] CodecError),
    /// They are another document.
    #[error("it holds no facts: {0}")]
    Document(serde_json::Error),
    /// They are facts of another version.
    #[error("it has schema version {0}; this program knows {SCHEMA_VERSION}")]
    Version(u32),
    /// The ID of the crash becomes the name of files.
    #[error("its crash_id is not 32 hexadecimal digits")]
    Id,
}

impl Facts {
    /// Bytes of a document, compressed or not, that are read.
    pub const MAX_BYTES: u64 = 64 << 20;

    /// Returns whether a file that begins with `start` may hold facts. No dump begins like this.
    pub fn may_be_stored(start: &[u8]) -> bool {
        start.starts_with(&ZSTD) || start.first() == Some(&b'{')
    }

    /// Reads a document.
    ///
    /// # Errors
    /// Fails if it is damaged, or no document of this version.
    pub fn from_stored(bytes: &[u8]) -> Result<Self, StoredError> {
        let mut text = Vec::new();
        let json = if bytes.starts_with(&ZSTD) {
            FrameDecompressor::new()?.decompress(bytes, &mut text, Self::MAX_BYTES as usize)?;
            text.as_slice()
        } else {
            bytes
        };
        let mut facts: Self = serde_json::from_slice(json).map_err(StoredError::Document)?;
        if facts.schema_version != SCHEMA_VERSION {
            return Err(StoredError::Version(facts.schema_version));
        }
        if facts.id.crash_id.len() != 32 || !facts.id.crash_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(StoredError::Id);
        }
        // Another spelling of the same ID would be another crash.
        facts.id.crash_id.make_ascii_lowercase();
        Ok(facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(version: u32, id: &str) -> Vec<u8> {
        let text = format!(
            r#"{{"schema_version": {version}, "extractor": "a test", "crash_id": "{id}", "id_weak": false, "crash_time": null,
            "host": null, "release": null, "version": null, "build_id": null, "arch": "x86_64", "cpus": 1, "memory_bytes": 0,
            "page_size": null, "crash": null, "missing": [], "log": []}}"#
        );
        text.into_bytes()
    }

    #[test]
    fn compressed_documents_are_read_as_plain_ones() {
        let plain = document(SCHEMA_VERSION, &"a".repeat(32));
        let mut compressed = Vec::new();
        pagehaul_codec::FrameCompressor::new(3).unwrap().compress(&plain, &mut compressed).unwrap();
        assert!(Facts::may_be_stored(&plain) && Facts::may_be_stored(&compressed));
        assert_eq!(Facts::from_stored(&plain).unwrap(), Facts::from_stored(&compressed).unwrap());
        compressed.truncate(compressed.len() / 2);
        assert!(matches!(Facts::from_stored(&compressed), Err(StoredError::Compressed(_))));
    }

    #[test]
    fn other_documents_are_refused() {
        let error = |bytes: &[u8]| Facts::from_stored(bytes).unwrap_err().to_string();
        assert!(error(b"{}").starts_with("it holds no facts: missing field"));
        assert!(error(&document(9, &"a".repeat(32))).contains("schema version 9"));
        assert!(error(&document(SCHEMA_VERSION, "../../etc/passwd")).contains("hexadecimal"));
        assert_eq!(
            Facts::from_stored(&document(SCHEMA_VERSION, &"A".repeat(32))).unwrap().id.crash_id,
            "a".repeat(32)
        );
        assert!(!Facts::may_be_stored(b"KDUMP   ") && !Facts::may_be_stored(b""));
    }
}
