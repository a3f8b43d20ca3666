use std::ops::Range;
use std::time::Duration;

use ureq::http::StatusCode;

use crate::RemoteError;
use crate::answer::Reply;
use crate::client::{Client, PATIENCE};
use crate::location::Location;

/// Bytes that opening an object fetches: headers of a dump are in them.
const FIRST: u64 = 16 << 10;

/// The bytes of an object, fetched by ranges.
pub(crate) trait Ranges: Send + Sync {
    /// Returns the bytes of a range, which is not empty and ends within the object.
    fn fetch(&self, range: Range<u64>) -> Result<Vec<u8>, RemoteError>;

    /// Returns the same object for a process that was forked from the one that opened it.
    fn renew(&self) -> Result<Box<dyn Ranges>, RemoteError>;
}

/// What opening an object returns: it, and its first bytes.
pub(crate) type Opened = Result<(Object, Vec<u8>), RemoteError>;

/// An object of a server.
pub(crate) struct Object {
    location: Location,
    patience: Duration,
    client: Client,
    size: u64,
    /// What identifies the contents: ETag, or time of modification.
    version: String,
}

impl Object {
    /// Opens an object. Returns its first bytes, too.
    pub(crate) fn open(url: &str) -> Opened {
        Self::open_within(url, PATIENCE)
    }

    /// As [`open`](Self::open). Requests are tried again for `patience`.
    fn open_within(url: &str, patience: Duration) -> Opened {
        let location = Location::parse(url)?;
        let client = Client::new(&location, patience)?;
        let reply = client.get(0, FIRST)?;
        let version = version(&reply).to_owned();
        let size = match content_range(&reply) {
            Some((0, size)) if reply.status == StatusCode::PARTIAL_CONTENT => size,
            _ if reply.status == StatusCode::RANGE_NOT_SATISFIABLE => 0,
            _ if reply.status == StatusCode::OK && reply.body.is_empty() => 0,
            _ => return Err(no_ranges()),
        };
        let object = Self { location, patience, client, size, version };
        let mut first = reply.body;
        object.complete(0..FIRST.min(size), &mut first)?;
        Ok((object, first))
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Fetches what `bytes` lacks of a range.
    fn complete(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> Result<(), RemoteError> {
        let mut stalls = 0;
        while (bytes.len() as u64) < range.end - range.start {
            let start = range.start + bytes.len() as u64;
            let reply = self.client.get(start, range.end)?;
            if reply.status != StatusCode::PARTIAL_CONTENT {
                return Err(if reply.status == StatusCode::OK { no_ranges() } else { RemoteError::Changed });
            }
            if content_range(&reply) != Some((start, self.size)) || version(&reply) != self.version {
                return Err(RemoteError::Changed);
            }
            // A body that is cut again and again, but each time further on, is only slow.
            stalls = if reply.body.is_empty() { stalls + 1 } else { 0 };
            if stalls == 5 {
                let why = reply.cut.unwrap_or_else(|| "it is empty".to_owned());
                return Err(RemoteError::Unreachable(format!("the answer breaks off: {why}")));
            }
            bytes.extend_from_slice(&reply.body);
        }
        Ok(())
    }
}

impl Ranges for Object {
    fn fetch(&self, range: Range<u64>) -> Result<Vec<u8>, RemoteError> {
        let mut bytes = Vec::new();
        self.complete(range, &mut bytes)?;
        Ok(bytes)
    }

    fn renew(&self) -> Result<Box<dyn Ranges>, RemoteError> {
        let (location, patience) = (self.location.clone(), self.patience);
        let client = Client::new(&location, patience)?;
        Ok(Box::new(Self { location, patience, client, size: self.size, version: self.version.clone() }))
    }
}

fn no_ranges() -> RemoteError {
    RemoteError::Unsupported(
        "the server ignores ranges of bytes; download the file, then name the copy".to_owned(),
    )
}

fn version(reply: &Reply) -> &str {
    match reply.header("etag") {
        "" => reply.header("last-modified"),
        etag => etag,
    }
}

/// Returns the first byte and the object's size out of `Content-Range: bytes 0-99/1000`.
fn content_range(reply: &Reply) -> Option<(u64, u64)> {
    parse_content_range(reply.header("content-range"))
}

fn parse_content_range(text: &str) -> Option<(u64, u64)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, size) = (first.parse().ok()?, last.parse::<u64>().ok()?, size.parse().ok()?);
    // Offsets of files are signed.
    (first <= last && last < size && i64::try_from(size).is_ok()).then_some((first, size))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::server::{Response, Server};

    fn sample(size: usize) -> Vec<u8> {
        (0..size).map(|at| ((at / 3) ^ (at >> 8)) as u8).collect()
    }

    /// Opens the one object of a server, and fetches all of it.
    fn fetch_all(server: &Server, patience: Duration) -> Result<Vec<u8>, RemoteError> {
        let (object, first) = Object::open_within(&server.url("/dump"), patience)?;
        if object.size() == 0 {
            return Ok(first);
        }
        object.fetch(0..object.size())
    }

    #[test]
    fn faults_that_pass_change_nothing() {
        let bytes = sample(100_000);
        let expected = bytes.clone();
        let server = Server::start(move |request| {
            let mut response = Response::range(request, &bytes, "v1");
            match request.number {
                // In the middle of the first answer, in later ones, and before the first byte.
                0 => response.cut = Some(5_000),
                2 => return Response::status(503, "<Error><Code>SlowDown</Code></Error>"),
                3 => response.cut = Some(60_000),
                4 => response.cut = Some(0),
                5 => return Response::status(500, ""),
                _ => {}
            }
            response
        });
        assert!(fetch_all(&server, Duration::from_secs(60)).unwrap() == expected);
        // What came before a cut is not fetched again.
        let ranges: Vec<_> =
            server.requests().iter().map(|request| request.headers["range"].clone()).collect();
        assert_eq!(ranges[1], "bytes=5000-16383");
        assert_eq!(ranges[4..], ["bytes=60000-99999"; 3]);
    }

    #[test]
    fn an_object_that_is_replaced_is_an_error() {
        for change in ["etag", "size"] {
            let server = Server::start(move |request| {
                let later = request.number > 0;
                let etag = if later && change == "etag" { "v2" } else { "v1" };
                let size = if later && change == "size" { 90_000 } else { 100_000 };
                Response::range(request, &sample(size), etag)
            });
            assert_eq!(fetch_all(&server, Duration::ZERO), Err(RemoteError::Changed), "{change}");
        }
    }

    #[test]
    fn answers_that_stay_wrong_are_explained() {
        let cases: [(u16, &str, &str); 5] = [
            (404, "", "404 Not Found"),
            (403, "<Error><Code>AccessDenied</Code></Error>", "AccessDenied: the URL needs credentials"),
            (200, "not a range", "ignores ranges"),
            (503, "<Error><Code>SlowDown</Code></Error>", "SlowDown; gave up at try 1"),
            (400, "", "400 Bad Request"),
        ];
        for (status, body, expected) in cases {
            let server = Server::start(move |_| Response::status(status, body));
            let error = fetch_all(&server, Duration::ZERO).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_server_that_is_gone_is_given_up_once() {
        let bytes = sample(100_000);
        let server = Server::start(move |request| match request.number {
            0 => Response::range(request, &bytes, "v1"),
            _ => Response::status(500, ""),
        });
        let (object, _) = Object::open_within(&server.url("/dump"), Duration::ZERO).unwrap();
        for _ in 0..3 {
            assert!(matches!(object.fetch(20_000..30_000), Err(RemoteError::Unreachable(_))));
        }
        assert_eq!(server.requests().len(), 2);
    }

    #[test]
    fn an_empty_object_has_no_bytes() {
        let server = Server::start(|request| Response::range(request, &[], "v1"));
        assert_eq!(fetch_all(&server, Duration::ZERO), Ok(Vec::new()));
    }

    #[test]
    fn content_ranges_are_parsed() {
        assert_eq!(parse_content_range("bytes 0-99/1000"), Some((0, 1000)));
        for wrong in ["", "bytes */1000", "bytes 0-1000/1000", "bytes 2-1/1000", "bytes 0-9/*", "0-9/10"] {
            assert_eq!(parse_content_range(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_content_range_is_parsed_or_not(text in "(bytes )?[0-9*/-]{0,30}") {
            if let Some((first, size)) = parse_content_range(&text) {
                prop_assert!(first < size);
            }
        }
    }
}
