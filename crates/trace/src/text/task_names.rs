//! Cache of recent task names: saves UTF-8 checks and copies of names that have not changed.

use super::fields::begins;

/// Names by PID, direct-mapped.
#[derive(Default)]
pub(super) struct TaskNames {
    places: Vec<Place>,
}

#[derive(Clone, Default)]
struct Place {
    pid: i32,
    /// As in the line.
    bytes: Vec<u8>,
    /// As UTF-8.
    name: String,
}

const PLACES: usize = 256;

fn place(pid: i32) -> usize {
    pid.cast_unsigned() as usize % PLACES
}

impl TaskNames {
    /// Stores the name that a line gives a task. Returns whether it changed.
    #[inline]
    pub(super) fn changes(&mut self, pid: i32, bytes: &[u8]) -> bool {
        if let Some(known) = self.places.get(place(pid))
            && known.pid == pid
            && known.bytes.len() == bytes.len()
            && begins(bytes, &known.bytes)
        {
            return false;
        }
        self.replace(pid, bytes);
        true
    }

    #[cold]
    fn replace(&mut self, pid: i32, bytes: &[u8]) {
        if self.places.is_empty() {
            self.places.resize(PLACES, Place::default());
        }
        if let Some(known) = self.places.get_mut(place(pid)) {
            known.pid = pid;
            known.bytes.clear();
            known.bytes.extend_from_slice(bytes);
            known.name.clear();
            known.name.push_str(&String::from_utf8_lossy(bytes));
        }
    }

    /// Returns the last name of this PID, or of one that shares its entry.
    #[inline]
    pub(super) fn name(&self, pid: i32) -> &str {
        self.places.get(place(pid)).map_or("", |known| &known.name)
    }
}
