//! kdump-compressed and flattened files: layout, reading, writing.
