//! Requests for one object: signed, tried again where that can help, with errors that say what to do.

use std::fs;
use std::io::{self, Read};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rusty_s3::Method;
use ureq::http::{Request, StatusCode};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use crate::answer::{Expected, Reply};
use crate::call::Call;
use crate::location::Location;
use crate::s3::S3Object;
use crate::xml::Element;
use crate::{RemoteError, settings};

/// Wait before the second try; each further one waits twice as long, up to the most.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const MOST_WAIT: Duration = Duration::from_secs(5);
/// Limits of one request: to connect, and until the next byte.
const CONNECT: Duration = Duration::from_secs(10);
const STALL: Duration = Duration::from_secs(30);
/// Bytes of an error's body that are read.
const MOST_ERROR: u64 = 64 << 10;
/// A clock that differs by less is not the reason why a request is refused.
const SKEW: i64 = 60;

/// How long a request is tried again whose answers are none that the protocol defines.
const UNDEFINED: Duration = Duration::from_secs(20);

/// How long requests are tried again after the last byte that came.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

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
    patience: Duration,
    /// Seconds to add to this machine's clock.
    clock: AtomicI64,
    /// Why the server is given up: later requests fail at once.
    given_up: OnceLock<RemoteError>,
}

/// Why one try failed.
pub(crate) enum Failure {
    /// Another try may succeed, after some time.
    Transient(String, Duration),
    /// The answer is none that the protocol defines. Another try may get one, for a short time only.
    Undefined(String),
    /// The credentials are not valid.
    Credentials(RemoteError),
    Final(RemoteError),
}

impl Client {
    pub(crate) fn new(location: &Location, patience: Duration) -> Result<Self, RemoteError> {
        let target = match location {
            Location::Web(url) => Target::Web(url.clone()),
            Location::Bucket { bucket, key } => Target::S3(Box::new(S3Object::new(bucket, key)?)),
        };
        Self::with(target, patience)
    }

    /// A client of an object whose settings are known.
    pub(crate) fn with(target: Target, patience: Duration) -> Result<Self, RemoteError> {
        let tls = TlsConfig::builder().root_certs(root_certificates()?).build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .user_agent(concat!("pagehaul/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(STALL))
            .timeout_per_read(Some(STALL))
            .timeout_per_write(Some(STALL))
            .build();
        Ok(Self {
            agent: agent.into(),
            target,
            patience,
            clock: AtomicI64::new(0),
            given_up: OnceLock::new(),
        })
    }

    /// Gets bytes `start` to `end`, or fewer if the body is cut.
    pub(crate) fn get(&self, start: u64, end: u64) -> Result<Reply, RemoteError> {
        let range = format!("bytes={start}-{}", end - 1);
        let headers = [("range", range.as_str())];
        self.send(Call {
            headers: &headers,
            most: end - start,
            takes_cut: true,
            ..Call::new(Method::Get, Expected::Range, &[])
        })
    }

    /// Sends a request until the server answers it.
    pub(crate) fn send(&self, call: Call<'_>) -> Result<Reply, RemoteError> {
        let mut tries = self.tries();
        loop {
            match self.try_once(call) {
                Ok(reply) => return Ok(reply),
                Err(failure) => tries.wait(failure, call.check)?,
            }
        }
    }

    /// Begins to try a request.
    pub(crate) fn tries(&self) -> Tries<'_> {
        Tries { client: self, begin: Instant::now(), wait: FIRST_WAIT, count: 0 }
    }

    /// Returns why the store refuses all further requests. A store that refuses a body closes the connection while the body is
    /// sent, and its answer is lost.
    fn refusal(&self, query: &[(&str, &str)]) -> Option<RemoteError> {
        match self.try_once(Call::new(Method::Get, Expected::List(LIST_OF_PARTS), query)) {
            Err(Failure::Credentials(error) | Failure::Final(error @ RemoteError::NotFound(_))) => {
                Some(error)
            }
            _ => None,
        }
    }

    /// Sends a request once.
    pub(crate) fn try_once(&self, call: Call<'_>) -> Result<Reply, Failure> {
        if let Some(error) = self.given_up.get() {
            return Err(Failure::Final(error.clone()));
        }
        let url = match &self.target {
            Target::Web(url) => url.clone(),
            Target::S3(object) => {
                // Stores want these signed; others, such as Range, need not be.
                let is_signed = |name: &str| name.starts_with("x-amz-") || name == "if-none-match";
                let signed: Vec<_> =
                    call.headers.iter().copied().filter(|(name, _)| is_signed(name)).collect();
                object.sign(self.now(), &call, &signed)
            }
        };
        let mut request = Request::builder().method(call.method.to_str()).uri(url);
        for (name, value) in call.headers {
            request = request.header(*name, *value);
        }
        let wrong = |_| Failure::Final(RemoteError::Settings("the URL is not valid".to_owned()));
        let sent = match call.body {
            Some(body) => self.agent.run(request.body(body).map_err(wrong)?),
            None => self.agent.run(request.body(()).map_err(wrong)?),
        };
        let (parts, body) = sent.map_err(|error| failure(&error))?.into_parts();
        let limit = if parts.status.is_success() { call.most } else { MOST_ERROR };
        let (body, cut) = read(body, limit);
        let is_object = call.expected == Expected::Range && parts.status.is_success();
        let document = if is_object { None } else { Element::parse(&body) };
        let reply = Reply { status: parts.status, headers: parts.headers, body, cut, document };
        match &reply.cut {
            Some(why) if reply.status.is_success() && !call.takes_cut => {
                Err(Failure::Transient(why.clone(), Duration::ZERO))
            }
            _ if call.expected.accepts(&reply) => Ok(reply),
            _ => Err(self.judge(&reply, call.expected)),
        }
    }

    /// Decides what an answer means that is not a yes.
    fn judge(&self, reply: &Reply, expected: Expected) -> Failure {
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

/// A request that is tried.
pub(crate) struct Tries<'a> {
    client: &'a Client,
    begin: Instant,
    wait: Duration,
    count: u32,
}

impl Tries<'_> {
    /// Waits for the next try. Fails if there is to be none: another one cannot succeed, or they took too long. A request without
    /// a body, whose query is `check`, tells what the store refuses.
    pub(crate) fn wait(
        &mut self,
        failure: Failure,
        check: Option<&[(&str, &str)]>,
    ) -> Result<(), RemoteError> {
        self.count += 1;
        let gave_up = |why| format!("{why}; gave up at try {}", self.count);
        let least = match failure {
            Failure::Final(error) | Failure::Credentials(error) => return Err(error),
            Failure::Undefined(why) if self.begin.elapsed() >= self.client.patience.min(UNDEFINED) => {
                return Err(RemoteError::Undefined(gave_up(why)));
            }
            Failure::Transient(why, _) if self.begin.elapsed() >= self.client.patience => {
                let error = RemoteError::Unreachable(gave_up(why));
                return Err(self.client.given_up.get_or_init(|| error).clone());
            }
            Failure::Undefined(_) => Duration::ZERO,
            Failure::Transient(_, least) => least,
        };
        if let Some(error) = check.and_then(|query| self.client.refusal(query)) {
            return Err(error);
        }
        thread::sleep(self.wait.max(least).min(MOST_WAIT));
        self.wait = (self.wait * 2).min(MOST_WAIT);
        Ok(())
    }
}

/// Parses the value of a Date header: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
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

fn read(body: Body, most: u64) -> (Vec<u8>, Option<String>) {
    let mut bytes = Vec::new();
    // A limit of its own would be an error: what is left is of no interest.
    let mut reader = body.into_with_config().limit(u64::MAX).reader().take(most);
    let cut = reader.read_to_end(&mut bytes).err();
    (bytes, cut.map(|error| error.to_string()))
}

/// Messages leave out the URL, which is signed.
fn failure(error: &ureq::Error) -> Failure {
    let transient = |why: &str| Failure::Transient(why.to_owned(), Duration::ZERO);
    let certificate = |why: String| Failure::Final(RemoteError::Settings(format!("TLS: {why}")));
    match error {
        // What the certificate check finds comes as invalid data.
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            match error.get_ref().and_then(|error| error.downcast_ref()) {
                Some(error) => certificate(tls_failure(error)),
                None => certificate(error.to_string()),
            }
        }
        ureq::Error::Rustls(error) => certificate(tls_failure(error)),
        ureq::Error::Tls(why) => certificate((*why).to_owned()),
        ureq::Error::Io(error) => transient(&error.to_string()),
        ureq::Error::Timeout(what) => transient(&format!("no answer in time ({what})")),
        ureq::Error::HostNotFound => transient("the name of the host is not known"),
        ureq::Error::ConnectionFailed => transient("the server cannot be reached"),
        ureq::Error::Protocol(_) => transient("the answer is not valid HTTP"),
        ureq::Error::InvalidProxyUrl => {
            Failure::Final(RemoteError::Settings("the proxy in the environment is not a URL".to_owned()))
        }
        ureq::Error::TooManyRedirects => {
            Failure::Final(RemoteError::Unsupported("too many redirects".to_owned()))
        }
        _ => Failure::Final(RemoteError::Settings("the URL is not valid".to_owned())),
    }
}

fn tls_failure(error: &rustls::Error) -> String {
    use rustls::{CertificateError as Reason, Error};
    let clock = || Timestamp::now().strftime("%F %T UTC").to_string();
    match error {
        Error::InvalidCertificate(Reason::NotValidYet | Reason::NotValidYetContext { .. }) => {
            format!(
                "the server's certificate is not valid yet by this machine's clock ({}); set the clock",
                clock()
            )
        }
        Error::InvalidCertificate(Reason::Expired | Reason::ExpiredContext { .. }) => {
            format!("the server's certificate has expired by this machine's clock ({})", clock())
        }
        error => {
            format!("{error}; for a private certificate authority, set SSL_CERT_FILE to its certificate")
        }
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
    use super::*;

    #[test]
    fn dates_of_servers_are_understood() {
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT").map(Timestamp::as_second), Some(784_111_777));
        assert_eq!(http_date("yesterday"), None);
    }
}
