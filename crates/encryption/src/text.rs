//! Files of keys.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Read};

use zeroize::Zeroizing;

/// Bytes that a file of keys may have: far more than the 256 recipients of a file take.
const MOST: u64 = 1 << 20;

/// What editors on Windows put before a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads all of a file of keys. A larger one is an error: keys may be behind what is read.
pub(crate) fn read_text(file: File) -> io::Result<Zeroizing<String>> {
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(MOST + 1).read_to_end(&mut bytes)?;
    check_size(&bytes)?;
    let text = str::from_utf8(&bytes);
    let text =
        text.map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8; expected a key a line"))?;
    Ok(Zeroizing::new(without_mark(text).to_owned()))
}

pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Fails for more bytes than a file of keys may have.
pub(crate) fn check_size(bytes: &[u8]) -> io::Result<()> {
    match bytes.len() as u64 > MOST {
        true => Err(Error::new(ErrorKind::FileTooLarge, "it is larger than 1 MiB; expected a key a line")),
        false => Ok(()),
    }
}
