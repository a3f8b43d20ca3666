//! Why a try of a request failed.

use std::io;
use std::time::Duration;

use jiff::Timestamp;

use crate::error::RemoteError;
use crate::redirect::Refused;

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

impl Failure {
    /// Another try may succeed at once.
    pub(crate) fn transient(why: String) -> Self {
        Self::Transient(why, Duration::ZERO)
    }

    /// Messages leave out the URL, which is signed.
    pub(crate) fn of(error: &ureq::Error) -> Self {
        let transient = |why: &str| Self::Transient(why.to_owned(), Duration::ZERO);
        let settings = |why: String| Self::Final(RemoteError::Settings(why));
        let certificate = |why: String| settings(format!("TLS: {why}"));
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
            ureq::Error::BodyStalled => transient("the answer does not go on"),
            ureq::Error::LargeResponseHeader(_, most) => Self::Final(RemoteError::Undefined(format!(
                "the headers of the answer take more than {} KiB",
                most >> 10
            ))),
            ureq::Error::InvalidProxyUrl => settings("the proxy in the environment is not a URL".to_owned()),
            ureq::Error::ConnectProxyFailed(_) => transient("the proxy refuses the connection"),
            ureq::Error::Other(error) if error.is::<Refused>() => {
                Self::Final(RemoteError::Unsupported(error.to_string()))
            }
            ureq::Error::Http(_) | ureq::Error::BadUri(_) => settings("the URL is not valid".to_owned()),
            _ => transient("the request failed"),
        }
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
