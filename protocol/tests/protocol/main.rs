//! The protocol as a whole, from outside: frames, connections, and the test vectors that other
//! implementations share.

mod flips;
mod frames;
mod links;
mod made;
mod payloads;
mod services;
mod vectors;
mod waits;
