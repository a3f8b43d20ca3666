//! The SIGBUS handler leaves other SIGBUS signals to the handler that was installed before it.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use pagehaul_physmem::file::PlainFile;
use pagehaul_physmem::{Access, MapPolicy, MappedFile};

static PLAIN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_bus_error(_signal: libc::c_int) {
    PLAIN.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn signals_about_other_memory_reach_the_previous_handler() {
    // SAFETY: the handler only adds to an atomic.
    unsafe { libc::signal(libc::SIGBUS, on_bus_error as *const () as usize) };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[7; 8192]).unwrap();
    let policy = MapPolicy { access: Access::Map, ..MapPolicy::default() };
    let mapped = MappedFile::new(PlainFile::open(file.path()).unwrap(), policy);
    let mut window = mapped.window();
    assert_eq!(window.bytes(4096, 1).unwrap(), [7]);
    // SAFETY: a handler is installed, so the signal does not end the process.
    unsafe { libc::raise(libc::SIGBUS) };
    assert_eq!(PLAIN.load(Ordering::Relaxed), 1);
    // Faults of the mapping do not reach it.
    file.as_file().set_len(0).unwrap();
    assert_eq!(window.bytes(4096, 1).unwrap(), [0]);
    assert_eq!((window.faults(), PLAIN.load(Ordering::Relaxed)), (1, 1));
}
