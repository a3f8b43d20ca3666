use super::EventFormat;

/// All kinds of events a trace knows.
#[derive(Debug, Clone, Default)]
pub struct Formats {
    formats: Vec<EventFormat>,
    /// Index in `formats` plus one by the id in records; 0 where there is none.
    by_id: Vec<u32>,
}

impl Formats {
    /// Adds a format, gives it its index, and returns it. One of the same id takes the earlier one's place in look-ups.
    pub fn add(&mut self, mut format: EventFormat) -> usize {
        let index = self.formats.len();
        format.index = index;
        // Records name their event in 16 bits.
        if let (Ok(id), Ok(number)) = (u16::try_from(format.id), u32::try_from(index + 1)) {
            let id = usize::from(id);
            if self.by_id.len() <= id {
                self.by_id.resize(id + 1, 0);
            }
            self.by_id[id] = number;
        }
        self.formats.push(format);
        index
    }

    /// The format of this index.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&EventFormat> {
        self.formats.get(index)
    }

    /// The format of records whose `common_type` is `id`.
    #[inline]
    pub fn by_id(&self, id: u64) -> Option<&EventFormat> {
        let number = *self.by_id.get(usize::try_from(id).ok()?)?;
        self.formats.get((number as usize).wrapping_sub(1))
    }

    /// The format of this name.
    pub fn find(&self, system: &str, name: &str) -> Option<&EventFormat> {
        self.formats.iter().find(|format| format.name == name && format.system == system)
    }

    /// All of them, in the order of their index.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &EventFormat> {
        self.formats.iter()
    }
}
