//! Files of web servers and objects of S3 object stores, read by ranges; uploads to stores ([`Upload`]).
//!
//! [`RemoteFile`] is a [`ReadAt`](pagehaul_physmem::file::ReadAt): readers of dumps take it as they take a file. It keeps up to
//! 64 MiB of what it fetched, fetches in larger ranges where reads follow each other, and tries again what can succeed later. What a
//! reader announces is fetched together, with up to 16 requests in flight. Every response is checked against the object that was
//! opened, so that one that is replaced meanwhile is an error.
//!
//! # Which answer is a yes
//! Each request has one answer that the protocol defines; every other one is an error, whatever its status. A body that
//! ends before its length is never a yes, except that a range is continued where it ended.
//!
//! | request | a yes |
//! |---|---|
//! | range of an object | 206, its `Content-Range` with the first byte asked for and the size known, the version that was opened, the coding of the file; when opening also 416, or 200 without a byte: the object is empty |
//! | HEAD before an upload | 404: there is no object; 403: the credentials cannot tell, and the upload must not replace one (`If-None-Match: *`) |
//! | list of uploads | 200, a whole `ListMultipartUploadsResult`; where the credentials or the store do not allow it, nothing is resumed |
//! | list of parts | 200, a whole `ListPartsResult` |
//! | begin an upload | 200, a whole `InitiateMultipartUploadResult` with an `UploadId` |
//! | upload a part | 200, an ETag, the checksum that was sent, if any, no body |
//! | complete an upload | 200, a whole `CompleteMultipartUploadResult` with an `ETag`, and the checksum that was sent; without one, HEAD must not show another size or checksum |
//! | HEAD after any other answer to that | 200, the size and the CRC64NVME that were sent |
//!
//! An `Error` document counts by its code, after a status of success, too.
//!
//! After a fork, the child can read the files that its parent opened. It makes new connections.

mod answer;
mod cache;
mod call;
mod client;
mod error;
mod failure;
mod file;
mod forks;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod location;
mod notice;
mod object;
mod process;
mod redirect;
mod s3;
mod settings;
mod upload;
mod xml;

pub use cache::{Fetched, fetched};
pub use error::RemoteError;
pub use file::{RemoteFile, failure};
pub use notice::print_notices;
pub use process::fetch_in_another_process;
pub use upload::{Upload, Uploaded};
