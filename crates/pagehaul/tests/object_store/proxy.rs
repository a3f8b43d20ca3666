//! A proxy on the loopback interface that stands for a network with faults.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The connection breaks after so many bytes of the request's body.
    Cut(usize),
    /// The server answers, but the connection breaks before.
    LostAnswer,
    /// A byte of the body changes on its way.
    Changed,
    /// Something between answers 503.
    Refused,
    /// The link is slow: 16 MB/s at most.
    Slow,
}

/// A proxy that stops when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

type Decide = Mutex<Box<dyn FnMut(&str) -> Fault + Send>>;

impl Proxy {
    /// Starts a proxy of a server. `decide` gets the first line of each request.
    pub fn start(server: SocketAddr, decide: impl FnMut(&str) -> Fault + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        let decide: Arc<Decide> = Arc::new(Mutex::new(Box::new(decide)));
        thread::spawn(move || {
            for connection in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let decide = decide.clone();
                // What breaks here is a fault like the others.
                thread::spawn(move || connection.and_then(|client| relay(client, server, &decide)));
            }
        });
        Self { address, stopped }
    }

    /// The address of the store behind it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
    }
}

/// Relays one request and its answer.
fn relay(client: TcpStream, server: SocketAddr, decide: &Decide) -> io::Result<()> {
    let limit = Some(Duration::from_secs(60));
    client.set_read_timeout(limit)?;
    let mut from = BufReader::new(client.try_clone()?);
    let mut to = client;
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let start = head.len();
        if from.read_line(&mut head)? == 0 {
            return Ok(());
        }
        if let Some(value) = head[start..].to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let line = head.lines().next().unwrap();
    let fault = (decide.lock().unwrap())(line);
    if fault == Fault::Refused {
        let body = "<Error><Code>SlowDown</Code></Error>";
        return write!(
            to,
            "HTTP/1.1 503 Slow\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
    }
    let mut upstream = TcpStream::connect(server)?;
    upstream.set_read_timeout(limit)?;
    // A connection for each request: the answer ends with it.
    head.insert_str(line.len() + 2, "Connection: close\r\n");
    upstream.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    if head.to_ascii_lowercase().contains("expect: 100-continue") {
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            upstream.read_exact(&mut byte)?;
            answer.extend(byte);
        }
        to.write_all(&answer)?;
        if !answer.starts_with(b"HTTP/1.1 100") {
            io::copy(&mut upstream, &mut to)?;
            return to.shutdown(Shutdown::Both);
        }
        answer.clear();
    }
    let mut body = from.take(length);
    let (mut sent, mut piece) = (0, [0; 16 << 10]);
    loop {
        let count = body.read(&mut piece)?;
        if let Fault::Cut(at) = fault
            && sent + count >= at
        {
            upstream.write_all(&piece[..at - sent])?;
            upstream.shutdown(Shutdown::Both)?;
            return to.shutdown(Shutdown::Both);
        }
        if count == 0 {
            break;
        }
        match fault {
            Fault::Changed if sent == 0 => piece[0] ^= 1,
            Fault::Slow => thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
        upstream.write_all(&piece[..count])?;
        sent += count;
    }
    upstream.read_to_end(&mut answer)?;
    if fault != Fault::LostAnswer {
        to.write_all(&answer)?;
    }
    to.shutdown(Shutdown::Both)
}
