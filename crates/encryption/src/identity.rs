//! Secret keys.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use pagehaul_physmem::OpenError;
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};
use zeroize::Zeroizing;

use crate::chunks::FileKey;
use crate::header::Stanza;
use crate::recipient::decode;
use crate::ssh;
use crate::wrap::{SshTag, unwrap};

/// Bytes that a file of identities may have.
const MOST: u64 = 1 << 20;

/// A secret key, which opens the files that are encrypted to its public one.
#[derive(Clone)]
pub struct Identity {
    secret: Zeroizing<[u8; 32]>,
    point: [u8; 32],
    ssh: Option<SshTag>,
}

impl Identity {
    /// Reads the identities in a file of `age-keygen`, or a private key of SSH without a passphrase.
    pub fn read(path: &Path) -> Result<Vec<Self>, OpenError> {
        let mut text = Zeroizing::new(String::new());
        let read = File::open(path).and_then(|file| file.take(MOST).read_to_string(&mut text));
        read.map_err(|source| OpenError::Io {
            path: path.to_owned(),
            action: "read the identity in",
            source,
        })?;
        Self::parse(&text)
            .map_err(|what| OpenError::Unsupported { path: path.to_owned(), what: what.to_owned() })
    }

    fn parse(text: &str) -> Result<Vec<Self>, &'static str> {
        if ssh::is_private(text) {
            let (secret, key) = ssh::parse_private(text)?;
            let point = x25519(*secret, X25519_BASEPOINT_BYTES);
            return Ok(vec![Self { secret, point, ssh: Some(SshTag::new(&ssh::public_key(&key))) }]);
        }
        if text.starts_with("age-encryption.org/") || text.starts_with("-----BEGIN AGE ENCRYPTED") {
            return Err("the identity is itself encrypted; decrypt it with `age -d` first");
        }
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let identities = lines.map(|line| {
            let secret = decode(line, "age-secret-key-").map(Zeroizing::new);
            let secret =
                secret.ok_or("expected secret keys (AGE-SECRET-KEY-1…), as `age-keygen` writes them")?;
            Ok(Self { point: x25519(*secret, X25519_BASEPOINT_BYTES), secret, ssh: None })
        });
        let identities = identities.collect::<Result<Vec<_>, &'static str>>()?;
        match identities.is_empty() {
            true => Err("the file has no secret key (AGE-SECRET-KEY-1…)"),
            false => Ok(identities),
        }
    }

    pub(crate) fn unwrap(&self, stanza: &Stanza) -> Option<FileKey> {
        unwrap(stanza, &self.secret, &self.point, self.ssh.as_ref())
    }
}
