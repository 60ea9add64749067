//! Stands between a client and a replica, and cuts their connections when it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A way to a replica that can be cut.
pub(crate) struct Proxy {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// A way to `target`.
    pub(crate) fn to(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let open = Arc::new(Mutex::new(Vec::new()));
        let streams = Arc::clone(&open);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(target) else { continue };
                let pair = [&near, &far].map(|stream| stream.try_clone().expect("a descriptor"));
                streams.lock().expect("no panic").extend(pair);
                carry(&near, &far);
                carry(&far, &near);
            }
        });
        Proxy { address, open }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all connections that are open; new ones are welcome. Returns how many there were.
    pub(crate) fn cut(&self) -> usize {
        let streams = std::mem::take(&mut *self.open.lock().expect("no panic"));
        for stream in &streams {
            // The other side may have closed it already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        streams.len() / 2
    }
}

fn carry(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().expect("one"), to.try_clone().expect("one"));
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
