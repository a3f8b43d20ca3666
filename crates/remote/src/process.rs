//! Fetching by another process, so that the one that parses a dump needs neither network nor credentials.
//!
//! The process is forked before its parent confines itself, serves the URLs named then and no others, and ends with its parent.
//! A request is the number of a URL and a range; a response is a kind, a length, and that many bytes: those of the range, why there
//! are none, or a notice, which another response follows.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread;

use crate::client::MAX_REQUESTS;
use crate::error::RemoteError;
use crate::notice;
use crate::object::{Object, Opened, Ranges};

/// Kinds of responses; the others are errors.
const BYTES: u8 = 0;
const NOTICE: u8 = 255;
/// Bytes of a response at most: more than any range that is asked for.
const MAX_RESPONSE: u64 = 256 << 20;

/// The process that fetches, once there is one.
static FETCHER: OnceLock<Fetcher> = OnceLock::new();

struct Fetcher {
    urls: Vec<String>,
    idle: Mutex<Vec<UnixStream>>,
    returned: Condvar,
}

/// Starts a process that fetches the URLs among `paths` for this one; does nothing if there are none.
///
/// Must precede the first thread of the process. Afterwards [`RemoteFile::open`](crate::RemoteFile::open) needs no network for
/// these URLs.
pub fn fetch_in_another_process(paths: &[PathBuf]) -> io::Result<()> {
    let urls: Vec<String> = paths
        .iter()
        .filter(|path| pagehaul_physmem::file::is_url(path))
        .filter_map(|path| path.to_str().map(str::to_owned))
        .collect();
    if urls.is_empty() || FETCHER.get().is_some() {
        return Ok(());
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..MAX_REQUESTS {
        let (one, other) = UnixStream::pair()?;
        ours.push(one);
        theirs.push(other);
    }
    let parent = std::process::id();
    // SAFETY: the caller has no other thread, so that the child finds no lock taken.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            serve(&urls, theirs, parent);
            // SAFETY: ends the process, without the exit handlers of its parent.
            unsafe { libc::_exit(0) }
        }
        _ => {
            let _ = FETCHER.set(Fetcher { urls, idle: Mutex::new(ours), returned: Condvar::new() });
            Ok(())
        }
    }
}

/// Serves every connection until its other end is closed.
fn serve(urls: &[String], connections: Vec<UnixStream>, parent: u32) {
    // A thread that waits for a server does not see that the parent is gone. The parent, of the same user, must not read the
    // credentials in the memory and environment of this process (/proc/PID).
    // SAFETY: no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
    }
    if std::os::unix::process::parent_id() != parent {
        return;
    }
    // The readers of the parent's output wait until nobody has it open.
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        for fd in 0..3 {
            // SAFETY: both descriptors are this process's; what they were is not used again.
            unsafe { libc::dup2(null.as_raw_fd(), fd) };
        }
    }
    let objects: Vec<OnceLock<Opened>> = urls.iter().map(|_| OnceLock::new()).collect();
    thread::scope(|scope| {
        for mut connection in connections {
            let objects = &objects;
            let _ = thread::Builder::new().spawn_scoped(scope, move || {
                if let Ok(mut parent) = connection.try_clone() {
                    notice::send_to(move |text| drop(send(&mut parent, NOTICE, text.as_bytes())));
                }
                while let Ok((index, range)) = receive(&mut connection) {
                    let Some((url, object)) = urls.get(index).zip(objects.get(index)) else { return };
                    let opened =
                        object.get_or_init(|| Object::open(url)).as_ref().map_err(RemoteError::clone);
                    let response = opened.and_then(|(object, first)| match range.is_empty() {
                        true => Ok([&object.size().to_le_bytes()[..], first].concat()),
                        false => object.fetch(range),
                    });
                    if respond(&mut connection, response).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

fn receive(connection: &mut UnixStream) -> io::Result<(usize, Range<u64>)> {
    let mut number = || {
        let mut bytes = [0; 8];
        connection.read_exact(&mut bytes)?;
        Ok::<_, io::Error>(u64::from_le_bytes(bytes))
    };
    Ok((number()? as usize, number()?..number()?))
}

fn respond(connection: &mut UnixStream, response: Result<Vec<u8>, RemoteError>) -> io::Result<()> {
    let (kind, bytes) = match response {
        Ok(bytes) => (BYTES, bytes),
        Err(error) => {
            let kind = match &error {
                RemoteError::Settings(_) => 1,
                RemoteError::NotFound(_) => 2,
                RemoteError::Denied(_) => 3,
                RemoteError::Unsupported(_) => 4,
                RemoteError::Changed => 5,
                RemoteError::Unreachable(_) => 6,
                RemoteError::Undefined(_) => 7,
            };
            (kind, error.to_string().into_bytes())
        }
    };
    send(connection, kind, &bytes)
}

fn send(connection: &mut UnixStream, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let mut head = [0; 9];
    head[0] = kind;
    head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    connection.write_all(&head)?;
    connection.write_all(bytes)
}

/// An object that the other process fetches.
pub(crate) struct Elsewhere {
    fetcher: &'static Fetcher,
    index: usize,
}

/// An object that the other process has opened, its size, and its first bytes.
type OpenedElsewhere = (Elsewhere, u64, Vec<u8>);

/// Opens a URL that another process fetches. Returns its size and first bytes, too; `None` if no process fetches it.
pub(crate) fn open(url: &str) -> Option<Result<OpenedElsewhere, RemoteError>> {
    let fetcher = FETCHER.get()?;
    let index = fetcher.urls.iter().position(|known| known == url)?;
    let opened = fetcher.ask(index, 0..0).and_then(|mut response| {
        let first = if response.len() < 8 { return Err(ended()) } else { response.split_off(8) };
        let size = u64::from_le_bytes(response.try_into().map_err(|_| ended())?);
        Ok((Elsewhere { fetcher, index }, size, first))
    });
    Some(opened)
}

impl Ranges for Elsewhere {
    fn fetch(&self, range: Range<u64>) -> Result<Vec<u8>, RemoteError> {
        let wanted = range.end - range.start;
        let bytes = self.fetcher.ask(self.index, range)?;
        if bytes.len() as u64 == wanted { Ok(bytes) } else { Err(ended()) }
    }

    fn renew(&self) -> Result<Box<dyn Ranges>, RemoteError> {
        Err(RemoteError::Unreachable("the process that fetches it serves only its parent".to_owned()))
    }
}

impl Fetcher {
    fn ask(&self, index: usize, range: Range<u64>) -> Result<Vec<u8>, RemoteError> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connection = loop {
            match idle.pop() {
                Some(connection) => break connection,
                None => idle = self.returned.wait(idle).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(idle);
        let response = exchange(&mut connection, index, range);
        // One that failed fails again: nobody waits for it in vain.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        self.returned.notify_one();
        let (kind, bytes) = response.map_err(|_| ended())?;
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        Err(match kind {
            BYTES => return Ok(bytes),
            1 => RemoteError::Settings(text()),
            2 => RemoteError::NotFound(text()),
            3 => RemoteError::Denied(text()),
            4 => RemoteError::Unsupported(text()),
            5 => RemoteError::Changed,
            7 => RemoteError::Undefined(text()),
            _ => RemoteError::Unreachable(text()),
        })
    }
}

fn exchange(connection: &mut UnixStream, index: usize, range: Range<u64>) -> io::Result<(u8, Vec<u8>)> {
    let request = [index as u64, range.start, range.end].map(u64::to_le_bytes).concat();
    connection.write_all(&request)?;
    loop {
        match receive_response(connection)? {
            (NOTICE, text) => notice::tell(&String::from_utf8_lossy(&text)),
            response => return Ok(response),
        }
    }
}

fn receive_response(connection: &mut UnixStream) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    connection.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    let length = u64::from_le_bytes(length);
    if length > MAX_RESPONSE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    connection.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok((kind, bytes)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn ended() -> RemoteError {
    RemoteError::Unreachable("the process that fetches it has ended".to_owned())
}
