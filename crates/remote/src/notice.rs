//! Notices about requests that are tried again. Libraries do not print: they go to a function of the program, from the process
//! that fetches for another by way of that one.

use std::cell::RefCell;
use std::sync::OnceLock;

/// Prints a notice.
type Print = fn(&str);
/// Takes a notice to another process.
type Sink = Box<dyn FnMut(&str)>;

static PRINT: OnceLock<Print> = OnceLock::new();

thread_local! {
    static SINK: RefCell<Option<Sink>> = const { RefCell::new(None) };
}

/// Has `print` called with each notice that a request is tried again, and why. Without it there are none. Later calls change
/// nothing.
pub fn print_notices(print: Print) {
    let _ = PRINT.set(print);
}

/// Sends the notices of this thread elsewhere.
pub(crate) fn send_to(sink: impl FnMut(&str) + 'static) {
    SINK.set(Some(Box::new(sink)));
}

/// Publishes a notice.
pub(crate) fn tell(notice: &str) {
    SINK.with_borrow_mut(|sink| match (sink, PRINT.get()) {
        (Some(sink), _) => sink(notice),
        (None, Some(print)) => print(notice),
        (None, None) => {}
    });
}
