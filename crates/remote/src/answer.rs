//! Which answers are a yes. The table is in the documentation of the crate.

use ureq::http::{HeaderMap, StatusCode};

use crate::xml::Element;

/// The answer to a request that is a yes. Every other one is an error, whatever its status is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// 206 with bytes of an object, or that it has none: 416, or 200. What they say of the object is judged where it is known.
    Range,
    /// 200 to HEAD.
    Head,
    /// 200 with an ETag and without a body.
    Stored,
    /// 200 with a whole document whose root has this name.
    List(&'static str),
    /// 200 with a whole document whose root has the first name, and an element with text of the second.
    Result(&'static str, &'static str),
}

/// A response.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Why the body ended early, if it did.
    pub(crate) cut: Option<String>,
    /// The body as a document, if it is one, and no part of an object.
    pub(crate) document: Option<Element>,
}

impl Reply {
    /// The value of a header; empty if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// The text of an element of the document's root; empty if there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.document.as_ref().and_then(|document| document.text(name)).unwrap_or_default()
    }

    /// The code of an error; empty if there is none.
    pub(crate) fn error_code(&self) -> &str {
        // It becomes part of a message.
        let is_code = |code: &str| code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let code = if self.is_error() { self.text("Code") } else { "" };
        if is_code(code) { code } else { "" }
    }

    /// The coding of the body, if it is not that of the file: bytes of a compressed copy have other places.
    pub(crate) fn coding(&self) -> Option<&str> {
        // The second is how some stores sent what they stored.
        let is_plain = |coding: &str| ["", "identity", "aws-chunked"].contains(&coding.trim());
        let coding = self.headers.get("content-encoding")?.to_str().unwrap_or("unknown");
        (!coding.split(',').all(is_plain)).then_some(coding)
    }

    /// Whether the document is an error, which stores send after a status of success, too.
    pub(crate) fn is_error(&self) -> bool {
        self.document.as_ref().is_some_and(|document| document.name == "Error")
    }
}

impl Expected {
    pub(crate) fn accepts(self, reply: &Reply) -> bool {
        let is_ok = reply.status == StatusCode::OK;
        let is_root = |name: &str| reply.document.as_ref().is_some_and(|document| document.name == name);
        match self {
            Self::Range => {
                is_ok
                    || matches!(reply.status, StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE)
            }
            Self::Head => is_ok,
            Self::Stored => is_ok && !reply.header("etag").is_empty() && reply.body.trim_ascii().is_empty(),
            Self::List(root) => is_ok && is_root(root),
            Self::Result(root, element) => is_ok && is_root(root) && !reply.text(element).is_empty(),
        }
    }

    /// What is missing in an answer of success that is none of these.
    pub(crate) fn wanted(self) -> String {
        match self {
            Self::Range => "a range of bytes".to_owned(),
            Self::Head => "200 OK".to_owned(),
            Self::Stored => "200 OK with an ETag and no body".to_owned(),
            Self::List(root) => format!("200 OK with a whole {root}"),
            Self::Result(root, element) => format!("200 OK with a whole {root} with its {element}"),
        }
    }
}
