//! Secret keys.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use pagehaul_physmem::OpenError;
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};
use zeroize::Zeroizing;

use crate::chunks::FileKey;
use crate::header::Stanza;
use crate::recipient::decode;
use crate::ssh;
use crate::text::read_text;
use crate::wrap::{SshTag, unwrap};

/// The name of standard input.
const STDIN: &str = "-";

/// A secret key, which opens the files that are encrypted to its public one.
#[derive(Clone)]
pub struct Identity {
    secret: Zeroizing<[u8; 32]>,
    point: [u8; 32],
    ssh: Option<SshTag>,
}

impl Identity {
    /// Reads the identities in a file of `age-keygen`, or a private key of SSH without a passphrase. `-` is standard input.
    pub fn read(path: &Path) -> Result<Vec<Self>, OpenError> {
        if path.to_str().is_some_and(|name| name.to_ascii_uppercase().starts_with("AGE-SECRET-KEY-")) {
            // Not repeated where logs are.
            let what =
                "expected the name of a file, or `-`: a secret key on a command line is seen by other users";
            return Err(OpenError::Unsupported { path: "the identity".into(), what: what.into() });
        }
        let is_stdin = path == Path::new(STDIN);
        let opened = match is_stdin {
            // Its own reader would keep the key in a buffer.
            true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
            false => File::open(path),
        };
        let path = if is_stdin { Path::new("standard input") } else { path };
        let text = opened.and_then(read_text).map_err(|source| OpenError::Io {
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
