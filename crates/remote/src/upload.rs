//! Uploads of streams to object stores, in parts: what was uploaded before a connection or a process ended is not sent again.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, Digest, checksum};
use rusty_s3::Method;

use crate::RemoteError;
use crate::call::Call;
use crate::client::{Client, Reply};
use crate::location::Location;
use crate::xml::{element, elements};

/// How long requests are tried again: a network that comes back, or a store that is restarted, does not cost the dump.
const PATIENCE: Duration = Duration::from_secs(600);
/// Bytes of a part, at least.
const PART: u64 = 8 << 20;
/// Parts in memory: one is uploaded while the next one is read.
const IN_MEMORY: u64 = 2;
/// Parts of an object at most.
const MOST_PARTS: u64 = 10_000;
/// Bytes of a part at most.
const MOST_PART: u64 = 256 << 20;

/// What an upload did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uploaded {
    /// Bytes of the object.
    pub bytes: u64,
    /// Bytes of parts that an earlier, unfinished upload had left in the store.
    pub resumed: u64,
}

/// An upload that has begun.
pub struct Upload {
    client: Client,
    id: String,
    /// Parts in the store, by number.
    there: BTreeMap<u64, Part>,
    part_size: u64,
}

/// A part in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    size: u64,
    checksum: String,
    etag: String,
}

impl Upload {
    /// Begins an upload to an `s3://` URL, or continues an earlier one that has not ended. Parts are so large that there is
    /// [room](Self::room) for `most_bytes`, as far as they fit into `memory` bytes.
    ///
    /// Fails if there is an object of this name: none is replaced.
    pub fn begin(url: &str, most_bytes: u64, memory: u64) -> Result<Self, RemoteError> {
        let location = Location::parse(url)?;
        let Location::Bucket { key, .. } = &location else {
            return Err(RemoteError::Settings("only s3:// can be written".to_owned()));
        };
        Self::with(Client::new(&location, PATIENCE)?, key, part_size(most_bytes, memory))
    }

    /// Returns how many bytes the object can have.
    pub fn room(&self) -> u64 {
        MOST_PARTS * self.part_size
    }

    /// Returns how many bytes of memory the upload takes.
    pub fn memory(&self) -> u64 {
        IN_MEMORY * self.part_size
    }

    fn with(client: Client, key: &str, part_size: u64) -> Result<Self, RemoteError> {
        // First, because an answer to HEAD cannot say that the clock is wrong.
        let query = [("prefix", key), ("uploads", "")];
        let unfinished = match client.send(Call { for_bucket: true, ..Call::new(Method::Get, &query) }) {
            Ok(reply) => unfinished(&text(&reply), key),
            // Credentials that may only write: nothing is resumed.
            Err(RemoteError::Denied(_) | RemoteError::Unsupported(_)) => None,
            Err(error) => return Err(error),
        };
        match client.send(Call { most: 0, ..Call::new(Method::Head, &[]) }) {
            Ok(_) => return Err(exists()),
            // Credentials that may only write cannot tell.
            Err(RemoteError::NotFound(_) | RemoteError::Denied(_)) => {}
            Err(error) => return Err(error),
        }
        let (id, there) = match unfinished {
            Some(id) => {
                let there = parts(&client, &id)?;
                (id, there)
            }
            None => {
                let headers =
                    [("x-amz-checksum-algorithm", "CRC64NVME"), ("x-amz-checksum-type", "FULL_OBJECT")];
                let query = [("uploads", "")];
                let call = Call { headers: &headers, body: Some(&[]), ..Call::new(Method::Post, &query) };
                let reply = client.send(call)?;
                let text = text(&reply);
                let id = element(&text, "UploadId").ok_or_else(|| unexpected("names no upload"))?;
                (id, BTreeMap::new())
            }
        };
        Ok(Self { client, id, there, part_size })
    }

    /// Uploads all that `stream` has. The object exists once this returns.
    ///
    /// After an error what was uploaded stays in the store, and another upload to the same URL continues from it.
    pub fn send(self, stream: impl Read + Send) -> Result<Uploaded, RemoteError> {
        let (full, parts) = sync_channel(0);
        let part_size = self.part_size;
        thread::scope(|scope| {
            let reader = scope.spawn(move || read_parts(stream, part_size, &full));
            let sent = self.send_parts(&parts);
            // Ends the reader, which otherwise waits for room.
            drop(parts);
            let read = reader.join().unwrap_or_else(|_| Err(io::Error::other("the reader panicked")));
            let (list, whole, uploaded) = sent?;
            read.map_err(|error| RemoteError::Unreachable(format!("the dump cannot be read: {error}")))?;
            self.complete(&list, whole)?;
            Ok(uploaded)
        })
    }

    fn send_parts(&self, parts: &Receiver<Vec<u8>>) -> Result<(String, u64, Uploaded), RemoteError> {
        let mut whole = Digest::new(CrcAlgorithm::Crc64Nvme);
        let mut uploaded = Uploaded { bytes: 0, resumed: 0 };
        let mut list = String::new();
        for (number, bytes) in (1..).zip(parts) {
            if number > MOST_PARTS {
                return Err(RemoteError::Unsupported(format!(
                    "the dump is larger than {} GiB, for which there was room",
                    self.room() >> 30
                )));
            }
            let sum = encode(checksum(CrcAlgorithm::Crc64Nvme, &bytes));
            whole.update(&bytes);
            uploaded.bytes += bytes.len() as u64;
            let same = |part: &&Part| part.size == bytes.len() as u64 && part.checksum == sum;
            let etag = match self.there.get(&number).filter(same) {
                Some(part) => {
                    uploaded.resumed += bytes.len() as u64;
                    part.etag.clone()
                }
                None => self.put(number, &bytes, &sum)?,
            };
            list += &format!(
                "<Part><ChecksumCRC64NVME>{sum}</ChecksumCRC64NVME><ETag>{etag}</ETag><PartNumber>{number}</PartNumber></Part>"
            );
        }
        Ok((list, whole.finalize(), uploaded))
    }

    fn put(&self, number: u64, bytes: &[u8], sum: &str) -> Result<String, RemoteError> {
        let number = number.to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", &self.id)];
        // A store that refuses the part can say so before its bytes are sent.
        let headers = [("expect", "100-continue"), ("x-amz-checksum-crc64nvme", sum)];
        let call = Call {
            headers: &headers,
            body: Some(bytes),
            most: 0,
            check: Some(&[("max-parts", "1"), ("uploadId", &self.id)]),
            ..Call::new(Method::Put, &query)
        };
        let reply = self.client.send(call)?;
        match reply.header("etag") {
            "" => Err(unexpected("has no ETag")),
            etag => Ok(etag.replace('"', "&quot;")),
        }
    }

    fn complete(&self, list: &str, whole: u64) -> Result<(), RemoteError> {
        let sum = encode(whole);
        let body = format!(
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{list}</CompleteMultipartUpload>"
        );
        let headers = [
            ("if-none-match", "*"),
            ("x-amz-checksum-crc64nvme", sum.as_str()),
            ("x-amz-checksum-type", "FULL_OBJECT"),
        ];
        let query = [("uploadId", self.id.as_str())];
        let call = Call { headers: &headers, body: Some(body.as_bytes()), ..Call::new(Method::Post, &query) };
        let failed = match self.client.send(call) {
            // A store may find only after its first bytes that it cannot.
            Ok(reply) => match element(&text(&reply), "Code") {
                None => return Ok(()),
                Some(code) => {
                    RemoteError::Unreachable(format!("the store cannot put the parts together: {code}"))
                }
            },
            Err(error) => error,
        };
        // The answer to an earlier try may have been lost.
        let headers = [("x-amz-checksum-mode", "ENABLED")];
        match self.client.send(Call { headers: &headers, most: 0, ..Call::new(Method::Head, &[]) }) {
            Ok(reply) if reply.header("x-amz-checksum-crc64nvme") == sum => Ok(()),
            Ok(_) => Err(exists()),
            Err(_) => Err(failed),
        }
    }
}

/// Cuts a stream into parts.
fn read_parts(mut stream: impl Read, part_size: u64, full: &SyncSender<Vec<u8>>) -> io::Result<()> {
    let mut first = true;
    loop {
        let mut part = Vec::with_capacity(part_size as usize);
        (&mut stream).take(part_size).read_to_end(&mut part)?;
        let is_last = (part.len() as u64) < part_size;
        // An object has a part, if only an empty one. The receiver is gone once a part has failed.
        if ((first || !part.is_empty()) && full.send(part).is_err()) || is_last {
            return Ok(());
        }
        first = false;
    }
}

/// Returns the size of parts for so many bytes, as far as they fit into `memory`. All parts have the same size, because some stores
/// demand it.
fn part_size(most_bytes: u64, memory: u64) -> u64 {
    let fits = (memory / IN_MEMORY).clamp(PART, MOST_PART).ilog2();
    most_bytes.div_ceil(MOST_PARTS).min(MOST_PART).next_power_of_two().clamp(PART, 1 << fits)
}

/// Returns the ID of the newest unfinished upload of a key, out of the list of those whose keys begin with it.
fn unfinished(xml: &str, key: &str) -> Option<String> {
    let uploads = elements(xml, "Upload").filter(|upload| element(upload, "Key").as_deref() == Some(key));
    // Times as ISO 8601: sorted as text.
    let newest = uploads.max_by_key(|upload| element(upload, "Initiated"))?;
    element(newest, "UploadId")
}

/// Lists the parts of an upload that are in the store.
fn parts(client: &Client, id: &str) -> Result<BTreeMap<u64, Part>, RemoteError> {
    let mut there = BTreeMap::new();
    let mut after = String::from("0");
    loop {
        let query = [("part-number-marker", after.as_str()), ("uploadId", id)];
        let answer = text(&client.send(Call::new(Method::Get, &query))?);
        let before = there.len();
        there.extend(elements(&answer, "Part").filter_map(|part| {
            // A store that counts on forever ends the list.
            let number = element(part, "PartNumber")?.parse().ok().filter(|number| *number <= MOST_PARTS)?;
            let (size, checksum) =
                (element(part, "Size")?.parse().ok()?, element(part, "ChecksumCRC64NVME")?);
            Some((number, Part { size, checksum, etag: element(part, "ETag")?.replace('"', "&quot;") }))
        }));
        let next = element(&answer, "NextPartNumberMarker")
            .filter(|_| element(&answer, "IsTruncated").as_deref() == Some("true"));
        match next {
            Some(next) if there.len() > before => after = next,
            _ => return Ok(there),
        }
    }
}

fn encode(sum: u64) -> String {
    STANDARD.encode(sum.to_be_bytes())
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}

fn exists() -> RemoteError {
    RemoteError::Denied("there is an object of this name, and none is replaced; choose another".to_owned())
}

fn unexpected(what: &str) -> RemoteError {
    RemoteError::Unsupported(format!("the answer of the store {what}"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::client::Target;
    use crate::s3::S3Object;
    use crate::server::{Request, Response, Server};
    use crate::settings::{Credentials, Settings};

    const PART: u64 = 1000;

    /// What a store holds.
    #[derive(Default)]
    struct Store {
        object: Option<Vec<u8>>,
        parts: BTreeMap<u64, Vec<u8>>,
        has_upload: bool,
        puts: usize,
    }

    fn sum(bytes: &[u8]) -> String {
        encode(checksum(CrcAlgorithm::Crc64Nvme, bytes))
    }

    fn error(status: u16, code: &str) -> Response {
        Response::status(status, &format!("<Error><Code>{code}</Code></Error>"))
    }

    impl Store {
        fn answer(&mut self, request: &Request) -> Response {
            let query = request.query();
            let header = |name: &str| request.headers.get(name).map_or("", String::as_str);
            match request.method.as_str() {
                "HEAD" => match &self.object {
                    Some(object) => Response {
                        status: 200,
                        headers: vec![("x-amz-checksum-crc64nvme".into(), sum(object))],
                        ..Response::default()
                    },
                    None => Response::status(404, ""),
                },
                "GET" if query.contains_key("uploads") => {
                    let upload =
                        "<Upload><Key>dump</Key><UploadId>u1</UploadId><Initiated>2026</Initiated></Upload>";
                    Response::status(200, if self.has_upload { upload } else { "<X></X>" })
                }
                "GET" => {
                    let parts = self.parts.iter().map(|(number, part)| {
                        format!(
                            "<Part><PartNumber>{number}</PartNumber><Size>{}</Size><ETag>&#34;e{number}&#34;</ETag>\
                             <ChecksumCRC64NVME>{}</ChecksumCRC64NVME></Part>",
                            part.len(),
                            sum(part)
                        )
                    });
                    Response::status(200, &parts.collect::<String>())
                }
                "POST" if query.contains_key("uploads") => {
                    self.has_upload = true;
                    Response::status(200, "<UploadId>u1</UploadId>")
                }
                "PUT" => {
                    self.puts += 1;
                    if header("x-amz-checksum-crc64nvme") != sum(&request.body) {
                        return error(400, "BadDigest");
                    }
                    let number = query["partNumber"];
                    self.parts.insert(number.parse().unwrap(), request.body.clone());
                    Response {
                        status: 200,
                        headers: vec![("ETag".into(), format!("\"e{number}\""))],
                        ..Response::default()
                    }
                }
                "POST" if !self.has_upload => error(404, "NoSuchUpload"),
                "POST" => {
                    let object = self.parts.values().flatten().copied().collect::<Vec<_>>();
                    assert_eq!(
                        (header("if-none-match"), header("x-amz-checksum-crc64nvme")),
                        ("*", sum(&object).as_str())
                    );
                    if self.object.is_some() {
                        return error(412, "PreconditionFailed");
                    }
                    (self.object, self.has_upload) = (Some(object), false);
                    Response::status(200, "<ETag>e</ETag>")
                }
                other => panic!("{other}"),
            }
        }
    }

    /// A store that answers as `fault` says, or else as a store does.
    fn store(
        fault: impl Fn(&Request, &mut dyn FnMut() -> Response) -> Option<Response> + Send + Sync + 'static,
    ) -> (Arc<Mutex<Store>>, Server) {
        let store = Arc::new(Mutex::new(Store::default()));
        let shared = store.clone();
        let server = Server::start(move |request| {
            let mut answer = || shared.lock().unwrap().answer(request);
            fault(request, &mut answer).unwrap_or_else(answer)
        });
        (store, server)
    }

    fn upload(server: &Server, bytes: &[u8]) -> Result<Uploaded, RemoteError> {
        let credentials = Credentials { key: "A".into(), secret: "B".into(), token: None };
        let settings = Settings { credentials, endpoint: Some(server.url("")), region: "r".into() };
        let object = S3Object::with(settings, "bucket", "dump")?;
        let client = Client::with(Target::S3(Box::new(object)), Duration::from_secs(60))?;
        Upload::with(client, "dump", PART)?.send(bytes)
    }

    fn sample(size: usize) -> Vec<u8> {
        (0..size).map(|at| ((at / 3) ^ (at >> 8)) as u8).collect()
    }

    #[test]
    fn an_object_has_the_bytes_of_the_stream() {
        for size in [0, 1, 999, 1000, 1001, 5500] {
            let (store, server) = store(|_, _| None);
            let uploaded = upload(&server, &sample(size)).unwrap();
            assert_eq!(uploaded, Uploaded { bytes: size as u64, resumed: 0 });
            assert_eq!(store.lock().unwrap().object, Some(sample(size)));
            // None is replaced.
            assert!(matches!(upload(&server, b"other"), Err(RemoteError::Denied(_))));
            assert_eq!(store.lock().unwrap().object, Some(sample(size)));
        }
    }

    #[test]
    fn faults_that_pass_do_not_change_the_object() {
        // Each request of an upload in turn: refused, answered too late for the connection, changed on its way.
        for number in 0..9 {
            for kind in 0..3 {
                let (store, server) = store(move |request, answer| {
                    (request.number == number).then(|| match kind {
                        0 => error(503, "SlowDown"),
                        1 => Response { cut: Some(0), body: vec![0; 10], ..answer() },
                        2 if request.method == "PUT" => error(400, "BadDigest"),
                        _ => answer(),
                    })
                });
                upload(&server, &sample(3500)).unwrap();
                assert_eq!(store.lock().unwrap().object, Some(sample(3500)), "{number} {kind}");
            }
        }
    }

    #[test]
    fn another_upload_continues_an_unfinished_one() {
        // The server denies access in the middle of the upload: its process is as good as killed.
        for denied in 3..8 {
            let (store, server) =
                store(move |request, _| (request.number == denied).then(|| error(403, "AccessDenied")));
            assert!(upload(&server, &sample(3500)).is_err());
            let puts = store.lock().unwrap().puts;
            assert!(store.lock().unwrap().object.is_none());
            let uploaded = upload(&server, &sample(3500)).unwrap();
            assert_eq!(uploaded.resumed, (puts as u64 * PART).min(3500), "{denied}");
            assert_eq!(store.lock().unwrap().object, Some(sample(3500)));
            assert_eq!(store.lock().unwrap().puts, 4);
        }
    }

    #[test]
    fn a_list_of_parts_that_never_ends_is_cut() {
        let (store, server) = store(|request, _| {
            let after: u64 = request.query().get("part-number-marker")?.parse().ok()?;
            let part = |number| {
                format!(
                    "<Part><PartNumber>{number}</PartNumber><Size>1</Size><ETag>e</ETag>\
                     <ChecksumCRC64NVME>c</ChecksumCRC64NVME></Part>"
                )
            };
            let parts: String = (after + 1..=after + 4000).map(part).collect();
            let next = format!("<NextPartNumberMarker>{}</NextPartNumberMarker>", after + 4000);
            Some(Response::status(200, &format!("{parts}{next}<IsTruncated>true</IsTruncated>")))
        });
        store.lock().unwrap().has_upload = true;
        upload(&server, &sample(10)).unwrap();
        let is_list = |request: &&Request| request.target.contains("part-number-marker");
        assert_eq!(server.requests().iter().filter(is_list).count(), 4);
    }

    #[test]
    fn a_stream_that_breaks_off_is_not_completed() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the capture failed"))
            }
        }
        let (store, server) = store(|_, _| None);
        let credentials = Credentials { key: "A".into(), secret: "B".into(), token: None };
        let settings = Settings { credentials, endpoint: Some(server.url("")), region: "r".into() };
        let client = Client::with(
            Target::S3(Box::new(S3Object::with(settings, "bucket", "dump").unwrap())),
            Duration::ZERO,
        )
        .unwrap();
        let stream = (&[7; 2500][..]).chain(Broken);
        assert!(Upload::with(client, "dump", PART).unwrap().send(stream).is_err());
        assert!(store.lock().unwrap().object.is_none());
    }

    #[test]
    fn parts_fit_the_size_and_the_memory() {
        const MANY: u64 = 1 << 40;
        for (gib, memory, mib) in [
            (0, MANY, 8),
            (74, MANY, 8),
            (100, MANY, 16),
            (1 << 10, MANY, 128),
            (1 << 20, MANY, 256),
            (1 << 10, 64 << 20, 32),
            (1 << 10, 63 << 20, 16),
            (1 << 10, 0, 8),
        ] {
            assert_eq!(part_size(gib << 30, memory), mib << 20, "{gib} GiB, {memory} bytes of memory");
        }
    }
}
