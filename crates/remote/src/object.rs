use std::ops::Range;

use pagehaul_run::{Patience, Retry, Stop};
use twox_hash::XxHash3_64;
use ureq::http::StatusCode;

use crate::answer::Reply;
use crate::client::Client;
use crate::error::RemoteError;
use crate::failure::Failure;
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
    patience: Patience,
    client: Client,
    size: u64,
    /// What identifies the contents: ETag, or time of modification.
    version: String,
    /// Checksum of the first bytes, which identifies the contents if nothing else does.
    first: Option<u64>,
}

impl Object {
    /// Opens an object. Returns its first bytes, too.
    pub(crate) fn open(url: &str) -> Opened {
        Self::open_within(url, Patience::READ)
    }

    /// As [`open`](Self::open). Requests are tried again for `patience`.
    fn open_within(url: &str, patience: Patience) -> Opened {
        let location = Location::parse(url)?;
        let client = Client::new(&location, patience, Stop::default())?;
        let mut retry = client.retry();
        let reply = client.get(0, FIRST, &mut retry)?;
        let version = version(&reply).to_owned();
        let size = match content_range(&reply) {
            Some((0, size)) if reply.status == StatusCode::PARTIAL_CONTENT => size,
            _ if reply.status == StatusCode::RANGE_NOT_SATISFIABLE && may_be_empty(&reply) => 0,
            _ if reply.status == StatusCode::OK && reply.body.is_empty() => 0,
            _ => return Err(no_ranges()),
        };
        let mut object = Self { location, patience, client, size, version, first: None };
        let mut first = reply.body;
        object.complete(0..FIRST.min(size), &mut first, &mut retry)?;
        object.first = object.version.is_empty().then(|| XxHash3_64::oneshot(&first));
        Ok((object, first))
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Fetches what `bytes` lacks of a range.
    fn complete(&self, range: Range<u64>, bytes: &mut Vec<u8>, retry: &mut Retry) -> Result<(), RemoteError> {
        while (bytes.len() as u64) < range.end - range.start {
            let start = range.start + bytes.len() as u64;
            let reply = self.client.get(start, range.end, retry)?;
            if reply.status != StatusCode::PARTIAL_CONTENT {
                return Err(if reply.status == StatusCode::OK { no_ranges() } else { RemoteError::Changed });
            }
            if content_range(&reply) != Some((start, self.size)) || version(&reply) != self.version {
                return Err(RemoteError::Changed);
            }
            bytes.extend_from_slice(&reply.body);
            // A body that is cut again and again, but each time further on, is only slow.
            let is_stuck = reply.body.is_empty() || retry.is_over();
            if is_stuck && (bytes.len() as u64) < range.end - range.start {
                let why = reply.cut.unwrap_or_else(|| "it is empty".to_owned());
                self.client.wait(Failure::transient(format!("the answer breaks off: {why}")), retry, None)?;
            }
        }
        Ok(())
    }

    /// Fails if the object is another one by its first bytes, where the server does not say which version it is.
    fn check(&self) -> Result<(), RemoteError> {
        let Some(first) = self.first else { return Ok(()) };
        let mut bytes = Vec::new();
        self.complete(0..FIRST.min(self.size), &mut bytes, &mut self.client.retry())?;
        if XxHash3_64::oneshot(&bytes) == first { Ok(()) } else { Err(RemoteError::Changed) }
    }
}

impl Ranges for Object {
    fn fetch(&self, range: Range<u64>) -> Result<Vec<u8>, RemoteError> {
        let mut bytes = Vec::new();
        self.complete(range, &mut bytes, &mut self.client.retry())?;
        // Afterwards: what was there before may have gone meanwhile.
        self.check()?;
        Ok(bytes)
    }

    fn renew(&self) -> Result<Box<dyn Ranges>, RemoteError> {
        let (location, patience) = (self.location.clone(), self.patience);
        let client = Client::new(&location, patience, Stop::default())?;
        let (size, version, first) = (self.size, self.version.clone(), self.first);
        Ok(Box::new(Self { location, patience, client, size, version, first }))
    }
}

/// Whether an answer without a range says nothing else about the size than that it is 0.
fn may_be_empty(reply: &Reply) -> bool {
    ["", "bytes */0"].contains(&reply.header("content-range"))
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

pub(crate) fn parse_content_range(text: &str) -> Option<(u64, u64)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, size) = (first.parse().ok()?, last.parse::<u64>().ok()?, size.parse().ok()?);
    // Offsets of files are signed.
    (first <= last && last < size && i64::try_from(size).is_ok()).then_some((first, size))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use pagehaul_test_support::server::{Response, Server};

    fn sample(size: usize) -> Vec<u8> {
        (0..size).map(|at| ((at / 3) ^ (at >> 8)) as u8).collect()
    }

    /// Opens the one object of a server, and fetches all of it.
    fn fetch_all(server: &Server, patience: Duration) -> Result<Vec<u8>, RemoteError> {
        let (object, first) = Object::open_within(&server.url("/dump"), Patience::of(patience))?;
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
        let (object, _) = Object::open_within(&server.url("/dump"), Patience::of(Duration::ZERO)).unwrap();
        for _ in 0..3 {
            assert!(matches!(object.fetch(20_000..30_000), Err(RemoteError::Unreachable(_))));
        }
        assert_eq!(server.requests().len(), 2);
    }

    #[test]
    fn an_object_without_a_version_is_known_by_its_first_bytes() {
        for is_replaced in [false, true] {
            let server = Server::start(move |request| {
                let mut bytes = sample(100_000);
                bytes[10] ^= u8::from(is_replaced && request.number > 0);
                Response::range(request, &bytes, "")
            });
            let expected = if is_replaced { Err(RemoteError::Changed) } else { Ok(sample(100_000)) };
            assert_eq!(fetch_all(&server, Duration::ZERO), expected);
        }
    }

    #[test]
    fn a_body_that_drips_is_given_up() {
        let server = Server::start(|request| Response {
            drip: Some(Duration::from_millis(10)),
            ..Response::range(request, &sample(100_000), "v1")
        });
        let error = fetch_all(&server, Duration::from_millis(300)).unwrap_err().to_string();
        assert!(error.contains("less than 1 KiB per second"), "{error}");
    }

    #[test]
    fn empty_answers_are_tried_again_for_as_long_as_others() {
        let bytes = sample(100_000);
        let expected = bytes.clone();
        let server = Server::start(move |request| {
            let is_empty = (1..=5).contains(&request.number);
            Response { cut: is_empty.then_some(0), ..Response::range(request, &bytes, "v1") }
        });
        assert!(fetch_all(&server, Duration::from_secs(20)).unwrap() == expected);
    }

    #[test]
    fn only_bytes_of_the_file_are_taken() {
        for (coding, is_taken) in
            [("identity", true), ("aws-chunked", true), ("gzip", false), ("identity, zstd", false)]
        {
            let server = Server::start(move |request| {
                let mut response = Response::range(request, &sample(1000), "v1");
                response.headers.push(("Content-Encoding".into(), coding.into()));
                response
            });
            match fetch_all(&server, Duration::ZERO) {
                Ok(bytes) => assert!(is_taken && bytes == sample(1000), "{coding}"),
                Err(error) => assert!(!is_taken && error.to_string().contains(coding), "{error}"),
            }
            assert!(server.requests().iter().all(|request| request.headers["accept-encoding"] == "identity"));
        }
    }

    #[test]
    fn redirects_are_followed_a_few_times() {
        let server = Server::start(|request| match request.target.as_str() {
            "/end" => Response::range(request, &sample(100_000), "v1"),
            target => Response {
                status: 302,
                headers: vec![("Location".into(), if target == "/dump" { "/end" } else { target }.into())],
                ..Response::default()
            },
        });
        assert_eq!(fetch_all(&server, Duration::ZERO), Ok(sample(100_000)));
        let looping = Server::start(|request| Response {
            status: 307,
            headers: vec![("Location".into(), request.target.clone())],
            ..Response::default()
        });
        let error = fetch_all(&looping, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("too many redirects") && looping.requests().len() == 11, "{error}");
    }

    #[test]
    fn headers_without_end_are_explained() {
        let server = Server::start(|_| Response {
            status: 206,
            headers: vec![("X-Bomb".into(), "x".repeat(1 << 20))],
            ..Response::default()
        });
        let error = fetch_all(&server, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("the headers of the answer take more than"), "{error}");
    }

    #[test]
    fn an_answer_without_a_range_is_no_empty_object() {
        let server = Server::start(|_| Response {
            status: 416,
            headers: vec![("Content-Range".into(), "bytes */1000".into())],
            ..Response::default()
        });
        assert!(fetch_all(&server, Duration::ZERO).is_err());
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
