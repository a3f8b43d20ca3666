#!/bin/sh
# Opens the web page of `triage` in Chromium, and clicks. Another browser of its kind: PAGEHAUL_CHROMIUM=google-chrome.
set -eu
cd "$(dirname "$0")/.."
cargo test --locked --workspace --test browser -- --ignored
