//! An object store that takes small objects.

use std::collections::BTreeMap;

use pagehaul_test_support::server::{Request, Response};

/// Objects by path, and parts of those that are not complete.
#[derive(Default)]
pub struct Store {
    pub objects: BTreeMap<String, Vec<u8>>,
    parts: BTreeMap<String, Vec<u8>>,
    pub denies: bool,
}

impl Store {
    pub fn answer(&mut self, request: &Request) -> Response {
        let (path, query) = request.target.split_once('?').unwrap();
        let etag = || Response {
            status: 200,
            headers: vec![("ETag".into(), "\"e\"".into())],
            ..Response::default()
        };
        match (request.method.as_str(), self.objects.get(path)) {
            ("GET", Some(object)) => Response::range(request, object, "v1"),
            ("HEAD", Some(object)) => Response { status: 200, body: object.clone(), ..Response::default() },
            ("HEAD", None) => Response::status(404, ""),
            ("GET", None) => {
                Response::status(200, "<ListMultipartUploadsResult></ListMultipartUploadsResult>")
            }
            ("PUT", _) if self.denies => Response::status(403, "<Error><Code>AccessDenied</Code></Error>"),
            ("PUT", _) => {
                assert!(query.contains("partNumber=1&"), "one part holds a small dump: {query}");
                self.parts.insert(path.to_owned(), request.body.clone());
                etag()
            }
            ("POST", _) if query.contains("uploadId=") => {
                self.objects.insert(path.to_owned(), self.parts.remove(path).unwrap());
                Response::status(
                    200,
                    "<CompleteMultipartUploadResult><ETag>e-1</ETag></CompleteMultipartUploadResult>",
                )
            }
            ("POST", _) => Response::status(
                200,
                "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>",
            ),
            (other, _) => panic!("{other}"),
        }
    }
}
