//! `cargo xtask op NAME`: one operator on one page. Reads the operator list of `sardonyx-ops`.
