//! Private keys, as far as ssh takes them without asking.

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::root::Root;

/// Why ssh does not use a key in a capture kernel, where it cannot ask. `None` if nothing is wrong with it, as far as its bytes
/// show.
pub(crate) fn fault(root: &Root, key: &Path) -> Option<String> {
    let path = key.display();
    let found = root.stat(key)?;
    if found.st_mode & 0o077 != 0 {
        let mode = found.st_mode & 0o777;
        return Some(format!("{path} has mode {mode:04o}: ssh ignores a key that others can read"));
    }
    let text = match root.read(key) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        // Without root it cannot be read, which says nothing.
        Err(_) => return None,
    };
    if !text.contains("PRIVATE KEY-----") {
        return Some(format!("{path} holds no private key"));
    }
    is_encrypted(&text)
        .then(|| format!("{path} has a passphrase, which cannot be entered in a capture kernel"))
}

/// Whether a key has a passphrase: PEM of OpenSSL and PKCS #8 say so in words, OpenSSH (PROTOCOL.key) by the name of a cipher.
fn is_encrypted(text: &str) -> bool {
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return true;
    }
    let Some((_, body)) = text.split_once("-----BEGIN OPENSSH PRIVATE KEY-----") else { return false };
    let body: String = body.lines().take_while(|line| !line.starts_with('-')).collect();
    let Ok(bytes) = BASE64_STANDARD.decode(body.trim()) else { return false };
    // The length of the name comes first.
    bytes
        .strip_prefix(b"openssh-key-v1\0")
        .and_then(|rest| rest.get(4..))
        .is_some_and(|rest| !rest.starts_with(b"none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passphrases_are_known() {
        let key = |cipher: &str| {
            let bytes = [b"openssh-key-v1\0\0\0\0\x04", cipher.as_bytes(), b"\0\0\0\0"].concat();
            let body = BASE64_STANDARD.encode(bytes);
            format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n")
        };
        assert!(!is_encrypted(&key("none")) && is_encrypted(&key("aes256-ctr")));
        assert!(is_encrypted("-----BEGIN ENCRYPTED PRIVATE KEY-----\nx\n"));
        assert!(is_encrypted("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"));
        assert!(!is_encrypted("-----BEGIN RSA PRIVATE KEY-----\nMII\n"));
    }
}
