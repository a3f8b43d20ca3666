use std::sync::Mutex;

use jiff::Timestamp;
use rusty_s3::{Bucket, UrlStyle, signing};

use crate::call::Call;
use crate::error::RemoteError;
use crate::settings::{Credentials, Settings};

/// Seconds for which a signed URL is valid: as long as a server accepts a clock that differs.
const VALID: u64 = 15 * 60;

/// One object of a bucket, and what is needed to sign requests for it.
pub(crate) struct S3Object {
    bucket: Bucket,
    key: String,
    credentials: Mutex<Credentials>,
}

impl S3Object {
    /// Returns an object of a bucket, with settings from where they are found.
    pub(crate) fn new(bucket: &str, key: &str) -> Result<Self, RemoteError> {
        Self::with(Settings::find()?, bucket, key)
    }

    pub(crate) fn with(settings: Settings, bucket: &str, key: &str) -> Result<Self, RemoteError> {
        let endpoint = settings
            .endpoint
            .clone()
            .unwrap_or_else(|| format!("https://s3.{}.amazonaws.com", settings.region));
        // TLS certificates of Amazon cover one label before `s3`; other stores often have no names for buckets.
        let path_style = settings.endpoint.is_some() || bucket.contains('.');
        let style = if path_style { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let parsed = endpoint.parse().map_err(|_| ()).and_then(|endpoint| {
            Bucket::new(endpoint, style, bucket.to_owned(), settings.region.clone()).map_err(|_| ())
        });
        let bucket = parsed.map_err(|()| {
            RemoteError::Settings(format!(
                "the endpoint {endpoint} and the bucket {bucket} do not make a URL; the endpoint starts with https:// or http://"
            ))
        })?;
        Ok(Self { bucket, key: key.to_owned(), credentials: Mutex::new(settings.credentials) })
    }

    /// Returns its URL, as messages show it.
    pub(crate) fn name(&self) -> String {
        format!("s3://{}/{}", self.bucket.name(), self.key)
    }

    /// Returns the region that requests are signed for.
    pub(crate) fn region(&self) -> &str {
        self.bucket.region()
    }

    /// Looks for credentials again, since those used so far have expired. Returns whether there are others.
    pub(crate) fn renew(&self) -> bool {
        let Ok(settings) = Settings::find() else { return false };
        let mut credentials = self.lock();
        let differ = *credentials != settings.credentials;
        *credentials = settings.credentials;
        differ
    }

    /// Returns a URL that is valid for one kind of request, with these headers, from `time` on.
    pub(crate) fn sign(&self, time: Timestamp, call: &Call<'_>, headers: &[(&str, &str)]) -> String {
        let credentials = self.lock().clone();
        let url =
            if call.for_bucket { self.bucket.base_url().clone() } else { self.bucket.object_url(&self.key) };
        signing::sign(
            &time,
            call.method,
            url,
            &credentials.key,
            &credentials.secret,
            credentials.token.as_deref(),
            self.bucket.region(),
            VALID,
            call.query.iter().copied(),
            headers.iter().copied(),
        )
        .into()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Credentials> {
        self.credentials.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
