//! Entries of systemd's journal, in the fields of systemd-coredump.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

/// What `coredumpctl` looks for (SD_MESSAGE_COREDUMP in <systemd/sd-messages.h>).
pub(super) const MESSAGE_ID: &str = "fc2e22bc6ee647b6b90729ab34a250b1";
/// How much an entry matters, as syslog(3) counts it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Priority {
    /// As systemd-coredump's entries.
    Critical = 2,
    Error = 3,
    Information = 6,
}

/// Maximum time that the journal may take to accept an entry.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where the message goes without a journal.
const KERNEL_LOG: &str = "/dev/kmsg";

/// An entry in the native protocol: a field a line, or with its length in front where its value has newlines
/// (docs/JOURNAL_NATIVE_PROTOCOL.md of systemd).
#[derive(Debug)]
pub(super) struct Entry {
    bytes: Vec<u8>,
    message: String,
    priority: u8,
}

impl Entry {
    /// An entry with this message.
    pub(super) fn new(priority: Priority, message: &str) -> Self {
        let priority = priority as u8;
        let mut this = Self { bytes: Vec::new(), message: message.to_owned(), priority };
        this.field("MESSAGE", message.as_bytes());
        this.field("PRIORITY", priority.to_string().as_bytes());
        this.field("SYSLOG_IDENTIFIER", b"pagehaul-core");
        this
    }

    /// Adds a field, unless it is empty.
    pub(super) fn field(&mut self, name: &str, value: &[u8]) {
        if value.is_empty() {
            return;
        }
        self.bytes.extend(name.as_bytes());
        if value.contains(&b'\n') {
            self.bytes.push(b'\n');
            self.bytes.extend((value.len() as u64).to_le_bytes());
        } else {
            self.bytes.push(b'=');
        }
        self.bytes.extend(value);
        self.bytes.push(b'\n');
    }

    /// Sends it to the journal's socket; its message to the kernel's log if there is no journal.
    pub(super) fn send(&self, socket: &Path) -> io::Result<()> {
        let sent = UnixDatagram::unbound().and_then(|datagram| {
            datagram.set_write_timeout(Some(PATIENCE))?;
            datagram.send_to(&self.bytes, socket).map(drop)
        });
        sent.or_else(|_| {
            // One write is one message; newlines would end it.
            let line = format!("<{}>pagehaul-core: {}\n", self.priority, self.message.replace('\n', " "));
            OpenOptions::new().write(true).open(KERNEL_LOG)?.write_all(line.as_bytes())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_newlines_have_their_length_in_front() {
        let mut entry = Entry::new(Priority::Critical, "a core");
        entry.field("ONE", b"1=2");
        entry.field("NONE", b"");
        entry.field("TWO", b"a\nbc");
        let expected = b"MESSAGE=a core\nPRIORITY=2\nSYSLOG_IDENTIFIER=pagehaul-core\nONE=1=2\nTWO\n\x04\0\0\0\0\0\0\0a\nbc\n";
        assert_eq!(entry.bytes, expected);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        entry.send(&path).unwrap();
        let mut received = [0; 200];
        let length = socket.recv(&mut received).unwrap();
        assert_eq!(&received[..length], expected);
    }
}
