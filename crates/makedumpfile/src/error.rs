use std::io;

use pagehaul_capture::CaptureError;
use pagehaul_encryption::{EncryptionError, RecipientError};
use pagehaul_kdump::write::RearrangeError;
use pagehaul_kernel::KernelError;
use pagehaul_output::OutputError;
use pagehaul_physmem::OpenError;
use pagehaul_sandbox::EnterError;
use pagehaul_upload::UploadError;
use pagehaul_vmcore::SourceError;

use crate::hints::with_own_options;
use crate::host::HostError;

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The request could do harm, or not what its author wants.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Encrypt(#[from] EncryptionError),
    #[error(transparent)]
    Enter(#[from] EnterError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{path}")]
    Log { path: String, source: KernelError },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("nothing is written, since it is to be encrypted to the recipients in {file}")]
    Recipients { file: String, source: RecipientError },
    #[error(transparent)]
    Rearrange(#[from] RearrangeError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("{what}")]
    System { what: String, source: io::Error },
    #[error(transparent)]
    Upload(#[from] UploadError),
}

impl Error {
    /// Returns the error of a call to the system.
    pub(crate) fn system(what: String) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// The error and its causes, in one sentence.
    pub(crate) fn sentence(&self) -> String {
        let first: &dyn std::error::Error = self;
        with_own_options(pagehaul_present::sentence(std::iter::successors(Some(first), |error| {
            error.source()
        })))
    }
}
