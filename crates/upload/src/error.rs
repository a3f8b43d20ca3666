use std::time::Duration;

use pagehaul_run::{Patience, Retry, Stop};

/// Why an upload failed. The message names its URL.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct UploadError {
    message: String,
    /// Set if another upload of the same stream can continue this one: whether this one brought something there.
    lost: Option<bool>,
}

impl UploadError {
    /// An upload that cannot succeed.
    pub(crate) fn refused(message: String) -> Self {
        Self { message, lost: None }
    }

    /// An upload whose connection was lost. What was sent stays there; `has_progress` is whether something was.
    pub(crate) fn lost(message: String, has_progress: bool) -> Self {
        Self { message, lost: Some(has_progress) }
    }

    /// Whether another upload of the same stream can continue this one.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Waits for another upload of the same stream. Returns whether there is to be one.
    pub fn wait(&self, retry: &mut Retry, stop: &Stop) -> bool {
        if self.lost == Some(true) {
            *retry = Retry::new(Patience::UPLOAD.later, stop);
        }
        // The stream would be made anew as if nothing had cancelled it.
        self.is_lost() && !stop.is_cancelled() && retry.wait(Duration::ZERO) && !stop.is_cancelled()
    }
}
