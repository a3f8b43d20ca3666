use std::time::{Duration, Instant};

use pagehaul_run::{Patience, Retry, Stop};

/// Uploads that may find that what they sent is not there, or another's. Two hosts behind one name would do that each time, and leave
/// a copy each time.
const MAX_REPLACED: u32 = 2;
/// An upload that takes less has no progress to speak of, whatever it sent.
const SHORT: Duration = Duration::from_secs(10);

/// Why an upload failed. The message names its URL.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct UploadError {
    message: String,
    /// Set if another upload of the same stream can continue this one.
    lost: Option<Lost>,
}

/// What an upload left whose connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Nothing was sent.
    Nothing,
    /// What was sent stays there.
    Progress,
    /// What was sent is not there, or is another's.
    Replaced,
}

impl UploadError {
    /// An upload that cannot succeed.
    pub(crate) fn refused(message: String) -> Self {
        Self { message, lost: None }
    }

    /// An upload whose connection was lost.
    pub(crate) fn lost(message: String, lost: Lost) -> Self {
        Self { message, lost: Some(lost) }
    }

    /// Whether another upload of the same stream can continue this one.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }
}

/// The uploads of one stream, one after another.
#[derive(Debug)]
pub struct Tries {
    retry: Retry,
    stop: Stop,
    began: Instant,
    was_reached: bool,
    replaced: u32,
}

impl Tries {
    /// The first upload begins.
    pub fn new(stop: &Stop) -> Self {
        let retry = Retry::new(Patience::UPLOAD.first, stop);
        Self { retry, stop: stop.clone(), began: Instant::now(), was_reached: false, replaced: 0 }
    }

    /// Waits for another upload after one that failed. Returns whether there is to be one.
    pub fn another(&mut self, error: &UploadError) -> bool {
        let Some(lost) = error.lost else { return false };
        let reaches = lost != Lost::Nothing;
        if reaches && (!self.was_reached || self.began.elapsed() >= SHORT) {
            self.retry = Retry::new(Patience::UPLOAD.later, &self.stop);
        }
        self.was_reached |= reaches;
        self.replaced += u32::from(lost == Lost::Replaced);
        // The stream would be made anew as if nothing had cancelled it.
        let is_another = self.replaced <= MAX_REPLACED
            && !self.stop.is_cancelled()
            && self.retry.wait(Duration::ZERO)
            && !self.stop.is_cancelled();
        self.began = Instant::now();
        is_another
    }

    /// How long it is tried without progress.
    pub fn limit(&self) -> Duration {
        self.retry.limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_never_there_ends() {
        let mut tries = Tries::new(&Stop::default());
        let error = UploadError::lost("lost".into(), Lost::Replaced);
        assert_eq!((0..20).take_while(|_| tries.another(&error)).count(), MAX_REPLACED as usize);
        assert!(!Tries::new(&Stop::default()).another(&UploadError::refused("refused".into())));
    }
}
