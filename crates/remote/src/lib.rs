//! Files of web servers and objects of S3 object stores, read by ranges; uploads to stores ([`Upload`]).
//!
//! [`RemoteFile`] is a [`ReadAt`](pagehaul_physmem::file::ReadAt): readers of dumps take it as they take a file. It keeps up to
//! 64 MiB of what it fetched, fetches in larger ranges where reads follow each other, and tries again what can succeed later.
//! Every response is checked against the object that was opened, so that one that is replaced meanwhile is an error.
//! After a fork, the child can read the files that its parent opened. It makes new connections.

mod cache;
mod call;
mod client;
mod error;
mod file;
mod forks;
mod location;
mod object;
mod process;
mod s3;
#[cfg(test)]
#[path = "../tests/server/mod.rs"]
mod server;
mod settings;
mod upload;
mod xml;

pub use cache::{Fetched, fetched};
pub use error::RemoteError;
pub use file::RemoteFile;
pub use process::fetch_in_another_process;
pub use upload::{Upload, Uploaded};
