use std::fs::File;
use std::path::Path;

use pagehaul_trace::live::{Recorder, RecorderOptions, RecordingSummary};

use crate::error::LatencyError;
use crate::probes::Probes;
use crate::setup::Setup;

/// Records the events of a [`Setup`] to a file.
pub struct EventRecorder {
    /// Before the probes, which can only be removed once no instance uses them.
    recorder: Recorder,
    probes: Option<Probes>,
}

impl EventRecorder {
    /// Starts recording to `file`, which messages call `path`. `command` is stored in it.
    ///
    /// # Errors
    /// [`LatencyError`] if the kernel refuses or the file cannot be written.
    pub fn start(
        setup: Setup,
        (file, path): (File, &Path),
        command: &[String],
    ) -> Result<Self, LatencyError> {
        let Setup { instance, probes, .. } = setup;
        let options =
            RecorderOptions { command: command.to_vec(), without_self: true, ..RecorderOptions::default() };
        let recorder = Recorder::start(instance, (file, path), &options)?;
        Ok(Self { recorder, probes })
    }

    /// Returns whether recording failed; [`EventRecorder::finish`] returns its error.
    pub fn failed(&self) -> bool {
        self.recorder.failed()
    }

    /// Stops recording and completes the file.
    ///
    /// # Errors
    /// The first [`LatencyError`]; readers then report the file as truncated.
    pub fn finish(self) -> Result<RecordingSummary, LatencyError> {
        let summary = self.recorder.finish()?;
        drop(self.probes);
        Ok(summary)
    }
}

impl From<Recorder> for EventRecorder {
    /// Takes a recorder whose events need no probes.
    fn from(recorder: Recorder) -> Self {
        Self { recorder, probes: None }
    }
}
