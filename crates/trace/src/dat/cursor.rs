use crate::abi::Abi;
use crate::error::TraceError;
use crate::input::Input;

/// Decodes numbers and strings at increasing offsets of a file.
pub(super) struct Cursor<'a> {
    input: &'a Input,
    pub(super) at: u64,
    big_endian: bool,
}

/// Upper bound of a NUL-terminated string; texts with an explicit size may be longer.
const MAX_STRING: usize = 64 << 10;

impl<'a> Cursor<'a> {
    pub(super) fn new(input: &'a Input, at: u64, big_endian: bool) -> Self {
        Self { input, at, big_endian }
    }

    pub(super) fn set_big_endian(&mut self, big_endian: bool) {
        self.big_endian = big_endian;
    }

    pub(super) fn bytes(&mut self, len: u64, what: &str) -> Result<Vec<u8>, TraceError> {
        let bytes = self.input.read_exact_at(self.at, len, what)?;
        self.at += len;
        Ok(bytes)
    }

    pub(super) fn text(&mut self, len: u64, what: &str) -> Result<String, TraceError> {
        Ok(String::from_utf8_lossy(&self.bytes(len, what)?).into_owned())
    }

    fn number(&mut self, len: u64, what: &str) -> Result<u64, TraceError> {
        let bytes = self.bytes(len, what)?;
        let abi = Abi { big_endian: self.big_endian, long_size: 8 };
        abi.unsigned(&bytes)
            .ok_or_else(|| self.input.format_error(self.at, format!("{what} is not a number")))
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, TraceError> {
        self.number(1, what).map(|value| value as u8)
    }

    pub(super) fn u16(&mut self, what: &str) -> Result<u16, TraceError> {
        self.number(2, what).map(|value| value as u16)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, TraceError> {
        self.number(4, what).map(|value| value as u32)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, TraceError> {
        self.number(8, what)
    }

    /// Reads a NUL-terminated string.
    pub(super) fn string(&mut self, what: &str) -> Result<String, TraceError> {
        let mut text = Vec::new();
        let mut chunk = [0; 256];
        loop {
            let count = self.input.read_at(self.at + text.len() as u64, &mut chunk)?;
            let part = &chunk[..count];
            if let Some(end) = memchr::memchr(0, part) {
                text.extend_from_slice(&part[..end]);
                self.at += text.len() as u64 + 1;
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
            text.extend_from_slice(part);
            if part.is_empty() || text.len() > MAX_STRING {
                return Err(self.input.format_error(
                    self.at,
                    format!("{what} is not terminated: the file is truncated or damaged"),
                ));
            }
        }
    }

    /// Reads bytes that must equal `expected`.
    pub(super) fn expect(&mut self, expected: &str) -> Result<(), TraceError> {
        let at = self.at;
        let found = self.bytes(expected.len() as u64, expected)?;
        if found == expected.as_bytes() {
            return Ok(());
        }
        let found = String::from_utf8_lossy(&found).into_owned();
        Err(self.input.format_error(at, format!("expected {expected:?}, found {found:?}")))
    }

    /// Returns the number of bytes left.
    pub(super) fn left(&self) -> u64 {
        self.input.len().saturating_sub(self.at)
    }

    pub(super) fn format_error(&self, what: impl Into<String>) -> TraceError {
        self.input.format_error(self.at, what)
    }
}
