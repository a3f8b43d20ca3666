//! One request, as a client sends it.

use std::time::Duration;

use rusty_s3::Method;

use crate::answer::Expected;

/// Bytes of an answer that is not part of an object.
const MAX_ANSWER: u64 = 4 << 20;
/// How long an answer to a body may take.
const ANSWER: Duration = Duration::from_secs(30);

/// A request.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    /// Whether it is for the bucket, not the object.
    pub(crate) for_bucket: bool,
    /// Names and values, by name.
    pub(crate) query: &'a [(&'a str, &'a str)],
    /// Names in lower case and values, by name.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: Option<&'a [u8]>,
    /// How long the answer to a body may take.
    pub(crate) answer: Duration,
    /// Which answer is a yes.
    pub(crate) expected: Expected,
    /// How much of the answer is read.
    pub(crate) most: u64,
    /// Whether the caller can use an answer that is cut.
    pub(crate) takes_cut: bool,
    /// Query of a GET without a body that the store refuses for the same reasons.
    pub(crate) check: Option<&'a [(&'a str, &'a str)]>,
}

impl<'a> Call<'a> {
    /// A request for the object without a body.
    pub(crate) fn new(method: Method, expected: Expected, query: &'a [(&'a str, &'a str)]) -> Self {
        Self {
            method,
            expected,
            for_bucket: false,
            query,
            headers: &[],
            body: None,
            answer: ANSWER,
            most: MAX_ANSWER,
            takes_cut: false,
            check: None,
        }
    }
}
