use super::EventFormat;

/// All event formats of a trace.
#[derive(Debug, Clone, Default)]
pub struct Formats {
    formats: Vec<EventFormat>,
    /// Index in `formats` plus one, by event id; 0 if there is none.
    by_id: Vec<u32>,
}

impl Formats {
    /// Adds a format and returns its index. A later format replaces an earlier one with the same id in
    /// lookups.
    pub fn add(&mut self, mut format: EventFormat) -> usize {
        let index = self.formats.len();
        format.index = index;
        // Records hold the id in 16 bits.
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

    /// Returns the format with this index.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&EventFormat> {
        self.formats.get(index)
    }

    /// Returns the format of records whose `common_type` is `id`.
    #[inline]
    pub(crate) fn by_id(&self, id: u64) -> Option<&EventFormat> {
        let number = *self.by_id.get(usize::try_from(id).ok()?)?;
        self.formats.get((number as usize).wrapping_sub(1))
    }

    /// Returns the format of an event.
    pub fn find(&self, system: &str, name: &str) -> Option<&EventFormat> {
        self.formats.iter().find(|format| format.name == name && format.system == system)
    }

    /// Iterates over all formats in index order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &EventFormat> {
        self.formats.iter()
    }
}

/// A table with an entry for each event format, for what a consumer derives from formats.
#[derive(Debug)]
pub struct PerFormat<T>(Vec<Option<T>>);

impl<T> Default for PerFormat<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> PerFormat<T> {
    /// Returns the entry of a format, `None` until it is set.
    #[inline]
    pub fn entry(&mut self, format: &EventFormat) -> &mut Option<T> {
        if self.0.len() <= format.index {
            self.0.resize_with(format.index + 1, || None);
        }
        &mut self.0[format.index]
    }
}
