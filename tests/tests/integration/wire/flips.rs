//! A wire that damages one bit: whoever receives it says so and gives the connection up, the calls
//! that were on it are made again, and no answer is ever wrong.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use bowline_client::{Client, Config, Replica};
use bowline_protocol::{Frame, GoodbyeReason, Inbox, Label, Method, MethodInfo, ServiceInfo};
use bowline_server::{Context, Failure, Payload, Service};

use super::{config, run, serve};
use crate::PATIENCE;

const TURN: Method = Method(1);
const METHODS: &[MethodInfo] = &[MethodInfo::new(TURN, "turn").idempotent()];
const LARGE: usize = 100_000;

/// Turns a payload round, and says for whom.
#[derive(Clone)]
struct Turner;

impl Service for Turner {
    type Reply = Payload;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("turner", METHODS)
    }

    async fn call(&self, context: Context, mut request: Payload) -> Result<Payload, Failure> {
        if let Some(label) = context.label() {
            context.label_reply(Label::new(label));
        }
        request.as_mut().reverse();
        Ok(request)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    ToServer,
    ToClient,
}

/// What is to happen on the wire, and what did.
#[derive(Debug)]
struct Wire {
    way: Way,
    /// Which bit of all that goes that way on the first connection.
    bit: usize,
    /// What came back on that connection since.
    back: Option<Vec<u8>>,
    /// Nothing more will.
    over: bool,
    connections: usize,
}

/// Stands between the two, and flips that bit.
fn relay(target: SocketAddr, way: Way, bit: usize) -> (SocketAddr, Arc<Mutex<Wire>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let wire = Arc::new(Mutex::new(Wire { way, bit, back: None, over: false, connections: 0 }));
    let shared = wire.clone();
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(target) else { continue };
            let number = {
                let mut wire = shared.lock().expect("no panic");
                wire.connections += 1;
                wire.connections
            };
            carry(&near, &far, Way::ToServer, number, shared.clone());
            carry(&far, &near, Way::ToClient, number, shared.clone());
        }
    });
    (address, wire)
}

fn carry(from: &TcpStream, to: &TcpStream, way: Way, connection: usize, wire: Arc<Mutex<Wire>>) {
    let (mut from, mut to) = (from.try_clone().expect("one"), to.try_clone().expect("one"));
    std::thread::spawn(move || {
        let (mut buffer, mut passed) = (vec![0; 1 << 16], 0);
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let bytes = &mut buffer[..length];
            if connection == 1 {
                wire.lock().expect("no panic").see(way, bytes, passed);
            }
            passed += length;
            if to.write_all(bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        if connection == 1 {
            let mut wire = wire.lock().expect("no panic");
            wire.over |= way != wire.way;
        }
    });
}

impl Wire {
    /// These bytes go that way, behind so many others.
    fn see(&mut self, way: Way, bytes: &mut [u8], passed: usize) {
        if way != self.way {
            self.back.iter_mut().for_each(|back| back.extend_from_slice(bytes));
        } else if let Some(at) = (self.bit / 8).checked_sub(passed).filter(|at| *at < bytes.len()) {
            bytes[at] ^= 1 << (self.bit % 8);
            self.back = Some(Vec::new());
        }
    }

    /// Why the receiver of the damaged bit ended the connection, if it did.
    fn verdict(&self) -> Option<String> {
        let back = self.back.as_ref()?;
        // It may have been flipped in the middle of what went back: look for the goodbye's beginning.
        (0..back.len()).find_map(|at| {
            let mut inbox = Inbox::new(0);
            match inbox.feed(&back[at..]).next() {
                Ok(Some(Frame::Goodbye(goodbye, why))) => {
                    assert_eq!(goodbye.reason, GoodbyeReason::Protocol);
                    Some(String::from_utf8_lossy(why).into_owned())
                }
                _ => None,
            }
        })
    }
}

/// How many bits of an answer are not what they should be.
fn wrong_bits(reply: &[u8], sent: &[u8]) -> u32 {
    assert_eq!(reply.len(), sent.len());
    reply.iter().zip(sent.iter().rev()).map(|(found, made)| (found ^ made).count_ones()).sum()
}

/// Calls with and without options, small ones and some in segments. How many bits were wrong.
async fn exchange(client: &Client) -> u32 {
    let large: Vec<u8> = (0..LARGE).map(|at| ((at * 31) >> 3) as u8).collect();
    let mut wrong = 0;
    for (payload, label) in
        [(&b"block 9"[..], None), (b"block 10", Some("anna")), (&large, Some("otto")), (b"", None)]
    {
        let mut call = client.call(TURN, payload).deadline(PATIENCE).idempotent();
        if let Some(label) = label {
            call = call.label(Label::new(label));
        }
        let reply = call.await.expect("it is made again when its connection is lost");
        wrong += wrong_bits(&reply, payload);
        assert_eq!(reply.label(), label);
    }
    wrong
}

/// Numbers that are the same in every run.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Flips so many bits, each on a connection of its own: half of them among what is said first, and
/// half anywhere in an exchange. Returns how many reached a service.
fn flip(way: Way, checksums: bool, samples: u32) -> u32 {
    let server = serve(Turner, |builder| builder.payload_checksums(checksums));
    let (mut seed, mut wrong, mut reasons) = (way as u64, 0, 0);
    for sample in 0..samples {
        let most = if sample % 2 == 0 { 1_200 } else { 2 * LARGE };
        let bit = random(&mut seed) as usize % (most * 8);
        let (address, wire) = relay(server.address(), way, bit);
        let mut config: Config = config(&server);
        config.replicas = vec![Replica::new(0, address)];
        config.backoff = (std::time::Duration::from_millis(1), PATIENCE);
        config.payload_checksums = checksums;
        run(config, async |client| {
            let (mut errors, mut over) = (0, false);
            // Until the bit has passed, and what it hit has come to its end.
            while !over && errors == 0 {
                errors = exchange(&client).await;
                over = wire.lock().expect("no panic").over;
            }
            assert!(errors == 0 || !checksums && errors == 1, "bit {bit} {way:?}");
            if over {
                let verdict = wire.lock().expect("no panic").verdict();
                let sound = verdict.as_ref().is_none_or(|why| why.contains("checksum"));
                assert!(sound, "bit {bit} {way:?}: {verdict:?}");
                reasons += u32::from(verdict.is_some());
            }
            wrong += errors;
            assert_eq!(exchange(&client).await, 0, "all is well again");
            assert!(client.counters().reconcile());
        });
    }
    // What a client says last may be lost with the connection; a server waits until it was read.
    let hit = samples - wrong;
    let told = if way == Way::ToServer { hit } else { hit / 2 };
    assert!(reasons >= told, "{reasons} of {samples} ended with a reason, {wrong} came through");
    wrong
}

#[test]
fn a_bit_that_is_flipped_on_its_way_to_a_server_costs_a_connection_and_no_answer() {
    flip(Way::ToServer, true, 40);
}

#[test]
fn a_bit_that_is_flipped_on_its_way_to_a_client_costs_a_connection_and_no_answer() {
    flip(Way::ToClient, true, 40);
}

#[test]
fn without_checksums_of_payloads_only_the_bit_itself_gets_through() {
    let wrong = flip(Way::ToServer, false, 16) + flip(Way::ToClient, false, 16);
    assert!(wrong > 0, "half of them are anywhere in payloads");
}
