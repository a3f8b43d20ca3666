//! Requests for one object: signed, tried again where that can help, with errors that say what to do.

use std::fs;
use std::io::{self, Read};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pagehaul_physmem::file::shown;
use pagehaul_run::{Moved, Pace, Patience, Retry, Stop};
use rusty_s3::Method;
use ureq::http::{Request, StatusCode};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body, SendBody};

use crate::answer::{Expected, Reply};
use crate::call::Call;
use crate::error::RemoteError;
use crate::failure::Failure;
use crate::location::Location;
use crate::redirect::{Addresses, Rules};
use crate::s3::S3Object;
use crate::xml::Element;
use crate::{notice, settings};

/// Requests in flight at a time, of an object.
pub(crate) const MAX_REQUESTS: usize = 16;
/// Limits of one request: to connect, and until the next byte.
const CONNECT: Duration = Duration::from_secs(10);
const STALL: Duration = Duration::from_secs(30);
/// The body of a request brings 1 KiB per second at least, taken over this time.
const SEND_WINDOW: Duration = Duration::from_secs(60);
/// Bytes of a request's body that are sent between two looks at the time.
const PIECE: usize = 16 << 10;
/// Bytes of an error's body that are read.
const MAX_ERROR: u64 = 64 << 10;
const MAX_REDIRECTS: usize = 10;
/// A clock that differs by less is not the reason why a request is refused.
const SKEW: i64 = 60;
/// How long a request is tried again whose answers are none that the protocol defines.
const UNDEFINED: Duration = Duration::from_secs(20);
/// Failures that pass earlier are not worth a notice.
const NOTICE: Duration = Duration::from_secs(1);

/// Root of the answer that lists parts.
pub(crate) const LIST_OF_PARTS: &str = "ListPartsResult";

/// What requests are for.
pub(crate) enum Target {
    Web(String),
    S3(Box<S3Object>),
}

/// Sends requests for one object.
pub(crate) struct Client {
    agent: Agent,
    target: Target,
    patience: Patience,
    stop: Stop,
    /// Whether the server has ever answered.
    was_reached: AtomicBool,
    moved: Moved,
    /// Whether a notice about the present failure is out.
    is_told: AtomicBool,
    redirects: Rules,
    /// Seconds to add to this machine's clock.
    clock: AtomicI64,
    /// Why the server is given up: later requests fail at once.
    given_up: OnceLock<RemoteError>,
}

impl Client {
    pub(crate) fn new(location: &Location, patience: Patience, stop: Stop) -> Result<Self, RemoteError> {
        let target = match location {
            Location::Web(url) => Target::Web(url.clone()),
            Location::Bucket { bucket, key } => Target::S3(Box::new(S3Object::new(bucket, key)?)),
        };
        Self::with(target, patience, stop)
    }

    /// A client of an object whose settings are known.
    pub(crate) fn with(target: Target, patience: Patience, stop: Stop) -> Result<Self, RemoteError> {
        let tls = TlsConfig::builder().root_certs(root_certificates()?).build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            // They are followed here.
            .max_redirects(0)
            .max_idle_connections(MAX_REQUESTS)
            .max_idle_connections_per_host(MAX_REQUESTS)
            .max_redirects_will_error(false)
            .user_agent(concat!("pagehaul/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .output_buffer_size(PIECE)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(STALL))
            .timeout_per_read(Some(STALL))
            .timeout_per_write(Some(STALL))
            .build();
        let redirects = Rules::new();
        let agent = match &target {
            Target::Web(url) => {
                let addresses = Addresses::of(url, &redirects);
                Agent::with_parts(config, DefaultConnector::default(), addresses)
            }
            // Redirects of stores are not followed.
            Target::S3(_) => config.into(),
        };
        Ok(Self {
            agent,
            target,
            patience,
            stop,
            was_reached: AtomicBool::new(false),
            moved: Moved::default(),
            is_told: AtomicBool::new(false),
            redirects,
            clock: AtomicI64::new(0),
            given_up: OnceLock::new(),
        })
    }

    /// Gets bytes `start` to `end`, or fewer if the body is cut.
    pub(crate) fn get(&self, start: u64, end: u64, retry: &mut Retry) -> Result<Reply, RemoteError> {
        let range = format!("bytes={start}-{}", end - 1);
        let headers = [("range", range.as_str())];
        let call = Call {
            headers: &headers,
            most: end - start,
            takes_cut: true,
            ..Call::new(Method::Get, Expected::Range, &[])
        };
        self.send_within(call, retry)
    }

    /// Sends a request until the server answers it.
    pub(crate) fn send(&self, call: Call<'_>) -> Result<Reply, RemoteError> {
        self.send_within(call, &mut self.retry())
    }

    fn send_within(&self, call: Call<'_>, retry: &mut Retry) -> Result<Reply, RemoteError> {
        loop {
            match self.try_once(call, retry) {
                Ok(reply) => return Ok(reply),
                Err(failure) => self.wait(failure, retry, call.check)?,
            }
        }
    }

    /// Begins to try a request.
    pub(crate) fn retry(&self) -> Retry {
        Retry::new(self.patience.limit(self.was_reached.load(Ordering::Relaxed)), &self.stop)
    }

    /// Waits for the next try. Fails if there is to be none: another one cannot succeed, or they took too long. A request without
    /// a body, whose query is `check`, tells what the store refuses.
    pub(crate) fn wait(
        &self,
        failure: Failure,
        retry: &mut Retry,
        check: Option<&[(&str, &str)]>,
    ) -> Result<(), RemoteError> {
        let tries = retry.tries();
        let gave_up = |why: &str| format!("{why}; gave up at try {tries}");
        let (why, least) = match &failure {
            Failure::Final(error) | Failure::Credentials(error) => return Err(error.clone()),
            Failure::Undefined(why) if retry.idle() >= retry.limit().min(UNDEFINED) => {
                return Err(RemoteError::Undefined(gave_up(why)));
            }
            Failure::Undefined(why) => (why, Duration::ZERO),
            Failure::Transient(why, least) => (why, *least),
        };
        if retry.idle() >= NOTICE && !self.is_told.swap(true, Ordering::Relaxed) {
            let limit = retry.limit().as_secs();
            notice::tell(&format!("{}: {why}; it is tried again for {limit} s", self.target.name()));
        }
        if !retry.is_over()
            && let Some(error) = check.and_then(|query| self.refusal(query, retry))
        {
            return Err(error);
        }
        if retry.wait(least) {
            return Ok(());
        }
        let error = match failure {
            Failure::Undefined(_) => return Err(RemoteError::Undefined(gave_up(why))),
            _ => RemoteError::Unreachable(gave_up(why)),
        };
        Err(self.given_up.get_or_init(|| error).clone())
    }

    /// Runs `work`, whose requests end soon once the run was cancelled.
    pub(crate) fn until_stopped<T>(&self, work: impl FnOnce() -> T) -> T {
        let agent = self.agent.clone();
        self.stop.end_if_stuck(&self.moved, || agent.shutdown(), work)
    }

    /// Returns why the store refuses all further requests. A store that refuses a body closes the connection while the body is
    /// sent, and its answer is lost.
    fn refusal(&self, query: &[(&str, &str)], retry: &mut Retry) -> Option<RemoteError> {
        match self.try_once(Call::new(Method::Get, Expected::List(LIST_OF_PARTS), query), retry) {
            Err(Failure::Credentials(error) | Failure::Final(error @ RemoteError::NotFound(_))) => {
                Some(error)
            }
            _ => None,
        }
    }

    /// Sends a request once.
    pub(crate) fn try_once(&self, call: Call<'_>, retry: &mut Retry) -> Result<Reply, Failure> {
        if let Some(error) = self.given_up.get() {
            return Err(Failure::Final(error.clone()));
        }
        let mut url = match &self.target {
            Target::Web(url) => url.clone(),
            Target::S3(object) => {
                // Stores want these signed; others, such as Range, need not be.
                let is_signed = |name: &str| name.starts_with("x-amz-") || name == "if-none-match";
                let signed: Vec<_> =
                    call.headers.iter().copied().filter(|(name, _)| is_signed(name)).collect();
                object.sign(self.now(), &call, &signed)
            }
        };
        let mut count = 0;
        let reply = loop {
            self.moved.now();
            let exchanged = self.exchange(&url, call, retry);
            self.moved.idle();
            let reply = exchanged?;
            let location = reply.header("location");
            let is_redirect = matches!(reply.status.as_u16(), 301 | 302 | 303 | 307 | 308);
            if !is_redirect || location.is_empty() || matches!(self.target, Target::S3(_)) {
                break reply;
            }
            let refused = |why| Failure::Final(RemoteError::Unsupported(why));
            if count == MAX_REDIRECTS {
                return Err(refused("too many redirects".to_owned()));
            }
            count += 1;
            url = self.redirects.follow(&url, location).map_err(refused)?;
        };
        self.was_reached.store(true, Ordering::Relaxed);
        match &reply.cut {
            Some(why) if reply.status.is_success() && !call.takes_cut => {
                return Err(Failure::Transient(why.clone(), Duration::ZERO));
            }
            _ if !call.expected.accepts(&reply) => return Err(self.judge(&reply, call.expected)),
            _ => self.is_told.store(false, Ordering::Relaxed),
        }
        if call.expected == Expected::Range
            && let Some(coding) = reply.coding()
        {
            return Err(Failure::Final(RemoteError::Unsupported(format!(
                "the server sends the file in another coding (Content-Encoding: {coding}); download it, then name the copy"
            ))));
        }
        Ok(reply)
    }

    /// Sends a request to a URL, and reads the answer.
    fn exchange(&self, url: &str, call: Call<'_>, retry: &mut Retry) -> Result<Reply, Failure> {
        let mut request = Request::builder().method(call.method.to_str()).uri(url);
        for (name, value) in call.headers {
            request = request.header(*name, *value);
        }
        let wrong = |_| Failure::Final(RemoteError::Settings("the URL is not valid".to_owned()));
        let sent = match call.body {
            Some(bytes) => {
                let mut body = Sending { bytes, moved: &self.moved, pace: Pace::new(SEND_WINDOW) };
                let request = request.header("content-length", bytes.len());
                let request = request.body(SendBody::from_reader(&mut body)).map_err(wrong)?;
                let limit = Some(call.answer);
                let patient = self.agent.configure_request(request).timeout_recv_response(limit);
                self.agent.run(patient.timeout_per_read(limit).build())
            }
            None => self.agent.run(request.body(()).map_err(wrong)?),
        };
        let (parts, body) = sent.map_err(|error| Failure::of(&error))?.into_parts();
        let is_success = parts.status.is_success();
        let (body, cut) = self.read(body, if is_success { call.most } else { MAX_ERROR }, retry);
        let is_object = call.expected == Expected::Range && is_success;
        let document = if is_object { None } else { Element::parse(&body) };
        Ok(Reply { status: parts.status, headers: parts.headers, body, cut, document })
    }

    /// Reads up to `most` bytes of a body. Returns why it ended early, too, if it did.
    fn read(&self, body: Body, most: u64, retry: &mut Retry) -> (Vec<u8>, Option<String>) {
        let (mut bytes, mut piece) = (Vec::new(), vec![0; PIECE]);
        // A limit of its own would be an error: what is left is of no interest.
        let mut reader = body.into_with_config().limit(u64::MAX).reader().take(most);
        loop {
            let count = match reader.read(&mut piece) {
                Ok(0) => return (bytes, None),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return (bytes, Some(error.to_string())),
            };
            bytes.extend_from_slice(&piece[..count]);
            self.moved.now();
            if !retry.moved(count as u64) && retry.is_over() {
                return (bytes, Some("the server sends less than 1 KiB per second".to_owned()));
            }
        }
    }

    /// Decides what an answer means that is not a yes.
    pub(crate) fn judge(&self, reply: &Reply, expected: Expected) -> Failure {
        let status = reply.status;
        let code = reply.error_code();
        let answer = match code {
            "" => format!("the server answers {status}"),
            code => format!("the server answers {status}, {code}"),
        };
        let is_transient = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED;
        if is_transient || matches!(status.as_u16(), 408 | 429) || is_transient_code(code) {
            let after = reply.header("retry-after").parse().map_or(Duration::ZERO, Duration::from_secs);
            return Failure::Transient(answer, after);
        }
        if let Target::S3(object) = &self.target {
            // Stores that find a signed URL too old or not valid yet answer AccessDenied; an answer to HEAD has no code.
            let may_be_clock = matches!(code, "RequestTimeTooSkewed" | "AccessDenied" | "");
            if may_be_clock && status == StatusCode::FORBIDDEN && self.set_clock(reply.header("date")) {
                return Failure::Transient(answer, Duration::ZERO);
            }
            if (is_about_credentials(code) || code == "AccessDenied") && object.renew() {
                return Failure::Transient(answer, Duration::ZERO);
            }
            // Some stores answer these with 400 or 404.
            if is_about_credentials(code) {
                return Failure::Credentials(RemoteError::Denied(format!(
                    "{answer}: {}",
                    advice(code, &self.target)
                )));
            }
            let region = reply.header("x-amz-bucket-region");
            if !region.is_empty() && region != object.region() {
                return Failure::Final(RemoteError::Settings(format!(
                    "the bucket is in another region; set AWS_REGION={region}"
                )));
            }
        }
        Failure::Final(match (status, code) {
            (StatusCode::NOT_FOUND | StatusCode::GONE, _) | (_, "NoSuchUpload" | "NoSuchBucket") => {
                RemoteError::NotFound(answer)
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) | (_, "AccessDenied") => {
                RemoteError::Denied(format!("{answer}: {}", advice(code, &self.target)))
            }
            (StatusCode::PRECONDITION_FAILED, _) => RemoteError::exists(),
            // Of success, but none that the protocol defines: from a proxy or a portal, or a failure that began late.
            _ if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE => {
                return Failure::Undefined(format!("{answer}; expected {}", expected.wanted()));
            }
            _ => RemoteError::Unsupported(answer),
        })
    }

    fn now(&self) -> Timestamp {
        let offset = SignedDuration::from_secs(self.clock.load(Ordering::Relaxed));
        Timestamp::now().checked_add(offset).unwrap_or_else(|_| Timestamp::now())
    }

    /// Takes the time from the server. Returns whether that makes a difference.
    fn set_clock(&self, date: &str) -> bool {
        let Some(date) = http_date(date) else { return false };
        let offset = date.as_second() - Timestamp::now().as_second();
        (self.clock.swap(offset, Ordering::Relaxed) - offset).abs() > SKEW
    }
}

impl Target {
    /// What is requested, as messages show it.
    fn name(&self) -> String {
        match self {
            Self::Web(url) => shown(url.as_ref()).display().to_string(),
            Self::S3(object) => object.name(),
        }
    }
}

/// The body of a request while it is sent.
struct Sending<'a> {
    bytes: &'a [u8],
    moved: &'a Moved,
    pace: Pace,
}

impl Read for Sending<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // The piece before is on its way.
        self.moved.now();
        if self.pace.is_slow() {
            return Err(io::Error::other("the server takes less than 1 KiB per second"));
        }
        let (piece, rest) = self.bytes.split_at(buf.len().min(PIECE).min(self.bytes.len()));
        buf[..piece.len()].copy_from_slice(piece);
        self.bytes = rest;
        self.pace.moved(piece.len() as u64);
        Ok(piece.len())
    }
}

/// Parses the value of a Date header: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

/// Whether a store answers this code, with whatever status, where another try can succeed. A part that changed on its way is a bad
/// digest; two requests for one object at a time are a conflict.
fn is_transient_code(code: &str) -> bool {
    matches!(
        code,
        "BadDigest"
            | "ConditionalRequestConflict"
            | "InternalError"
            | "OperationAborted"
            | "RequestTimeout"
            | "ServiceUnavailable"
            | "SlowDown"
    )
}

/// Whether a store answers this code because of the credentials, whatever the request is.
fn is_about_credentials(code: &str) -> bool {
    matches!(code, "ExpiredToken" | "InvalidToken" | "InvalidAccessKeyId" | "SignatureDoesNotMatch")
}

/// What to do about a refusal.
fn advice(code: &str, target: &Target) -> &'static str {
    match (code, target) {
        (_, Target::Web(_)) => "the URL needs credentials, or a signature in it has expired",
        ("SignatureDoesNotMatch", _) => "the secret key is wrong",
        ("InvalidAccessKeyId", _) => "the store does not know the access key",
        ("ExpiredToken" | "InvalidToken", _) => "get new temporary credentials",
        ("RequestTimeTooSkewed", _) => "the clock is wrong, and the server does not say what time it is",
        // Stores answer so for objects that do not exist, unless the credentials may list the bucket.
        _ => "there is no such object, or the credentials may not read it (s3:GetObject)",
    }
}

/// The certificates that are trusted: those of a file, else those compiled in.
fn root_certificates() -> Result<RootCerts, RemoteError> {
    let Some(path) = settings::ca_file()? else { return Ok(RootCerts::WebPki) };
    let wrong = |why: String| {
        RemoteError::Settings(format!("cannot read the certificates in {}: {why}", path.display()))
    };
    let bytes = fs::read(&path).map_err(|error| wrong(error.to_string()))?;
    let certificates: Vec<_> = parse_pem(&bytes)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(wrong("it has none (expected PEM)".to_owned()));
    }
    Ok(RootCerts::from(certificates))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_worth_a_notice() {
        // Nothing listens at the port of a listener that is gone.
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let notices = Arc::new(Mutex::new(Vec::new()));
        let shared = notices.clone();
        notice::send_to(move |text| shared.lock().unwrap().push(text.to_owned()));
        let target = Target::Web(format!("http://{gone}/dump?X-Amz-Signature=hidden"));
        let client =
            Client::with(target, Patience::of(Duration::from_millis(2500)), Stop::default()).unwrap();
        for _ in 0..2 {
            let failed = client.send(Call::new(Method::Get, Expected::Range, &[]));
            assert!(matches!(failed, Err(RemoteError::Unreachable(_))));
        }
        let notices = notices.lock().unwrap();
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].starts_with(&format!("http://{gone}/dump: ")), "{notices:?}");
        assert!(notices[0].contains("it is tried again for") && !notices[0].contains("hidden"));
    }

    #[test]
    fn dates_of_servers_are_understood() {
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT").map(Timestamp::as_second), Some(784_111_777));
        assert_eq!(http_date("yesterday"), None);
    }
}
