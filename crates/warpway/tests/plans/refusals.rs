//! Wrong calls.
