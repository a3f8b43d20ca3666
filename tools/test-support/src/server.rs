//! A small HTTP server on the loopback interface that fails as tests want it to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Request {
    /// How many requests came before.
    pub number: usize,
    /// `GET` and so on.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// By lower-case name.
    pub headers: BTreeMap<String, String>,
    /// What follows the headers.
    pub body: Vec<u8>,
}

impl Request {
    /// The parameters of the query, as they were sent.
    pub fn query(&self) -> BTreeMap<&str, &str> {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        query.split('&').filter_map(|pair| pair.split_once('=')).collect()
    }
}

#[derive(Debug, Clone, Default)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Headers, without the length.
    pub headers: Vec<(String, String)>,
    /// What follows them.
    pub body: Vec<u8>,
    /// Bytes of the body after which the connection is closed.
    pub cut: Option<usize>,
    /// Time between two bytes of the body.
    pub drip: Option<Duration>,
}

impl Response {
    /// Answers with a status and a text.
    pub fn status(status: u16, body: &str) -> Self {
        Self { status, body: body.into(), ..Self::default() }
    }

    /// The part of `bytes` that a request asks for.
    pub fn range(request: &Request, bytes: &[u8], etag: &str) -> Self {
        let Some(range) = request.headers.get("range") else {
            return Self { status: 200, body: bytes.to_vec(), ..Self::default() };
        };
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        if first >= bytes.len() {
            return Self { status: 416, ..Self::default() };
        }
        let last = last.min(bytes.len() - 1);
        let content_range = format!("bytes {first}-{last}/{}", bytes.len());
        let mut headers = vec![("Content-Range".into(), content_range)];
        if !etag.is_empty() {
            headers.push(("ETag".into(), etag.into()));
        }
        Self { status: 206, headers, body: bytes[first..=last].to_vec(), ..Self::default() }
    }
}

/// A server that stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts a server that answers as `answer` says.
    pub fn start(answer: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stopped, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (answer, number) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        let (stop, seen) = (stopped.clone(), requests.clone());
        thread::spawn(move || {
            for connection in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (answer, number, seen) = (answer.clone(), number.clone(), seen.clone());
                thread::spawn(move || serve(connection.unwrap(), &*answer, &number, &seen));
            }
        });
        Self { address, stopped, requests }
    }

    /// The URL of a path on the server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    connection: TcpStream,
    answer: &dyn Fn(&Request) -> Response,
    number: &AtomicUsize,
    seen: &Mutex<Vec<Request>>,
) {
    // A client that leaves the connection open does not keep the thread.
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut writer = connection;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let mut words = line.split_ascii_whitespace().map(str::to_owned);
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        if headers.get("expect").is_some_and(|value| value == "100-continue") {
            let _ = writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let request =
            Request { number: number.fetch_add(1, Ordering::Relaxed), method, target, headers, body };
        seen.lock().unwrap().push(request.clone());
        let response = answer(&request);
        let mut head =
            format!("HTTP/1.1 {} Reason\r\nContent-Length: {}\r\n", response.status, response.body.len());
        for (name, value) in &response.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        let body: &[u8] = if request.method == "HEAD" { &[] } else { &response.body };
        let sent = &body[..response.cut.unwrap_or(body.len()).min(body.len())];
        let send = |writer: &mut TcpStream| match response.drip {
            None => writer.write_all(sent),
            Some(wait) => sent.iter().try_for_each(|byte| {
                thread::sleep(wait);
                writer.write_all(&[*byte])
            }),
        };
        if writer.write_all(head.as_bytes()).and_then(|()| send(&mut writer)).is_err()
            || response.cut.is_some()
        {
            return;
        }
    }
}
