//! The client over loopback, against small servers that do what a test tells them to.

mod allocations;
mod calls;
mod connections;
mod ear;
mod fates;
mod live;
mod page;
mod remote;
mod server;
mod spans;
mod switching;
mod together;
mod told;
