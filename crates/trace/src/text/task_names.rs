//! Names of the tasks seen last, so that no line has to be checked for UTF-8 and no name copied but when it is a new one.

use super::fields::begins;

/// Names by PID, in places that PIDs share.
#[derive(Default)]
pub(super) struct TaskNames {
    places: Vec<Place>,
}

#[derive(Clone, Default)]
struct Place {
    pid: i32,
    /// As the line has it.
    bytes: Vec<u8>,
    /// The same as text.
    name: String,
}

const PLACES: usize = 256;

fn place(pid: i32) -> usize {
    pid.cast_unsigned() as usize % PLACES
}

impl TaskNames {
    /// Takes the name that a line gives a task; whether it is another than before.
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

    /// The name that was given last to this PID, or to one that shares its place.
    #[inline]
    pub(super) fn name(&self, pid: i32) -> &str {
        self.places.get(place(pid)).map_or("", |known| &known.name)
    }
}
