//! Fills kernel memory, which every dump must keep: pipe buffers and System V messages.

use super::Held;
use crate::Result;
use crate::pages::page_size;
use crate::system::check;
use lab_guest::Class;
use lab_guest::results::Filled;
use lab_guest::stamp::{self, Stamp};
use std::io::{PipeReader, PipeWriter, Write};

/// Both ends of a pipe that is never read.
pub struct Pipe {
    _reader: PipeReader,
    _writer: PipeWriter,
}

/// Pages that a pipe of the default size holds.
const PIPE_PAGES: usize = 16;

/// Fills pipes page by page.
pub fn pipes(bytes: usize, held: &mut Held) -> Result<Filled> {
    let mut page = vec![0; page_size()];
    let mut sequence = 0;
    for _ in 0..bytes / page.len() / PIPE_PAGES {
        let (reader, mut writer) = std::io::pipe().map_err(|e| format!("pipe: {e}"))?;
        for _ in 0..PIPE_PAGES {
            stamp::fill(&mut page, Stamp { class: Class::Pipe, sequence });
            writer.write_all(&page).map_err(|e| format!("writing to a pipe: {e}"))?;
            sequence += 1;
        }
        held.pipes.push(Pipe { _reader: reader, _writer: writer });
    }
    Ok(Filled { class: Class::Pipe, count: sequence, ranges: Vec::new() })
}

/// Size of a message in bytes: with its header it fits a slab object of 2 KiB.
pub const MESSAGE: usize = 1536;

/// Sends messages to queues that are never read, until `bytes` are used or the queues are full.
pub fn messages(bytes: usize) -> Result<Filled> {
    #[repr(C)]
    struct Message {
        kind: libc::c_long,
        text: [u8; MESSAGE],
    }
    let mut sequence = 0;
    let mut message = Message { kind: 1, text: [0; MESSAGE] };
    while sequence < (bytes / MESSAGE) as u64 {
        // SAFETY: no memory is passed.
        let queue = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600 | libc::IPC_CREAT) };
        check(queue.into(), "msgget")?;
        let first = sequence;
        loop {
            stamp::fill(&mut message.text, Stamp { class: Class::Message, sequence });
            // SAFETY: a message of MESSAGE bytes after its type, as declared above.
            let sent = unsafe { libc::msgsnd(queue, (&raw const message).cast(), MESSAGE, libc::IPC_NOWAIT) };
            if sent != 0 {
                break;
            }
            sequence += 1;
        }
        if sequence == first {
            return Err(format!("msgsnd: {}", std::io::Error::last_os_error()));
        }
    }
    Ok(Filled { class: Class::Message, count: sequence, ranges: Vec::new() })
}
