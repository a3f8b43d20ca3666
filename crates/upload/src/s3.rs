//! Objects of stores.

use pagehaul_physmem::file::shown;
use pagehaul_present::number;
use pagehaul_remote::{RemoteError, Upload};

use crate::error::{Lost, UploadError};
use crate::{Means, Opened, Stream, Uploaded};

/// Begins an upload to an object, or continues an earlier one.
pub(crate) fn open(url: &str, most_bytes: u64, means: Means) -> Result<Opened, UploadError> {
    let name = shown(url.as_ref()).display().to_string();
    // Each try of an encrypted stream has another key.
    let again = match means.recipients {
        None => "what was uploaded stays in the store; the same command continues there",
        Some(_) => {
            "what was uploaded stays in the store; the same command begins anew, since the dump is encrypted"
        }
    };
    let upload = Upload::begin(url, most_bytes, means.memory, means.stop)
        .map_err(|error| UploadError::refused(format!("cannot write {name}: {error}")))?;
    let (room, memory) = (upload.room(), upload.memory());
    let warning = (room < most_bytes).then(|| {
        format!(
            "the upload has room for {}, but the dump may have {}: there is not enough memory for larger parts",
            number::bytes(room),
            number::bytes(most_bytes)
        )
    });
    let send = move |stream: &mut Stream| match upload.send(stream) {
        Ok(sent) => Ok(Uploaded { resumed: sent.resumed }),
        // The upload is gone from the store: another one begins anew.
        Err(error @ RemoteError::NotFound(_)) => {
            Err(UploadError::lost(format!("cannot write {name}: {error}"), Lost::Replaced))
        }
        Err(error) => Err(UploadError::refused(format!("cannot write {name}; {again}: {error}"))),
    };
    Ok(Opened { memory, warning, send: Box::new(send) })
}
