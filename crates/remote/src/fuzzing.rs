//! Entry points for fuzz targets: everything that a server says.

use std::sync::LazyLock;

use pagehaul_run::{Patience, Stop};
use ureq::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::answer::{Expected, Reply};
use crate::client::{Client, LIST_OF_PARTS, Target, http_date};
use crate::location::Location;
use crate::object::parse_content_range;
use crate::redirect::Rules;
use crate::s3::S3Object;
use crate::settings::{Credentials, Settings, section};
use crate::upload;
use crate::xml::Element;

static CLIENT: LazyLock<Option<Client>> = LazyLock::new(|| {
    let credentials = Credentials { key: "A".into(), secret: "B".into(), token: None };
    let endpoint = Some("http://127.0.0.1:1".to_owned());
    let object = S3Object::with(Settings { credentials, endpoint, region: "r".into() }, "b", "k").ok()?;
    Client::with(Target::S3(Box::new(object)), Patience::READ, Stop::default()).ok()
});

/// Judges an answer for every kind of request: two bytes of status, lines of headers, an empty line, the body. Returns whether one
/// of them takes it for a yes.
pub fn answer(data: &[u8]) -> bool {
    let (Some((status, rest)), Some(client)) = (data.split_first_chunk(), &*CLIENT) else { return false };
    let Ok(status) = StatusCode::from_u16(u16::from_le_bytes(*status)) else { return false };
    let end = rest.windows(2).position(|pair| pair == b"\n\n").unwrap_or(rest.len());
    let body = rest.get(end + 2..).unwrap_or_default().to_vec();
    let header = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        Some((name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
    };
    let headers: HeaderMap = rest[..end].split(|byte| *byte == b'\n').filter_map(header).take(100).collect();
    let reply = Reply { status, headers, document: Element::parse(&body), body, cut: None };
    let code = reply.error_code();
    assert!(code.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let _ = (reply.coding(), http_date(reply.header("date")));
    if let Some((first, size)) = parse_content_range(reply.header("content-range")) {
        assert!(first < size);
    }
    if let Ok(to) = Rules::new().follow("https://a.example/x", reply.header("location")) {
        assert!(to.starts_with("https://"));
    }
    for part in reply.document.iter().flat_map(|list| list.all("Part")) {
        let _ = upload::part(part);
    }
    let _ = reply.document.as_ref().and_then(|list| upload::unfinished(list, "k"));
    let mut is_yes = false;
    for expected in [
        Expected::Range,
        Expected::Head,
        Expected::Stored,
        Expected::List(LIST_OF_PARTS),
        Expected::Result("CompleteMultipartUploadResult", "ETag"),
    ] {
        if expected.accepts(&reply) {
            assert!(status == 200 || expected == Expected::Range);
            assert!(!matches!(expected, Expected::Stored | Expected::Result(..)) || !reply.is_error());
            is_yes = true;
        } else {
            let _ = client.judge(&reply, expected);
        }
    }
    is_yes
}

/// Parses what a user or a file says: a URL, and the settings of a store.
pub fn settings(text: &str) {
    let _ = Location::parse(text);
    let _ = section(text, &["default"]);
}
