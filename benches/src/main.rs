//! The `bowline` command.
fn main() {}
