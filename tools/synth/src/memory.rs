//! Sparse physical memory.

use std::collections::{BTreeMap, HashMap};

use crate::content::{Content, PAGE, PageBytes};

/// Physical memory. Pages never written are zero, or struct pages as after boot where there is a memmap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pages: HashMap<u64, Content>,
    /// Physical start of each memmap range → its length and its offset in the virtual memmap, in bytes.
    memmaps: BTreeMap<u64, (u64, u64)>,
    /// A struct page as after boot.
    pristine: Vec<u8>,
}

impl Memory {
    pub fn set_pristine(&mut self, pristine: Vec<u8>) {
        self.pristine = pristine;
    }

    /// Makes `length` bytes at `paddr` part of the memmap, from byte `offset` of it.
    pub fn lay_memmap(&mut self, paddr: u64, length: u64, offset: u64) {
        self.memmaps.insert(paddr, (length, offset));
    }

    pub fn set(&mut self, pfn: u64, content: Content) {
        self.pages.insert(pfn, content);
    }

    pub fn page(&self, pfn: u64) -> PageBytes {
        match self.pages.get(&pfn) {
            Some(content) => content.page(pfn),
            None => self.untouched(pfn).unwrap_or([0; PAGE]),
        }
    }

    /// Returns whether the page is certainly zero, without generating it.
    pub fn is_void(&self, pfn: u64) -> bool {
        match self.pages.get(&pfn) {
            Some(content) => *content == Content::Zero,
            None => self.memmap_offset(pfn).is_none(),
        }
    }

    fn memmap_offset(&self, pfn: u64) -> Option<u64> {
        let paddr = pfn * PAGE as u64;
        let (start, (length, offset)) = self.memmaps.range(..=paddr).next_back()?;
        (paddr - start < *length).then(|| offset + (paddr - start))
    }

    fn untouched(&self, pfn: u64) -> Option<PageBytes> {
        let size = self.pristine.len();
        let mut at = (self.memmap_offset(pfn)? % size as u64) as usize;
        let mut page = [0; PAGE];
        for byte in &mut page {
            *byte = self.pristine[at];
            at = (at + 1) % size;
        }
        Some(page)
    }

    /// Writes `bytes` at `paddr`.
    pub fn write(&mut self, paddr: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = paddr + done as u64;
            let (pfn, offset) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let count = (PAGE - offset).min(bytes.len() - done);
            if !matches!(self.pages.get(&pfn), Some(Content::Bytes(_))) {
                let page = self.page(pfn);
                self.pages.insert(pfn, Content::Bytes(Box::new(page)));
            }
            if let Some(Content::Bytes(page)) = self.pages.get_mut(&pfn) {
                page[offset..offset + count].copy_from_slice(&bytes[done..done + count]);
            }
            done += count;
        }
    }

    pub fn write_u64(&mut self, paddr: u64, word: u64) {
        self.write(paddr, &word.to_le_bytes());
    }

    /// Reads bytes at `paddr`.
    pub fn read(&self, paddr: u64, buf: &mut [u8]) {
        let mut done = 0;
        while done < buf.len() {
            let at = paddr + done as u64;
            let (pfn, offset) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let count = (PAGE - offset).min(buf.len() - done);
            if !self.is_void(pfn) {
                buf[done..done + count].copy_from_slice(&self.page(pfn)[offset..offset + count]);
            } else {
                buf[done..done + count].fill(0);
            }
            done += count;
        }
    }

    pub fn read_u64(&self, paddr: u64) -> u64 {
        let mut word = [0; 8];
        self.read(paddr, &mut word);
        u64::from_le_bytes(word)
    }
}
