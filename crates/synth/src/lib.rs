//! Builds vmcores and dumps to order, for tests.
