//! Uploads of streams to object stores, in parts: what was uploaded before a connection or a process ended is not sent again.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, Digest, checksum};
use pagehaul_run::{Patience, Retry, Stop};
use rusty_s3::Method;

use crate::answer::Expected;
use crate::call::Call;
use crate::client::{Client, LIST_OF_PARTS};
use crate::error::RemoteError;
use crate::failure::Failure;
use crate::location::Location;
use crate::xml::Element;

/// The header with the checksum of a part or an object.
const CHECKSUM: &str = "x-amz-checksum-crc64nvme";
/// How long a store may take to put the parts together.
const COMPLETE: Duration = Duration::from_secs(300);
/// Bytes of a part, at least.
const PART: u64 = 8 << 20;
/// Parts in memory: one is uploaded while the next one is read.
const IN_MEMORY: u64 = 2;
/// Parts of an object at most.
const MAX_PARTS: u64 = 10_000;
/// Bytes of a part at most.
const MAX_PART: u64 = 256 << 20;

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
pub(crate) struct Part {
    size: u64,
    checksum: String,
    etag: String,
}

impl Upload {
    /// Begins an upload to an `s3://` URL, or continues an earlier one that has not ended. Parts are so large that there is
    /// [room](Self::room) for `most_bytes`, as far as they fit into `memory` bytes.
    ///
    /// Fails if there is an object of this name: none is replaced.
    ///
    /// Once the run was cancelled, of which `stop` knows, it ends soon.
    pub fn begin(url: &str, most_bytes: u64, memory: u64, stop: Stop) -> Result<Self, RemoteError> {
        let location = Location::parse(url)?;
        let Location::Bucket { key, .. } = &location else {
            return Err(RemoteError::Settings("only s3:// can be written".to_owned()));
        };
        Self::with(Client::new(&location, Patience::UPLOAD, stop)?, key, part_size(most_bytes, memory))
    }

    /// Returns how many bytes the object can have.
    pub fn room(&self) -> u64 {
        MAX_PARTS * self.part_size
    }

    /// Returns how many bytes of memory the upload takes.
    pub fn memory(&self) -> u64 {
        IN_MEMORY * self.part_size
    }

    fn with(client: Client, key: &str, part_size: u64) -> Result<Self, RemoteError> {
        // First, because an answer to HEAD cannot say that the clock is wrong.
        let query = [("prefix", key), ("uploads", "")];
        let list = Call::new(Method::Get, Expected::List("ListMultipartUploadsResult"), &query);
        let unfinished = match client.send(Call { for_bucket: true, ..list }) {
            Ok(reply) => reply.document.and_then(|document| unfinished(&document, key)),
            // Credentials that may only write: nothing is resumed.
            Err(RemoteError::Denied(_) | RemoteError::Unsupported(_)) => None,
            Err(error) => return Err(error),
        };
        match client.send(Call::new(Method::Head, Expected::Head, &[])) {
            Ok(_) => return Err(RemoteError::exists()),
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
                let expected = Expected::Result("InitiateMultipartUploadResult", "UploadId");
                let call =
                    Call { headers: &headers, body: Some(&[]), ..Call::new(Method::Post, expected, &query) };
                (client.send(call)?.text("UploadId").to_owned(), BTreeMap::new())
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
            let sent = self.client.until_stopped(|| self.send_parts(&parts));
            // Ends the reader, which otherwise waits for room.
            drop(parts);
            let read = reader.join().unwrap_or_else(|_| Err(io::Error::other("the reader panicked")));
            let (list, whole, uploaded) = sent?;
            read.map_err(|error| RemoteError::Unreachable(format!("the dump cannot be read: {error}")))?;
            self.client.until_stopped(|| self.complete(&list, uploaded.bytes, &encode(whole)))?;
            Ok(uploaded)
        })
    }

    fn send_parts(&self, parts: &Receiver<Vec<u8>>) -> Result<(String, u64, Uploaded), RemoteError> {
        let mut whole = Digest::new(CrcAlgorithm::Crc64Nvme);
        let mut uploaded = Uploaded { bytes: 0, resumed: 0 };
        let mut list = String::new();
        for (number, bytes) in (1..).zip(parts) {
            if number > MAX_PARTS {
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
            let etag = escape(&etag);
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
        let headers = [("expect", "100-continue"), (CHECKSUM, sum)];
        let call = Call {
            headers: &headers,
            body: Some(bytes),
            check: Some(&[("max-parts", "1"), ("uploadId", &self.id)]),
            ..Call::new(Method::Put, Expected::Stored, &query)
        };
        let reply = self.client.send(call)?;
        // Stores that know no checksums send none.
        if !["", sum].contains(&reply.header(CHECKSUM)) {
            return Err(RemoteError::Undefined(format!("the store has another checksum of part {number}")));
        }
        Ok(reply.header("etag").to_owned())
    }

    /// Puts the parts together. Only the store's own word that the object is there is success.
    fn complete(&self, list: &str, size: u64, sum: &str) -> Result<(), RemoteError> {
        let body = format!(
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{list}</CompleteMultipartUpload>"
        );
        let headers = [("if-none-match", "*"), (CHECKSUM, sum), ("x-amz-checksum-type", "FULL_OBJECT")];
        let query = [("uploadId", self.id.as_str())];
        let expected = Expected::Result("CompleteMultipartUploadResult", "ETag");
        let call = Call {
            headers: &headers,
            body: Some(body.as_bytes()),
            answer: COMPLETE,
            ..Call::new(Method::Post, expected, &query)
        };
        let mut retry = self.client.retry();
        loop {
            let failure = match self.client.try_once(call, &mut retry) {
                Ok(reply) if reply.text("ChecksumCRC64NVME") == sum => return Ok(()),
                Ok(reply) if reply.text("ChecksumCRC64NVME").is_empty() => return self.confirm(size, sum),
                Ok(_) => return Err(RemoteError::Undefined("the object has another checksum".to_owned())),
                Err(failure) => failure,
            };
            // The answer to this try or to an earlier one may be lost.
            let is_last = matches!(failure, Failure::Final(_));
            if self.is_there(size, sum, (!is_last).then_some(&mut retry))? {
                return Ok(());
            }
            self.client.wait(failure, &mut retry, None)?;
        }
    }

    /// Fails if the store, which did not say which object it put together, says twice that it has another one: one answer can be
    /// damaged on its way. It may let nobody look.
    fn confirm(&self, size: u64, sum: &str) -> Result<(), RemoteError> {
        self.other_object(size, sum).and_then(|_| self.other_object(size, sum)).map_or(Ok(()), Err)
    }

    fn other_object(&self, size: u64, sum: &str) -> Option<RemoteError> {
        let headers = [("x-amz-checksum-mode", "ENABLED")];
        let call = Call { headers: &headers, ..Call::new(Method::Head, Expected::Head, &[]) };
        let reply = self.client.try_once(call, &mut self.client.retry()).ok()?;
        let there = reply.header("content-length");
        if !there.is_empty() && there.parse() != Ok(size) {
            return Some(RemoteError::Undefined(format!("the object has {there} bytes, {size} were sent")));
        }
        let is_other = !["", sum].contains(&reply.header(CHECKSUM));
        is_other.then(|| RemoteError::Undefined("the object has another checksum".to_owned()))
    }

    /// Whether the store says that the object is there. Fails if it is another one. Asks once, as a part of `retry`, if there is
    /// one.
    fn is_there(&self, size: u64, sum: &str, retry: Option<&mut Retry>) -> Result<bool, RemoteError> {
        let headers = [("x-amz-checksum-mode", "ENABLED")];
        let call = Call { headers: &headers, ..Call::new(Method::Head, Expected::Head, &[]) };
        let reply = match retry {
            Some(retry) => self.client.try_once(call, retry).ok(),
            None => self.client.send(call).ok(),
        };
        let Some(reply) = reply else { return Ok(false) };
        let has_size = reply.header("content-length").parse() == Ok(size);
        match reply.header(CHECKSUM) {
            there if there == sum && has_size => Ok(true),
            "" if has_size => Err(RemoteError::Undefined(
                "the store does not confirm the object, but has one of its size; verify it".to_owned(),
            )),
            _ => Err(RemoteError::exists()),
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
    let fits = (memory / IN_MEMORY).clamp(PART, MAX_PART).ilog2();
    most_bytes.div_ceil(MAX_PARTS).min(MAX_PART).next_power_of_two().clamp(PART, 1 << fits)
}

/// Returns the ID of the newest unfinished upload of a key, out of the list of those whose keys begin with it.
pub(crate) fn unfinished(list: &Element, key: &str) -> Option<String> {
    let uploads = list.all("Upload").filter(|upload| upload.text("Key") == Some(key));
    // Times as ISO 8601: sorted as text.
    let newest = uploads.max_by_key(|upload| upload.text("Initiated"))?;
    newest.text("UploadId").map(str::to_owned)
}

/// Lists the parts of an upload that are in the store.
fn parts(client: &Client, id: &str) -> Result<BTreeMap<u64, Part>, RemoteError> {
    let mut there = BTreeMap::new();
    let mut after = String::from("0");
    loop {
        let query = [("part-number-marker", after.as_str()), ("uploadId", id)];
        let reply = client.send(Call::new(Method::Get, Expected::List(LIST_OF_PARTS), &query))?;
        let before = there.len();
        there.extend(reply.document.iter().flat_map(|list| list.all("Part")).filter_map(part));
        let next = reply.text("NextPartNumberMarker");
        if reply.text("IsTruncated") != "true" || there.len() == before || next.is_empty() {
            return Ok(there);
        }
        after = next.to_owned();
    }
}

/// Returns the number of a part in a list, and the part.
pub(crate) fn part(part: &Element) -> Option<(u64, Part)> {
    // A store that counts on forever ends the list.
    let number = part.text("PartNumber")?.parse().ok().filter(|number| *number <= MAX_PARTS)?;
    let size = part.text("Size")?.parse().ok()?;
    let (checksum, etag) = (part.text("ChecksumCRC64NVME")?.to_owned(), part.text("ETag")?.to_owned());
    Some((number, Part { size, checksum, etag }))
}

fn encode(sum: u64) -> String {
    STANDARD.encode(sum.to_be_bytes())
}

/// Escapes text of an element.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;

    use super::*;
    use crate::client::Target;
    use crate::s3::S3Object;
    use crate::settings::{Credentials, Settings};
    use pagehaul_test_support::server::{Request, Response, Server};

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

    /// A document as stores send it.
    fn document(root: &str, inside: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <{root} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inside}</{root}>"
        )
    }

    fn completed() -> String {
        document("CompleteMultipartUploadResult", "<Key>dump</Key><ETag>&quot;e-4&quot;</ETag>")
    }

    impl Store {
        fn answer(&mut self, request: &Request) -> Response {
            let query = request.query();
            let header = |name: &str| request.headers.get(name).map_or("", String::as_str);
            let ok = |root, inside: &str| Response::status(200, &document(root, inside));
            match request.method.as_str() {
                "HEAD" => match &self.object {
                    Some(object) => Response {
                        status: 200,
                        headers: vec![("x-amz-checksum-crc64nvme".into(), sum(object))],
                        body: object.clone(),
                        ..Response::default()
                    },
                    None => Response::status(404, ""),
                },
                "GET" if query.contains_key("uploads") => {
                    let upload =
                        "<Upload><Key>dump</Key><UploadId>u1</UploadId><Initiated>2026</Initiated></Upload>";
                    ok("ListMultipartUploadsResult", if self.has_upload { upload } else { "" })
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
                    ok("ListPartsResult", &parts.collect::<String>())
                }
                "POST" if query.contains_key("uploads") => {
                    self.has_upload = true;
                    ok("InitiateMultipartUploadResult", "<UploadId>u1</UploadId>")
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
                    assert_eq!(header("if-none-match"), "*");
                    if header("x-amz-checksum-crc64nvme") != sum(&object) {
                        return error(400, "InvalidPart");
                    }
                    if self.object.is_some() {
                        return error(412, "PreconditionFailed");
                    }
                    (self.object, self.has_upload) = (Some(object), false);
                    Response::status(200, &completed())
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
        upload_within(server, Duration::from_secs(60), bytes)
    }

    fn upload_within(server: &Server, patience: Duration, bytes: &[u8]) -> Result<Uploaded, RemoteError> {
        let credentials = Credentials { key: "A".into(), secret: "B".into(), token: None };
        let settings = Settings { credentials, endpoint: Some(server.url("")), region: "r".into() };
        let object = S3Object::with(settings, "bucket", "dump")?;
        let client = Client::with(Target::S3(Box::new(object)), Patience::of(patience), Stop::default())?;
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
            let list = document("ListPartsResult", &format!("{parts}{next}<IsTruncated>true</IsTruncated>"));
            Some(Response::status(200, &list))
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
            Patience::of(Duration::ZERO),
            Stop::default(),
        )
        .unwrap();
        let stream = (&[7; 2500][..]).chain(Broken);
        assert!(Upload::with(client, "dump", PART).unwrap().send(stream).is_err());
        assert!(store.lock().unwrap().object.is_none());
    }

    /// Which requests a store answers wrongly.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Kind {
        ListUploads,
        Head,
        Initiate,
        Put,
        Complete,
    }

    fn kind(request: &Request) -> Kind {
        let query = request.query();
        match request.method.as_str() {
            "GET" => Kind::ListUploads,
            "HEAD" => Kind::Head,
            "PUT" => Kind::Put,
            _ if query.contains_key("uploads") => Kind::Initiate,
            _ => Kind::Complete,
        }
    }

    /// Uploads to a store that answers requests of a kind with `answer`, and does what they ask for if `does_it`.
    fn upload_with(wrong: Kind, answer: &Response, does_it: bool) -> (Result<Uploaded, RemoteError>, bool) {
        let answer = answer.clone();
        let (store, server) = store(move |request, proper| {
            (kind(request) == wrong).then(|| {
                if does_it {
                    proper();
                }
                answer.clone()
            })
        });
        let bytes = sample(2500);
        let result = upload_within(&server, Duration::ZERO, &bytes);
        let is_there = store.lock().unwrap().object.as_ref() == Some(&bytes);
        (result, is_there)
    }

    #[test]
    fn an_upload_without_an_object_fails() {
        let yes = completed();
        for (status, body) in [
            (200, ""),
            (200, "<html><body>Welcome</body></html>"),
            (200, &yes[..yes.len() - 1]),
            (200, "<Error><Code xml:lang=\"en\">InternalError</Code></Error>"),
            (200, "<Error><Message>We encountered an internal error</Message></Error>"),
            (200, "<Error><Code>InternalError</Code></Error>"),
            (200, "<CompleteMultipartUploadResult><ETag></ETag></CompleteMultipartUploadResult>"),
            (201, &yes),
            (204, ""),
            (206, &yes),
            (304, ""),
            (416, ""),
        ] {
            let answer = Response::status(status, body);
            let (result, _) = upload_with(Kind::Complete, &answer, false);
            let error = result.expect_err(&format!("{status} {body}")).to_string();
            assert!(error.contains(&status.to_string()), "{error}");
            // The object itself is an answer, too.
            assert_eq!(upload_with(Kind::Complete, &answer, true).0.ok().map(|sent| sent.bytes), Some(2500));
        }
        // What the store says of another object is none.
        let other =
            completed().replace("</Key>", "</Key><ChecksumCRC64NVME>AAAAAAAAAAA=</ChecksumCRC64NVME>");
        assert!(upload_with(Kind::Complete, &Response::status(200, &other), false).0.is_err());
    }

    #[test]
    fn a_part_that_the_store_has_not_got_is_noticed() {
        // It says what it has.
        let (_, server) = store(|request, answer| {
            let mut answer = answer();
            if kind(request) == Kind::Put {
                answer.headers.push((CHECKSUM.into(), "AAAAAAAAAAA=".into()));
            }
            Some(answer)
        });
        let error = upload(&server, &sample(2500)).unwrap_err().to_string();
        assert!(error.contains("another checksum of part 1"), "{error}");
        // It says nothing, and left bytes out.
        let (_, server) = store(|request, answer| {
            let mut answer = answer();
            if kind(request) == Kind::Head && answer.status == 200 {
                answer.headers.clear();
                answer.body.truncate(1000);
            }
            Some(answer)
        });
        let error = upload(&server, &sample(2500)).unwrap_err().to_string();
        assert!(error.contains("the object has 1000 bytes, 2500 were sent"), "{error}");
    }

    #[test]
    fn a_store_that_answers_wrongly_for_a_while_gets_the_object() {
        for (status, body) in [
            (409, "<Error><Code>ConditionalRequestConflict</Code></Error>"),
            (409, "<Error><Code>OperationAborted</Code></Error>"),
            (200, "<Error><Code>InternalError</Code></Error>"),
            (200, ""),
        ] {
            let times = std::sync::atomic::AtomicUsize::new(0);
            let (store, server) = store(move |request, _| {
                let is_wrong = kind(request) == Kind::Complete
                    && times.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2;
                is_wrong.then(|| Response::status(status, body))
            });
            upload(&server, &sample(2500)).unwrap();
            assert_eq!(store.lock().unwrap().object, Some(sample(2500)), "{status} {body}");
        }
    }

    fn any_answer() -> impl Strategy<Value = Response> {
        let documents = [
            completed(),
            document("InitiateMultipartUploadResult", "<UploadId>u2</UploadId>"),
            document("ListMultipartUploadsResult", "<Upload><Key>dump</Key><UploadId>u3</UploadId></Upload>"),
            document("ListPartsResult", ""),
            document("Error", "<Code a=\"b\">SlowDown</Code>"),
            document("Error", "<Code/>"),
            "<!DOCTYPE html><html><p>It works!</html>".to_owned(),
            "{\"ok\":true}".to_owned(),
            String::new(),
        ];
        let statuses = [200, 201, 202, 204, 206, 207, 301, 304, 307, 400, 403, 404, 409, 412, 416, 500, 503];
        let cut = prop_oneof![3 => Just(None), 1 => (0..300usize).prop_map(Some)];
        let etag = prop::option::of(Just(("ETag".to_owned(), "\"e\"".to_owned())));
        let status = prop::sample::select(statuses.to_vec());
        (status, prop::sample::select(documents.to_vec()), 0..300usize, cut, etag).prop_map(
            |(status, document, end, cut, etag)| {
                // Half of them are whole. These statuses have none: its bytes would be the next answer.
                let body = match status {
                    204 | 304 => Vec::new(),
                    _ => document.as_bytes()[..document.len().min(end * 2)].to_vec(),
                };
                // A server that closes the connection after a whole answer may do so as the next request comes, which then needs
                // a second try.
                let cut = cut.filter(|cut| *cut < body.len());
                Response { status, headers: etag.into_iter().collect(), body, cut, drip: None }
            },
        )
    }

    proptest! {
        /// Whatever a store answers to one kind of request: if the upload succeeds, the object is there, unless the store lies in
        /// the very answer that the protocol defines.
        #[test]
        fn any_answer_of_success_comes_with_an_object(
            wrong in prop::sample::select(vec![
                Kind::ListUploads, Kind::Head, Kind::Initiate, Kind::Put, Kind::Complete,
            ]),
            answer in any_answer(),
            does_it: bool,
        ) {
            let is_lie = answer.status == 200
                && answer.cut.is_none()
                && match wrong {
                    Kind::Complete => answer.body == completed().into_bytes(),
                    _ => false,
                };
            let (result, is_there) = upload_with(wrong, &answer, does_it);
            prop_assert!(result.is_err() || is_there || is_lie, "{result:?}");
            if wrong == Kind::Complete && does_it {
                prop_assert!(result.is_ok(), "{result:?}");
            }
        }
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
