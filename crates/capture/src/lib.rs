//! The pipeline from physical memory to a dump: scan, pack, place.
